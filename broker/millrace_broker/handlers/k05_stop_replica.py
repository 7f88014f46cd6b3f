"""StopReplica, versions 0 to 4: the controller says which replicas this broker stops, and which logs it deletes.

    v1  partitions by topic, the broker's epoch (KIP-380)     v2  flexible
    v3  each partition with its leader epoch, and whether its log is deleted (KIP-570)
    v4  a mark of KRaft's controllers

A request of a former controller, or for a former registration of this broker, is refused as a whole. Else each
partition has its own error (`replication.roles`). Nothing else deletes the log of a replicated partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import ClusterAuthorizationError, ErrorCode, MillraceError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import STOP_REPLICA
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.partition_roles import Outcomes
from millrace_broker.replication.roles import StopState
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponseFields

GUARD = Guard(ApiKey.STOP_REPLICA, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Does what the controller says, when its requests before this one are done."""
    is_controller = GUARD.permits(services, request.session)
    message = STOP_REPLICA.decode_request(request.version, request.body, may_have_many=is_controller)
    return services.roles.in_turn(partial(_obey, services, request, message, is_controller=is_controller))


async def _obey(services: Services, request: Request, message: StopReplicaRequest, *, is_controller: bool) -> Parts:
    code, outcomes = ErrorCode.NONE, Outcomes()
    states = list(_states(message))
    try:
        if not is_controller:
            raise GUARD.denied()
        services.fence.check(message.controller_epoch, message.broker_epoch)
        outcomes = await services.roles.stop(states)
    except ClusterAuthorizationError as error:
        code, outcomes = error.code, {one.topic_partition: error.code for one in states}
    except MillraceError as error:
        code = error.code
    fields: StopReplicaResponseFields = {
        "error_code": code,
        "partition_errors": [
            {"topic_name": one.topic, "partition_index": one.partition, "error_code": outcome}
            for one, outcome in outcomes.items()
        ],
    }
    return respond(services, STOP_REPLICA, request.version, fields)


def _states(message: StopReplicaRequest) -> Iterator[StopState]:
    deletes = message.delete_partitions
    for one in message.ungrouped_partitions:
        yield StopState(TopicPartition(one.topic_name, one.partition_index), NO_LEADER_EPOCH, deletes)
    for topic in message.topics:
        for index in topic.partition_indexes:
            yield StopState(TopicPartition(topic.name, index), NO_LEADER_EPOCH, deletes)
    for state in message.topic_states:
        for partition in state.partition_states:
            yield StopState(
                TopicPartition(state.topic_name, partition.partition_index),
                partition.leader_epoch,
                partition.delete_partition,
            )


API = Api(ApiKey.STOP_REPLICA, VersionRange(0, 4), handle, guards=(GUARD,))
