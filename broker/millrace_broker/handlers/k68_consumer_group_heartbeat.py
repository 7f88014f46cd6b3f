"""ConsumerGroupHeartbeat, versions 0 and 1.

v1  subscription by pattern (KIP-848), and every client chooses its member id itself (KIP-1082)

A pattern is resolved at the heartbeat of a member, to the topics that this member may describe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import CONSUMER_GROUP_HEARTBEAT
from millrace_broker.groups.consumer.events import Heartbeat, HeartbeatResponse, Refusal
from millrace_broker.groups.consumer.member import JOINING_EPOCH, Assignment, assignment_of, by_topic
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_once_known

if TYPE_CHECKING:
    from millrace.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponseFields,
        TopicPartitions,
        TopicPartitionsFields,
    )

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_CLIENTS_MEMBER_ID = 1
GUARD = Guard(ApiKey.CONSUMER_GROUP_HEARTBEAT, AclOperation.READ, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.CONSUMER_GROUP_HEARTBEAT, AclOperation.DESCRIBE, ResourceType.TOPIC)
PATTERN_GUARD = TOPIC_GUARD._replace(is_silent=True)


def handle(services: Services, request: Request) -> Reply:
    """Takes a member's heartbeat, and answers its epoch and its assignment."""
    message = CONSUMER_GROUP_HEARTBEAT.decode_request(request.version, request.body)
    ticket: asyncio.Future[HeartbeatResponse | Refusal] = asyncio.get_running_loop().create_future()
    heartbeat = _heartbeat(services, request, message)
    reply = respond_once_known(ticket, partial(_respond, services, request.version, heartbeat))
    denied = _denied(services, request, message) if services.consumer_groups.config.is_served else ErrorCode.NONE
    if denied:
        ticket.set_result(Refusal(denied, error_sentence(denied)))
        return reply
    services.consumer_groups.heartbeat(services.groups, heartbeat, ticket)
    return reply


def _denied(services: Services, request: Request, message: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    """Returns the error of a client that may not read as the group, or not describe a topic that it subscribes to."""
    if not GUARD.permits(services, request.session, message.group_id):
        return GUARD.error
    names = message.subscribed_topic_names or ()
    is_permitted = all(TOPIC_GUARD.permits(services, request.session, name) for name in names)
    return ErrorCode.NONE if is_permitted else TOPIC_GUARD.error


def _heartbeat(services: Services, request: Request, message: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    joins_without_id = (
        request.version < FIRST_VERSION_WITH_CLIENTS_MEMBER_ID
        and message.member_epoch == JOINING_EPOCH
        and not message.member_id
    )
    names = message.subscribed_topic_names
    return Heartbeat(
        group_id=message.group_id,
        member_id=str(uuid4()) if joins_without_id else message.member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=milliseconds(message.rebalance_timeout),
        topic_names=None if names is None else frozenset(names),
        topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=_owned(message.topic_partitions),
        version=request.version,
        client_id=request.client_id or "",
        client_host=f"/{request.session.host}",
        may_describe=partial(PATTERN_GUARD.permits, services, request.session),
    )


def _owned(topics: Iterable[TopicPartitions] | None) -> Assignment | None:
    if topics is None:
        return None
    return assignment_of({topic.topic_id or NO_TOPIC_ID: topic.partitions for topic in each(topics)})


def _respond(services: Services, version: int, request: Heartbeat, result: HeartbeatResponse | Refusal) -> Parts:
    if isinstance(result, Refusal):
        logger.info(
            "group %s: %s of client %s is refused: %s: %s",
            *(request.group_id, request.member_id, request.client_id, result.error.name, result.message),
        )
        fields = _refused(result)
    else:
        fields = _accepted(result)
    return respond(services, CONSUMER_GROUP_HEARTBEAT, version, fields)


def _refused(refusal: Refusal) -> ConsumerGroupHeartbeatResponseFields:
    return {
        "throttle_time": 0,
        "error_code": refusal.error,
        "error_message": refusal.message,
        "member_epoch": 0,
        "heartbeat_interval": 0,
    }


def _accepted(response: HeartbeatResponse) -> ConsumerGroupHeartbeatResponseFields:
    fields: ConsumerGroupHeartbeatResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": response.heartbeat_interval_ms,
    }
    if response.assignment is not None:
        topics = by_topic(response.assignment).items()
        partitions: list[TopicPartitionsFields] = [
            {"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics
        ]
        fields["assignment"] = {"topic_partitions": partitions}
    return fields


API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    VersionRange(0, 1),
    handle,
    guards=(GUARD, TOPIC_GUARD, PATTERN_GUARD),
    in_turn=True,
)
