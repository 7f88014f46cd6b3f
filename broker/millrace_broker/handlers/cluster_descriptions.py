"""DescribeCluster and DescribeTopicPartitions: what newer clients ask instead of Metadata.

    DescribeCluster          v0 to v2   KIP-700; v1  the type of endpoint that is asked (KIP-919): a broker, never a
                                        controller    v2  fenced brokers: there are none
    DescribeTopicPartitions  v0         KIP-966: topics by name, in pages

Brokers without the listener by which the request came are left out. Of a page:

    topics     those that are named, or all, in the order of their names
    cursor     the topic and partition with which a page begins; the response has the cursor of the next page
    page       at most as many partitions as the client and max.request.partition.size.limit allow

A topic that is named and does not exist is answered with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode, InvalidRequestError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, offline_replicas, reachable
from millrace_broker.handlers.api import Api, Guard, InTurns, Reply, Request, Services, authorized_operations
from millrace_broker.handlers.k03_metadata import cluster_operations, missing_topic_error
from millrace_broker.handlers.partitions import told_leader
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.describe_cluster import (
        DescribeClusterBrokerFields,
        DescribeClusterRequest,
        DescribeClusterResponseFields,
    )
    from millrace.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponseFields,
        DescribeTopicPartitionsResponsePartitionFields,
        DescribeTopicPartitionsResponseTopicFields,
    )

BROKERS, CONTROLLERS = 1, 2
CLUSTER_GUARD = Guard(ApiKey.DESCRIBE_CLUSTER, AclOperation.DESCRIBE, ResourceType.CLUSTER)
TOPIC_GUARD = Guard(ApiKey.DESCRIBE_TOPIC_PARTITIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)
ALL_TOPICS_GUARD = TOPIC_GUARD._replace(is_silent=True)


def describe_cluster(services: Services, request: Request) -> Reply:
    """Responds to DescribeCluster with the cluster's id, its controller and its live brokers."""
    message = DESCRIBE_CLUSTER.decode_request(request.version, request.body)
    endpoint_type = message.endpoint_type
    if endpoint_type == BROKERS:
        fields = _cluster(services, request, message)
    elif endpoint_type == CONTROLLERS:
        fields = _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "controllers were asked for, and this is a broker")
    else:
        fields = _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} is not known")
    return respond(services, DESCRIBE_CLUSTER, request.version, fields)


def _cluster(services: Services, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponseFields:
    image = services.metadata.image
    brokers: list[DescribeClusterBrokerFields] = [
        {"broker_id": one, "host": at.host, "port": at.port, "rack": image.brokers[one].rack, "is_fenced": False}
        for one, at in reachable(image, request.session.listener).items()
    ]
    return {
        **_refused(ErrorCode.NONE, None),
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": brokers,
        "cluster_authorized_operations": (
            cluster_operations(services, request.session, CLUSTER_GUARD)
            if message.include_cluster_authorized_operations
            else OPERATIONS_NOT_ASKED
        ),
    }


def _refused(code: ErrorCode, message: str | None) -> DescribeClusterResponseFields:
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message,
        "endpoint_type": BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
        "cluster_authorized_operations": OPERATIONS_NOT_ASKED,
    }


class Cursor(NamedTuple):
    """The first topic and partition of a page of DescribeTopicPartitions, in the order of names and numbers."""

    topic: str
    partition: int


Place = tuple[str, int, int]  # a topic's name and its partitions, [first, end)


class Page(NamedTuple):
    """A page of DescribeTopicPartitions: partitions by topic, and the next page's cursor; None after the last."""

    topics: list[Place]
    next: Cursor | None


def describe_topic_partitions(services: Services, request: Request) -> InTurns:
    """Responds to DescribeTopicPartitions with one page of partitions, interrupting the work for other requests."""
    message = DESCRIBE_TOPIC_PARTITIONS.decode_request(request.version, request.body)
    return InTurns(lambda: _page_of(services, request.without_body(), message))


