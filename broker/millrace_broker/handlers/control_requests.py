"""LeaderAndIsr, StopReplica and UpdateMetadata: the controller says what this broker leads, follows and knows.

    LeaderAndIsr    v0 to v7   v1  whether the partition is new    v2  partitions by topic, the broker's epoch (KIP-380)
                               v3  replicas that a reassignment adds and removes    v4  flexible
                               v5  topic ids; errors by topic id (KIP-516)    v6  how the leader was elected
                               v7  a mark of KRaft's controllers
    StopReplica     v0 to v4   v1  partitions by topic, the broker's epoch (KIP-380)    v2  flexible
                               v3  each partition with its leader epoch, and whether its log is deleted (KIP-570)
                               v4  a mark of KRaft's controllers
    UpdateMetadata  v0 to v8   v1  endpoints of a broker    v2  rack    v3  names of listeners    v4  offline replicas
                               v5  partitions by topic, the broker's epoch    v6  flexible    v7  topic ids
                               v8  a mark of KRaft's controllers

A request of a former controller, or for a former registration of this broker, is refused as a whole. Else each
partition of the first two has its own error (`replication.roles`). Nothing but StopReplica deletes the log of a
replicated partition. A metadata update is taken at once, and clients are told of it as soon as the broker has acted
upon it (`metadata_publisher`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.addresses import Endpoint
from millrace.errors import ClusterAuthorizationError, ErrorCode, MillraceError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.acls import AclOperation, ResourceType
from millrace.security.protocols import SecurityProtocol
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from millrace_broker.cluster.metadata_image import BrokerInfo, PartitionInfo
from millrace_broker.cluster.metadata_update import MetadataUpdate, TopicUpdate, brokers_by_id
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.partition_roles import Outcomes
from millrace_broker.replication.roles import PartitionState, StopState
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.leader_and_isr import (
        LeaderAndIsrPartitionErrorFields,
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrResponseFields,
    )
    from millrace.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponseFields
    from millrace.wire.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataResponseFields,
    )

FIRST_VERSION_WITH_TOPIC_IDS = 5
LEADER_GUARD = Guard(ApiKey.LEADER_AND_ISR, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
STOP_GUARD = Guard(ApiKey.STOP_REPLICA, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
METADATA_GUARD = Guard(ApiKey.UPDATE_METADATA, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def leader_and_isr(services: Services, request: Request) -> Reply:
    """Handles LeaderAndIsr: makes this broker lead or follow partitions, after the controller's earlier requests."""
    is_controller = LEADER_GUARD.permits(services, request.session)
    message = LEADER_AND_ISR.decode_request(request.version, request.body, may_have_many=is_controller)
    return services.roles.in_turn(partial(_become, services, request, message, is_controller=is_controller))


async def _become(services: Services, request: Request, message: LeaderAndIsrRequest, *, is_controller: bool) -> Parts:
    version = request.version
    states = list(_partition_states(message))
    code = ErrorCode.NONE
    try:
        if not is_controller:
            raise LEADER_GUARD.denied()
        services.fence.check(message.controller_epoch, message.broker_epoch)
        outcomes = await services.roles.become(states)
        services.metadata.look_again()  # a broker that joins waits for its roles, whose image may have come before
    except MillraceError as error:
        code = error.code
        outcomes = {one.topic_partition: code for one in states}
    return respond(services, LEADER_AND_ISR, version, _became(version, code, states, outcomes))


def _partition_states(message: LeaderAndIsrRequest) -> Iterator[PartitionState]:
    for one in message.ungrouped_partition_states:
        yield _partition_state(one.topic_name, None, one)
    for topic in message.topic_states:
        for one in topic.partition_states:
            yield _partition_state(topic.topic_name, topic.topic_id, one)


def _partition_state(topic: str, topic_id: UUID | None, one: LeaderAndIsrPartitionState) -> PartitionState:
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


def _became(
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


def stop_replica(services: Services, request: Request) -> Reply:
    """Handles StopReplica: stops replicas, and deletes logs if asked to, after the controller's earlier requests."""
    is_controller = STOP_GUARD.permits(services, request.session)
    message = STOP_REPLICA.decode_request(request.version, request.body, may_have_many=is_controller)
    return services.roles.in_turn(partial(_stop, services, request, message, is_controller=is_controller))


async def _stop(services: Services, request: Request, message: StopReplicaRequest, *, is_controller: bool) -> Parts:
    code, outcomes = ErrorCode.NONE, Outcomes()
    states = list(_stop_states(message))
    try:
        if not is_controller:
            raise STOP_GUARD.denied()
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


def _stop_states(message: StopReplicaRequest) -> Iterator[StopState]:
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


def update_metadata(services: Services, request: Request) -> Reply:
    """Handles UpdateMetadata: takes the brokers and partitions in it; refuses requests of a former controller."""
    is_controller = METADATA_GUARD.permits(services, request.session)
    message = UPDATE_METADATA.decode_request(request.version, request.body, may_have_many=is_controller)
    assert services.take_update is not None, "served in a cluster alone"
    code = ErrorCode.NONE
    try:
        if not is_controller:
            raise METADATA_GUARD.denied()
        services.fence.check(message.controller_epoch, message.broker_epoch)
    except MillraceError as error:
        code = error.code
    else:
        services.take_update(_update(message))
    fields: UpdateMetadataResponseFields = {"error_code": code}
    return respond(services, UPDATE_METADATA, request.version, fields)


def _update(message: UpdateMetadataRequest) -> MetadataUpdate:
    brokers = brokers_by_id(map(_broker, message.live_brokers))
    return MetadataUpdate(message.controller_id, brokers, [*_topics(message), *_ungrouped_topics(message)])


def _broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    """Returns a broker that UpdateMetadata describes: by one address in v0, later by one for each protocol."""
    if not broker.endpoints:
        return BrokerInfo(broker.id, broker.v0_host, broker.v0_port, broker.rack)
    endpoints = []
    for one in broker.endpoints:
        protocol = SecurityProtocol(one.security_protocol).name
        endpoints.append(Endpoint(one.listener or protocol, protocol, one.host, one.port))
    return BrokerInfo.of(broker.id, endpoints, broker.rack)


def _topics(message: UpdateMetadataRequest) -> Iterable[TopicUpdate]:
    for topic in message.topic_states:
        partitions = [_partition(one) for one in topic.partition_states]
        yield TopicUpdate(topic.topic_name, topic.topic_id or NO_TOPIC_ID, partitions)


def _ungrouped_topics(message: UpdateMetadataRequest) -> Iterable[TopicUpdate]:
    """Yields, by topic, the partitions of UpdateMetadata up to v4, where they are one list without topic ids."""
    by_topic = defaultdict(list)
    for one in message.ungrouped_partition_states:
        by_topic[one.topic_name].append(_partition(one))
    for name, partitions in by_topic.items():
        yield TopicUpdate(name, NO_TOPIC_ID, partitions)


def _partition(state: UpdateMetadataPartitionState) -> PartitionInfo:
    return PartitionInfo(
        state.partition_index, state.leader, state.leader_epoch, state.replicas, state.isr, state.offline_replicas
    )


APIS = (
    Api(ApiKey.LEADER_AND_ISR, VersionRange(0, 7), leader_and_isr, guards=(LEADER_GUARD,)),
    Api(ApiKey.STOP_REPLICA, VersionRange(0, 4), stop_replica, guards=(STOP_GUARD,)),
    Api(ApiKey.UPDATE_METADATA, VersionRange(0, 8), update_metadata, guards=(METADATA_GUARD,)),
)
