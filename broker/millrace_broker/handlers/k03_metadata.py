"""Metadata, versions 0 to 13.

    v0   an empty list of topics means all     v1   null means all, none means none
    v4   a client may forbid auto-creation     v9   flexible
    v10  topic ids                             v12  topics asked for by id

A topic that is asked for by name, unknown, and may be created (auto.create.topics.enable) is created before
the answer, so the client need not ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    InvalidTopicError,
    MillraceError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import ZERO_UUID, Direction, decode, field
from millrace.wire.encoder import Parts
from millrace.wire.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    encode_metadata_response,
)
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.cluster.view import ClusterView, TopicInfo
from millrace_broker.groups.offsets_topic import OFFSETS_TOPIC
from millrace_broker.handlers.api import Api, Reply, Request, Services

INTERNAL_PREFIX = "__"


def handle(services: Services, request: Request) -> Reply:
    """Describe brokers and topics; create what may be created first."""
    message = decode(ApiKey.METADATA, request.version, Direction.REQUEST, request.body)
    view = services.metadata.view
    if message.topics is None or (request.version == 0 and not message.topics):
        return _answer(view, request.version, [_known(topic, view) for topic in view.topics.values()])
    creatable = services.config.auto_create_topics_enable and field(message, "allow_auto_topic_creation", True)
    missing = [topic.name for topic in message.topics if topic.name is not None and topic.name not in view.topics]
    if creatable and missing:
        return asyncio.ensure_future(_create_and_answer(services, request.version, message.topics, missing))
    return _answer(view, request.version, [_described(view, topic) for topic in message.topics])


async def _create_and_answer(services: Services, version: int, topics: Sequence[Any], missing: Sequence[str]) -> Parts:
    failures: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            await (services.groups.create_topic() if name == OFFSETS_TOPIC else services.topics.create(name))
        except TopicExistsError:
            continue
        except MillraceError as error:
            failures[name] = error.code
    view = services.metadata.view
    return _answer(view, version, [_described(view, topic, failures) for topic in topics])


def _answer(view: ClusterView, version: int, topics: list[TopicMetadata]) -> Parts:
    brokers = [BrokerMetadata(broker.id, broker.host, broker.port, broker.rack) for broker in view.brokers.values()]
    return encode_metadata_response(version, ClusterMetadata(view.cluster_id, view.controller_id, brokers, topics))


def _described(view: ClusterView, asked: Any, failures: dict[str, ErrorCode] | None = None) -> TopicMetadata:
    topic_id = field(asked, "topic_id", None) or ZERO_UUID
    if asked.name is None:
        return _described_by_id(view, topic_id)
    topic = view.topics.get(asked.name)
    if topic is not None:
        return _known(topic, view)
    code = (failures or {}).get(asked.name) or _missing(asked.name)
    return TopicMetadata(code, asked.name, topic_id, False, [])


def _described_by_id(view: ClusterView, topic_id: UUID) -> TopicMetadata:
    for topic in view.topics.values():
        if topic.topic_id == topic_id:
            return _known(topic, view)
    return TopicMetadata(UnknownTopicIdError.code, None, topic_id, False, [])


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return error.code
    return UnknownTopicError.code


def _known(topic: TopicInfo, view: ClusterView) -> TopicMetadata:
    partitions = [
        PartitionMetadata(
            partition.index,
            ErrorCode.NONE if partition.leader in view.brokers else ErrorCode.LEADER_NOT_AVAILABLE,
            partition.leader if partition.leader in view.brokers else -1,
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
        )
        for partition in topic.partitions
    ]
    return TopicMetadata(0, topic.name, topic.topic_id, topic.name.startswith(INTERNAL_PREFIX), partitions)


API = Api(ApiKey.METADATA, VersionRange(0, 13), handle)
