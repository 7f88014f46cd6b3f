"""LeaderAndIsr, versions 0 to 7: the controller says which partitions this broker leads and which it follows.

    v1  whether the partition is new     v2  partitions by topic, the broker's epoch (KIP-380)
    v3  replicas that a reassignment adds and removes     v4  flexible     v5  topic ids; errors by topic id (KIP-516)
    v6  how the leader was elected       v7  a mark of KRaft's controllers

A request of a former controller, or for a former registration of this broker, is refused as a whole. Else each
partition has its own error (`replication.roles`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import LEADER_AND_ISR
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.partition_roles import Outcomes
from millrace_broker.replication.roles import PartitionState
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.leader_and_isr import (
        LeaderAndIsrPartitionErrorFields,
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrResponseFields,
    )

FIRST_VERSION_WITH_TOPIC_IDS = 5
GUARD = Guard(ApiKey.LEADER_AND_ISR, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Does what the controller says, when its requests before this one are done."""
    is_controller = GUARD.permits(services, request.session)
    message = LEADER_AND_ISR.decode_request(request.version, request.body, may_have_many=is_controller)
    return services.roles.in_turn(partial(_obey, services, request, message, is_controller=is_controller))


async def _obey(services: Services, request: Request, message: LeaderAndIsrRequest, *, is_controller: bool) -> Parts:
    version = request.version
    states = list(_states(message))
    code = ErrorCode.NONE
    try:
        if not is_controller:
            raise GUARD.denied()
        services.fence.check(message.controller_epoch, message.broker_epoch)
        outcomes = await services.roles.become(states)
    except MillraceError as error:
        code = error.code
        outcomes = {one.topic_partition: code for one in states}
    return respond(services, LEADER_AND_ISR, version, _fields(version, code, states, outcomes))


def _states(message: LeaderAndIsrRequest) -> Iterator[PartitionState]:
    for one in message.ungrouped_partition_states:
        yield _state(one.topic_name, None, one)
    for topic in message.topic_states:
        for one in topic.partition_states:
            yield _state(topic.topic_name, topic.topic_id, one)


def _state(topic: str, topic_id: UUID | None, one: LeaderAndIsrPartitionState) -> PartitionState:
    return PartitionState(
        TopicPartition(topic, one.partition_index),
        topic_id,
        one.leader,
        one.leader_epoch,
        one.isr,
        one.partition_epoch,
        one.replicas,
        one.adding_replicas,
    )


def _fields(
    version: int, code: ErrorCode, states: list[PartitionState], outcomes: Outcomes
) -> LeaderAndIsrResponseFields:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return {
            "error_code": code,
            "partition_errors": [
                {"topic_name": one.topic, "partition_index": one.partition, "error_code": outcome}
                for one, outcome in outcomes.items()
            ],
        }
    topics: dict[UUID | None, list[LeaderAndIsrPartitionErrorFields]] = {}
    for state in states:
        index, outcome = state.topic_partition.partition, outcomes[state.topic_partition]
        topics.setdefault(state.topic_id, []).append({"partition_index": index, "error_code": outcome})
    return {
        "error_code": code,
        "topics": [{"topic_id": topic_id, "partition_errors": errors} for topic_id, errors in topics.items()],
    }


API = Api(ApiKey.LEADER_AND_ISR, VersionRange(0, 7), handle, guards=(GUARD,))
