"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, versions 0 and 1 (KIP-848).

    heartbeat v1   subscription by pattern, and every client chooses its member id itself (KIP-1082)
    describe v1    tells which protocol a member uses (KIP-1099)

A pattern is resolved at the heartbeat of a member, to the topics that this member may describe. A group is described
only to a client that may describe the topics which its members read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroup
from millrace_broker.groups.consumer.events import Heartbeat, HeartbeatResponse, Refusal
from millrace_broker.groups.consumer.member import JOINING_EPOCH, NOTHING, Assignment, Member, assignment_of, by_topic
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, authorized_operations
from millrace_broker.handlers.responses import respond, respond_once_known

if TYPE_CHECKING:
    from millrace.wire.messages.consumer_group_describe import (
        AssignmentFields,
        ConsumerGroupDescribeResponseFields,
        DescribedGroupFields,
        MemberFields,
    )
    from millrace.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponseFields,
        TopicPartitions,
        TopicPartitionsFields,
    )

logger = logging.getLogger(__name__)
FIRST_VERSION_WITH_CLIENTS_MEMBER_ID = 1
HEARTBEAT_GUARD = Guard(ApiKey.CONSUMER_GROUP_HEARTBEAT, AclOperation.READ, ResourceType.GROUP)
HEARTBEAT_TOPIC_GUARD = Guard(ApiKey.CONSUMER_GROUP_HEARTBEAT, AclOperation.DESCRIBE, ResourceType.TOPIC)
PATTERN_GUARD = HEARTBEAT_TOPIC_GUARD._replace(is_silent=True)
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
DESCRIBE_GUARD = Guard(ApiKey.CONSUMER_GROUP_DESCRIBE, AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOPIC_GUARD = Guard(ApiKey.CONSUMER_GROUP_DESCRIBE, AclOperation.DESCRIBE, ResourceType.TOPIC)


def heartbeat(services: Services, request: Request) -> Reply:
    """Handles ConsumerGroupHeartbeat: responds with the member's epoch and, if it has changed, its assignment."""
    message = CONSUMER_GROUP_HEARTBEAT.decode_request(request.version, request.body)
    ticket: asyncio.Future[HeartbeatResponse | Refusal] = asyncio.get_running_loop().create_future()
    beat = _heartbeat(services, request, message)
    reply = respond_once_known(ticket, partial(_respond, services, request.version, beat))
    denied = _denied(services, request, message) if services.consumer_groups.config.is_served else ErrorCode.NONE
    if denied:
        ticket.set_result(Refusal(denied, error_sentence(denied)))
        return reply
    services.consumer_groups.heartbeat(services.groups, beat, ticket)
    return reply


def _denied(services: Services, request: Request, message: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    """Returns the error code where the client may not read as the group, or describe one of its topics; else NONE."""
    if not HEARTBEAT_GUARD.permits(services, request.session, message.group_id):
        return HEARTBEAT_GUARD.error
    names = message.subscribed_topic_names or ()
    is_permitted = all(HEARTBEAT_TOPIC_GUARD.permits(services, request.session, name) for name in names)
    return ErrorCode.NONE if is_permitted else HEARTBEAT_TOPIC_GUARD.error


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
        fields = _refused_heartbeat(result)
    else:
        fields = _accepted(result)
    return respond(services, CONSUMER_GROUP_HEARTBEAT, version, fields)


def _refused_heartbeat(refusal: Refusal) -> ConsumerGroupHeartbeatResponseFields:
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


def describe(services: Services, request: Request) -> Reply:
    """Responds to ConsumerGroupDescribe with the state and the members of each group, or with its error."""
    message = CONSUMER_GROUP_DESCRIBE.decode_request(request.version, request.body)
    groups = [
        _group(services, request, group_id, with_operations=message.include_authorized_operations)
        for group_id in dict.fromkeys(message.group_ids)
    ]
    fields: ConsumerGroupDescribeResponseFields = {"throttle_time": 0, "groups": groups}
    return respond(services, CONSUMER_GROUP_DESCRIBE, request.version, fields)


def _group(services: Services, request: Request, group_id: str, *, with_operations: bool) -> DescribedGroupFields:
    if services.consumer_groups.config.is_served and not DESCRIBE_GUARD.permits(services, request.session, group_id):
        return _refused_group(group_id, DESCRIBE_GUARD.error, error_sentence(DESCRIBE_GUARD.error))
    if not group_id:
        return _refused_group(group_id, ErrorCode.INVALID_GROUP_ID, None)
    try:
        group = services.consumer_groups.find(services.groups, group_id)
    except GroupError as error:
        return _refused_group(group_id, error.code, str(error))
    image = services.metadata.image
    if not all(
        DESCRIBE_TOPIC_GUARD.permits(services, request.session, name) for name in _topics_read(group.state, image)
    ):
        return _refused_group(
            group_id, DESCRIBE_TOPIC_GUARD.error, "the group reads topics that the client may not describe"
        )
    default = services.consumer_groups.config.default_assignor
    operations = (
        authorized_operations(services, request.session, ResourceType.GROUP, group_id)
        if with_operations
        else OPERATIONS_NOT_ASKED
    )
    return {**_described(group_id, group, default, image), "authorized_operations": operations}


def _topics_read(state: GroupState, image: MetadataImage) -> list[str]:
    """Returns the sorted names of the topics of which members have partitions, or are about to get some."""
    assignments = [*state.targets.values(), *(member.current.assigned for member in state.members.values())]
    ids = {one.topic_id for assignment in assignments for one in assignment}
    return sorted(topic.name for topic in image.topics.values() if topic.topic_id in ids)


def _refused_group(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroupFields:
    return {
        "group_id": group_id,
        "error_code": code,
        "error_message": message,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def _described(
    group_id: str, group: ConsumerGroup, default_assignor: str, image: MetadataImage
) -> DescribedGroupFields:
    state = group.state
    names = {topic.topic_id: topic.name for topic in image.topics.values()}
    return {
        "group_id": group_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_state": state.state_name,
        "group_epoch": state.epoch,
        "assignment_epoch": state.target_epoch,
        "assignor_name": state.preferred_assignor(default_assignor),
        "members": [
            _member(member, state.targets.get(member.member_id, NOTHING), names) for member in state.members.values()
        ],
    }


def _member(member: Member, target: Assignment, names: Mapping[UUID, str]) -> MemberFields:
    metadata = member.metadata
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": sorted(metadata.topic_names),
        "subscribed_topic_regex": metadata.topic_regex,
        "assignment": _assignment(member.current.assigned, names),
        "target_assignment": _assignment(target, names),
        "member_type": CONSUMER_MEMBER if metadata.classic is None else CLASSIC_MEMBER,
    }


def _assignment(assignment: Assignment, names: Mapping[UUID, str]) -> AssignmentFields:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if topic_id in names
        ]
    }


APIS = (
    Api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        VersionRange(0, 1),
        heartbeat,
        guards=(HEARTBEAT_GUARD, HEARTBEAT_TOPIC_GUARD, PATTERN_GUARD),
        in_turn=True,
    ),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, VersionRange(0, 1), describe, guards=(DESCRIBE_GUARD, DESCRIBE_TOPIC_GUARD)),
)
