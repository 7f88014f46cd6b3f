"""DescribeTopicPartitions, version 0 (KIP-966): topics by name, in pages.

    topics     those that are named, or all, in the order of their names
    cursor     the topic and partition with which a page begins; the response has the cursor of the next page
    page       at most as many partitions as the client and max.request.partition.size.limit allow

A topic that is named and does not exist is answered with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode, InvalidRequestError, InvalidTopicError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DESCRIBE_TOPIC_PARTITIONS
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo, offline_replicas, reachable
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.api import Api, Guard, InTurns, Request, Services
from millrace_broker.handlers.authorized_operations import authorized_operations
from millrace_broker.handlers.partitions import told_leader
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponseFields,
        DescribeTopicPartitionsResponsePartitionFields,
        DescribeTopicPartitionsResponseTopicFields,
    )

GUARD = Guard(ApiKey.DESCRIBE_TOPIC_PARTITIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)
ALL_GUARD = GUARD._replace(is_silent=True)


class Cursor(NamedTuple):
    """A place in the sequence of all partitions."""

    topic: str
    partition: int


Place = tuple[str, int, int]  # a topic's name and its partitions, [first, end)


class Page(NamedTuple):
    """The partitions of each topic, and where the next page begins."""

    topics: list[Place]
    next: Cursor | None


def handle(services: Services, request: Request) -> InTurns:
    """Describes one page of topics, which may be long."""
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
        guard = GUARD if named else ALL_GUARD
        names = [name for name in each(asked) if guard.permits(services, request.session, name)]
        page = paged([(name, _count(image, name)) for name in each(names)], cursor, limit)
        reached = reachable(image, request.session.listener)
        topics = [_topic(services, request.session, image, reached, place) for place in each(page.topics)]
        permitted = frozenset(each(names))
        denied = [name for name in each(asked) if name not in permitted] if named else []
        topics += [_missing(name, GUARD.error, OPERATIONS_NOT_ASKED) for name in each(denied)]
        fields = {"throttle_time": 0, "topics": topics}
        if page.next is not None:
            fields["next_cursor"] = {"topic_name": page.next.topic, "partition_index": page.next.partition}
    return respond(services, DESCRIBE_TOPIC_PARTITIONS, request.version, fields)


def paged(topics: Sequence[tuple[str, int]], cursor: Cursor | None, limit: int) -> Page:
    """Returns the page that begins at the cursor.

    `topics` are (name, number of partitions), sorted; a topic that does not exist has none.
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


def _count(image: MetadataImage, name: str) -> int:
    return len(image.topics[name].partitions) if name in image.topics else 0


def _topic(
    services: Services, session: ClientSession, image: MetadataImage, reached: Mapping[int, Endpoint], place: Place
) -> DescribeTopicPartitionsResponseTopicFields:
    name, first, end = place
    topic = image.topics.get(name)
    operations = authorized_operations(services, session, ResourceType.TOPIC, name)
    if topic is not None:
        partitions = [_partition(image, reached, one) for one in topic.partitions[first:end]]
        return _described(topic, partitions, operations)
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return _missing(name, error.code, operations)
    return _missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations)


def _described(
    topic: TopicInfo, partitions: Sequence[DescribeTopicPartitionsResponsePartitionFields], operations: int
) -> DescribeTopicPartitionsResponseTopicFields:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


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


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, VersionRange(0, 0), handle, guards=(GUARD, ALL_GUARD))
