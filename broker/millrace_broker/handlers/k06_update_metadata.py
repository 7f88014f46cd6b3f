"""UpdateMetadata, versions 0 to 8: the controller tells a broker of the cluster's brokers, leaders and replicas.

    v1  endpoints of a broker    v2  rack    v3  names of listeners    v4  offline replicas
    v5  partitions by topic, the broker's epoch    v6  flexible    v7  topic ids    v8  a mark of KRaft's controllers

A request of an older controller, or one that is meant for a former incarnation of this broker, is refused. The update
is taken at once, and clients are told of it as soon as the broker has acted upon it (`metadata_publisher`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.security.protocols import SecurityProtocol
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import UPDATE_METADATA
from millrace_broker.cluster.metadata_image import BrokerInfo, PartitionInfo
from millrace_broker.cluster.metadata_update import MetadataUpdate, TopicUpdate, brokers_by_id
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataResponseFields,
    )

GUARD = Guard(ApiKey.UPDATE_METADATA, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Takes the update, unless it comes from a controller that is one no longer."""
    is_controller = GUARD.permits(services, request.session)
    message = UPDATE_METADATA.decode_request(request.version, request.body, may_have_many=is_controller)
    assert services.take_update is not None, "served in a cluster alone"
    code = ErrorCode.NONE
    try:
        if not is_controller:
            raise GUARD.denied()
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
    """Returns where clients reach a broker: version 0 tells one address, versions 1 and 2 a protocol for each."""
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
    """Yields what versions up to 4 tell, which name the topic at each partition and know no topic ids."""
    by_topic = defaultdict(list)
    for one in message.ungrouped_partition_states:
        by_topic[one.topic_name].append(_partition(one))
    for name, partitions in by_topic.items():
        yield TopicUpdate(name, NO_TOPIC_ID, partitions)


def _partition(state: UpdateMetadataPartitionState) -> PartitionInfo:
    return PartitionInfo(
        state.partition_index, state.leader, state.leader_epoch, state.replicas, state.isr, state.offline_replicas
    )


API = Api(ApiKey.UPDATE_METADATA, VersionRange(0, 8), handle, guards=(GUARD,))
