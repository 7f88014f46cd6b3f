"""Metadata, versions 0 to 13.

    v0   an empty list of topics means all     v1   null means all, none means none
    v4   a client may forbid auto-creation     v8   authorized operations, if they are asked for
    v9   flexible                              v10  topic ids; the cluster's operations for the last time
    v12  topics asked for by id; if one is, those asked for by name are passed over

A client is told the addresses of the listener that it uses, and of no broker without it. Where the leader of a
partition has no such listener, the error is LISTENER_NOT_FOUND (before v6 LEADER_NOT_AVAILABLE).

An unknown topic that is asked for by name is created before the response where it may be (auto.create.topics.enable),
so the client need not ask again. Kafka's internal topics are created by their coordinators, never here. A topic that
the client may not describe looks the same whether it exists or not, and its id is zero. Among all topics it is left
out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    InvalidTopicError,
    MillraceError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import METADATA
from millrace.wire.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    encode_metadata_response,
)
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo, offline_replicas, reachable
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.api import (
    NO_OPERATIONS,
    Api,
    Guard,
    InTurns,
    Reply,
    Request,
    Services,
    authorized_operations,
)
from millrace_broker.handlers.partitions import told_leader
from millrace_broker.handlers.responses import count_errors
from millrace_broker.handlers.topics import NEVER_STRICT, Mutations
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

FIRST_VERSION_WITH_LISTENER_ERRORS = 6
FIRST_VERSION_BY_ID = 12
TOPICS_AT_ONCE = 100  # of all topics: one or two milliseconds
NONE_HIDDEN: frozenset[str] = frozenset()
GUARD = Guard(ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.TOPIC)
ALL_GUARD = GUARD._replace(is_silent=True)
CLUSTER_GUARD = Guard(ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.CLUSTER)
CREATE_GUARD = Guard(ApiKey.METADATA, AclOperation.CREATE, ResourceType.CLUSTER, is_silent=True)
CREATE_TOPIC_GUARD = Guard(ApiKey.METADATA, AclOperation.CREATE, ResourceType.TOPIC)


class _Seen:
    """A metadata image as the client of one request may see it, by its listener and its version of the protocol.

    `hidden` are the topics that the request names and the client may not describe, whether they exist or not.
    """

    def __init__(self, image: MetadataImage, request: Request, hidden: frozenset[str] = NONE_HIDDEN) -> None:
        self.image = image
        self.session = request.session
        self.reached = reachable(image, request.session.listener)
        self.version = request.version
        self.hidden = hidden


def handle(services: Services, request: Request) -> Reply | InTurns:
    """Handles Metadata: creates missing topics where allowed; describes brokers and topics once a broker is known."""
    message = METADATA.decode_request(request.version, request.body)
    if not services.metadata.image.brokers:
        return later(_wait_and_respond(services, request.without_body(), message))
    return _respond_or_create(services, request, message)


async def _wait_and_respond(services: Services, request: Request, message: MetadataRequest) -> Parts:
    await services.metadata.until_brokers_are_known()
    response = _respond_or_create(services, request, message)
    if isinstance(response, InTurns):  # once in the life of a broker
        return _respond_all(services, _Seen(services.metadata.image, request), message)
    return await response if isinstance(response, asyncio.Future) else response


def _respond_or_create(
    services: Services, request: Request, message: MetadataRequest
) -> Parts | asyncio.Future[Parts] | InTurns:
    image = services.metadata.image
    if message.topics is None or (request.version == 0 and not message.topics):
        seen = _Seen(image, request)
        if len(image.topics) > TOPICS_AT_ONCE:
            return InTurns(lambda: _respond_all(services, seen, message))
        return _respond_all(services, seen, message)
    if request.version < FIRST_VERSION_BY_ID and any(
        _topic_id(one) or one.name is None for one in each(message.topics)
    ):
        return _invalid(services, request.version, message.topics)
    hidden = _hidden(services, request, _topics_asked(image, message.topics))
    names = [name for name in each(_names_asked(message.topics)) if name not in hidden]
    missing = [name for name in each(names) if name not in image.topics and name not in INTERNAL_TOPICS]
    creatable = services.config.auto_create_topics_enable and message.allow_auto_topic_creation
    if creatable and missing:
        return later(_create_and_respond(services, request.without_body(), message, missing, hidden))
    seen = _Seen(image, request, hidden)
    return _respond(services, seen, message, _described(seen, message.topics, {}))


def _respond_all(services: Services, seen: _Seen, message: MetadataRequest) -> Parts:
    topics = each(seen.image.topics.values())
    known = [_known(topic, seen) for topic in topics if ALL_GUARD.permits(services, seen.session, topic.name)]
    return _respond(services, seen, message, known)


def _topics_asked(image: MetadataImage, topics: Sequence[MetadataRequestTopic]) -> Iterable[str]:
    """Returns the names of the topics that a request names: by id if it has any id, else by name."""
    ids = set(filter(None, map(_topic_id, each(topics))))
    return [topic.name for topic in image.topics.values() if topic.topic_id in ids] if ids else _names_asked(topics)


def _hidden(services: Services, request: Request, names: Iterable[str]) -> frozenset[str]:
    """Returns those of the names whose topics the client may not describe, whether they exist or not."""
    if services.authorizer is None:
        return NONE_HIDDEN
    return frozenset(name for name in names if not GUARD.permits(services, request.session, name))


async def _create_and_respond(
    services: Services, request: Request, message: MetadataRequest, missing: Sequence[str], hidden: frozenset[str]
) -> Parts:
    mutations = Mutations(services, request, NEVER_STRICT)
    failures: dict[str, ErrorCode] = {}
    may_create_all = CREATE_GUARD.permits(services, request.session)
    for name in missing:
        try:
            if not may_create_all:
                CREATE_TOPIC_GUARD.check(services, request.session, name)
            await services.topics.create(name, charge=mutations.charge)
        except TopicExistsError:
            continue
        except MillraceError as error:
            failures[name] = error.code
    seen = _Seen(services.metadata.image, request, hidden)
    return _respond(services, seen, message, _described(seen, message.topics or (), failures))


def _respond(services: Services, seen: _Seen, message: MetadataRequest, topics: list[TopicMetadata]) -> Parts:
    return _encoded(services, seen.version, _cluster(services, seen, message, topics))


def _cluster(services: Services, seen: _Seen, message: MetadataRequest, topics: list[TopicMetadata]) -> ClusterMetadata:
    image = seen.image
    brokers = [BrokerMetadata(one, at.host, at.port, image.brokers[one].rack) for one, at in seen.reached.items()]
    if message.include_topic_authorized_operations:
        topics = [_with_operations(services, seen.session, topic) for topic in each(topics)]
    cluster = ClusterMetadata(image.cluster_id, image.controller_id, brokers, topics)
    if message.include_cluster_authorized_operations:
        cluster = cluster._replace(authorized_operations=cluster_operations(services, seen.session, CLUSTER_GUARD))
    return cluster


def _with_operations(services: Services, session: ClientSession, topic: TopicMetadata) -> TopicMetadata:
    """Returns a topic with the bit set of operations that the client may do on it; unchanged if it is hidden."""
    if topic.error_code == GUARD.error:
        return topic
    operations = authorized_operations(services, session, ResourceType.TOPIC, topic.name or "")
    return topic._replace(authorized_operations=operations)


def cluster_operations(services: Services, session: ClientSession, guard: Guard) -> int:
    """Returns the operations that the client may do on the cluster, as a bit set; 0 where the guard denies it."""
    if guard.permits(services, session):
        return authorized_operations(services, session, ResourceType.CLUSTER)
    return NO_OPERATIONS


def _invalid(services: Services, version: int, topics: Sequence[MetadataRequestTopic]) -> Parts:
    """Returns a response with INVALID_REQUEST for each topic: before v12 none may have an id or a null name."""
    refused = [
        TopicMetadata(ErrorCode.INVALID_REQUEST, one.name or "", _topic_id(one) or NO_TOPIC_ID, False, [])
        for one in topics
    ]
    return _encoded(services, version, ClusterMetadata(None, -1, [], refused))


def _encoded(services: Services, version: int, cluster: ClusterMetadata) -> Parts:
    _count_errors(services, cluster)
    return encode_metadata_response(version, cluster)


def _count_errors(services: Services, cluster: ClusterMetadata) -> None:
    count_errors(services, ApiKey.METADATA, (topic.error_code for topic in cluster.topics))
    partitions = (one.error_code for topic in cluster.topics for one in topic.partitions)
    count_errors(services, ApiKey.METADATA, partitions)


def _names_asked(topics: Sequence[MetadataRequestTopic]) -> list[str]:
    """Returns the distinct topic names of a request; none if the request names any topic by its id."""
    return (
        []
        if any(map(_topic_id, each(topics)))
        else list(dict.fromkeys(one.name for one in each(topics) if one.name is not None))
    )


def _described(
    seen: _Seen, topics: Sequence[MetadataRequestTopic], failures: Mapping[str, ErrorCode]
) -> list[TopicMetadata]:
    ids = list(dict.fromkeys(topic_id for topic_id in map(_topic_id, each(topics)) if topic_id))
    if ids:
        by_id = {topic.topic_id: topic for topic in seen.image.topics.values()}
        unknown_first = sorted(ids, key=by_id.__contains__)  # as in Kafka
        return [_described_by_id(seen, topic_id, by_id.get(topic_id)) for topic_id in each(unknown_first)]
    return [_described_by_name(seen, name, failures) for name in each(_names_asked(topics))]


def _described_by_id(seen: _Seen, topic_id: UUID, topic: TopicInfo | None) -> TopicMetadata:
    if topic is not None and topic.name in seen.hidden:
        return TopicMetadata(GUARD.error, None, topic_id, False, [])
    return TopicMetadata(UnknownTopicIdError.code, None, topic_id, False, []) if topic is None else _known(topic, seen)


def _described_by_name(seen: _Seen, name: str, failures: Mapping[str, ErrorCode]) -> TopicMetadata:
    if name in seen.hidden:
        return TopicMetadata(GUARD.error, name, NO_TOPIC_ID, False, [])
    topic = seen.image.topics.get(name)
    if topic is not None:
        return _known(topic, seen)
    return TopicMetadata(
        failures.get(name) or missing_topic_error(name), name, NO_TOPIC_ID, name in INTERNAL_TOPICS, []
    )


def _topic_id(asked: MetadataRequestTopic) -> UUID | None:
    return None if asked.topic_id == NO_TOPIC_ID else asked.topic_id


def missing_topic_error(name: str) -> ErrorCode:
    """Returns the error code for a topic that does not exist: that of an invalid name, or of an unknown topic."""
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return error.code
    return UnknownTopicError.code


def _known(topic: TopicInfo, seen: _Seen) -> TopicMetadata:
    partitions = [_partition(partition, seen) for partition in topic.partitions]
    return TopicMetadata(0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions)


def _partition(partition: PartitionInfo, seen: _Seen) -> PartitionMetadata:
    names_listeners = seen.version >= FIRST_VERSION_WITH_LISTENER_ERRORS
    leader, error_code = told_leader(partition, seen.image, seen.reached, names_listeners=names_listeners)
    return PartitionMetadata(
        partition.index,
        error_code,
        leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        offline_replicas(partition, seen.image),
    )


API = Api(
    ApiKey.METADATA,
    VersionRange(0, 13),
    handle,
    refuses="topics by id, or without a name, before v12 (INVALID_REQUEST)",
    guards=(GUARD, ALL_GUARD, CLUSTER_GUARD, CREATE_GUARD, CREATE_TOPIC_GUARD),
)