def _page_of(services: Services, request: Request, message: DescribeTopicPartitionsRequest) -> Parts:
    image = services.metadata.image
    limit = max(min(message.response_partition_limit, services.config.max_request_partition_size_limit), 1)
    cursor = None if message.cursor is None else Cursor(message.cursor.topic_name, message.cursor.partition_index)
    named = [topic.name for topic in each(message.topics)]
    try:
        asked = _names(image, named, cursor)
    except InvalidRequestError as error:
        refused = [_missing(name, error.code, OPERATIONS_NOT_ASKED) for name in each(named)]
        fields: DescribeTopicPartitionsResponseFields = {"throttle_time": 0, "topics": refused}
    else:
        guard = TOPIC_GUARD if named else ALL_TOPICS_GUARD
        names = [name for name in each(asked) if guard.permits(services, request.session, name)]
        known = image.topics
        counts = [(name, len(known[name].partitions) if name in known else 0) for name in each(names)]
        page = paged(counts, cursor, limit)
        reached = reachable(image, request.session.listener)
        topics = [_topic(services, request.session, image, reached, place) for place in each(page.topics)]
        permitted = frozenset(each(names))
        denied = [name for name in each(asked) if name not in permitted] if named else []
        topics += [_missing(name, TOPIC_GUARD.error, OPERATIONS_NOT_ASKED) for name in each(denied)]
        fields = {"throttle_time": 0, "topics": topics}
        if page.next is not None:
            fields["next_cursor"] = {"topic_name": page.next.topic, "partition_index": page.next.partition}
    return respond(services, DESCRIBE_TOPIC_PARTITIONS, request.version, fields)


def paged(topics: Sequence[tuple[str, int]], cursor: Cursor | None, limit: int) -> Page:
    """Returns the page of at most `limit` partitions that begins at the cursor; None stands for the first topic.

    `topics` are (name, number of partitions), sorted; a topic that does not exist has 0 partitions.
    """
    page: list[Place] = []
    for name, count in each(topics):
        if limit == 0:
            return Page(page, Cursor(name, 0))
        first = cursor.partition if cursor is not None and cursor.topic == name else 0
        end = min(first + limit, count)
        page.append((name, first, end))
        if end < count:
            return Page(page, Cursor(name, end))
        limit -= max(end - first, 0)
    return Page(page, None)


def _names(image: MetadataImage, named: Sequence[str], cursor: Cursor | None) -> list[str]:
    names = sorted(set(each(named)) if named else image.topics)
    if cursor is None:
        return names
    if cursor.partition < 0:
        raise InvalidRequestError(f"the cursor's partition is {cursor.partition}: expected 0 or more")
    if named and cursor.topic not in named:
        raise InvalidRequestError(f"the cursor's topic {cursor.topic} is not one of the request's topics")
    return [name for name in each(names) if name >= cursor.topic]


def _topic(
    services: Services, session: ClientSession, image: MetadataImage, reached: Mapping[int, Endpoint], place: Place
) -> DescribeTopicPartitionsResponseTopicFields:
    name, first, end = place
    topic = image.topics.get(name)
    operations = authorized_operations(services, session, ResourceType.TOPIC, name)
    if topic is not None:
        partitions = [_partition(image, reached, one) for one in topic.partitions[first:end]]
        return {
            **_missing(name, ErrorCode.NONE, operations),
            "topic_id": topic.topic_id,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": partitions,
        }
    return _missing(name, missing_topic_error(name), operations)


def _partition(
    image: MetadataImage, reached: Mapping[int, Endpoint], one: PartitionInfo
) -> DescribeTopicPartitionsResponsePartitionFields:
    leader, error_code = told_leader(one, image, reached)
    return {
        "error_code": error_code,
        "partition_index": one.index,
        "leader_id": leader,
        "leader_epoch": one.leader_epoch,
        "replica_nodes": one.replicas,
        "isr_nodes": one.isr,
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "offline_replicas": offline_replicas(one, image),
    }


def _missing(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopicFields:
    return {
        "error_code": code,
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": operations,
    }


APIS = (
    Api(ApiKey.DESCRIBE_CLUSTER, VersionRange(0, 2), describe_cluster, guards=(CLUSTER_GUARD,)),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        VersionRange(0, 0),
        describe_topic_partitions,
        guards=(TOPIC_GUARD, ALL_TOPICS_GUARD),
    ),
)
