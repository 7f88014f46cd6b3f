"""Fetch, versions 4 to 18 (spec C2).

    v4     isolation level       v5   log start offset     v7   fetch sessions (KIP-227)
    v9     leader epoch fencing  v11  rack                 v12  flexible
    v13    topics by id          v15  replica state in a tagged field; v16-v18 tagged fields that clients may ignore

Incremental sessions are not kept: the answer's session id is 0, upon which clients send full requests; a
request inside a session is told that there is none. An answer below min bytes waits in the purgatory for
max wait, unless a partition failed. The first batch is returned whole even above the byte limits (KIP-74).
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError, UnknownTopicIdError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import ZERO_UUID, Direction, decode, field, milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_SESSION = 0


class _Topic(NamedTuple):
    """A topic of the request under both its names; the name is empty for an unknown id."""

    name: str
    topic_id: UUID
    partitions: tuple[Any, ...]


class _Read(NamedTuple):
    """One pass over all partitions."""

    topics: list[TopicFetched]
    size_bytes: int
    failed: bool


def handle(services: Services, request: Request) -> Reply:
    """Read what there is, or wait for more."""
    message = decode(ApiKey.FETCH, request.version, Direction.REQUEST, request.body)
    if field(message, "session_id", NO_SESSION) != NO_SESSION:
        return encode_fetch_response(request.version, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(services, request.version, message)
    read = fetch.read()
    wait_ms = milliseconds(message.max_wait)
    if read.failed or read.size_bytes >= message.min_bytes or wait_ms <= 0 or not fetch.topics:
        return encode_fetch_response(request.version, read.topics)
    return fetch.wait(read.size_bytes, wait_ms)


class _Fetch:
    """One fetch request, which may wait in the purgatory."""

    def __init__(self, services: Services, version: int, message: Any) -> None:
        self._services = services
        self._version = version
        self._max_bytes = min(message.max_bytes, services.config.fetch_max_bytes)
        self._min_bytes = message.min_bytes
        self.topics = [self._topic(topic) for topic in message.topics]
        self._keys = [TopicPartition(topic.name, one.partition) for topic in self.topics for one in topic.partitions]
        self._wanted_log_bytes = 0
        self._answer: asyncio.Future[Parts]

    def read(self) -> _Read:
        """Read every partition in the order of the request, until max bytes are reached."""
        topics: list[TopicFetched] = []
        size_bytes, failed = 0, False
        for topic in self.topics:
            fetched = []
            for wanted in topic.partitions:
                partition = self._read_partition(topic, wanted, size_bytes)
                size_bytes += len(partition.records)
                failed = failed or bool(partition.error_code)
                fetched.append(partition)
            topics.append(TopicFetched(topic.name, topic.topic_id, fetched))
        return _Read(topics, size_bytes, failed)

    def wait(self, size_bytes: int, wait_ms: int) -> asyncio.Future[Parts]:
        """Be held until enough has been appended; a client that goes away cancels the future."""
        purgatory = self._services.replicas.purgatory
        self._wanted_log_bytes = self._log_bytes() + self._min_bytes - size_bytes
        self._answer = asyncio.get_running_loop().create_future()
        self._answer.add_done_callback(lambda _: purgatory.release(self))
        purgatory.hold(self, self._keys, wait_ms)
        return self._answer

    def try_complete(self) -> bool:
        """Complete once the logs have grown by what was missing, or one of them is gone."""
        log_bytes = self._log_bytes()
        if 0 <= log_bytes < self._wanted_log_bytes:
            return False
        self.expire()
        return True

    def expire(self) -> None:
        """Answer with what there is now."""
        if not self._answer.done():
            self._answer.set_result(encode_fetch_response(self._version, self.read().topics))

    def _topic(self, topic: Any) -> _Topic:
        if self._version < FIRST_VERSION_WITH_TOPIC_IDS:
            return _Topic(topic.topic, ZERO_UUID, topic.partitions)
        topic_id = topic.topic_id or ZERO_UUID
        return _Topic(self._services.metadata.topic_name(topic_id) or "", topic_id, topic.partitions)

    def _log_bytes(self) -> int:
        """Bytes in all logs of the request; -1 if one is not here any more."""
        partitions = [self._services.replicas.partitions.get(key) for key in self._keys]
        if None in partitions:
            return -1
        return sum(partition.log.size_bytes for partition in partitions if partition is not None)

    def _read_partition(self, topic: _Topic, wanted: Any, size_bytes: int) -> PartitionFetched:
        partition: Partition | None = None
        try:
            if not topic.name:
                raise UnknownTopicIdError(f"no topic has id {topic.topic_id}")
            partition = self._services.replicas.partition(TopicPartition(topic.name, wanted.partition))
            partition.check_leader_epoch(field(wanted, "current_leader_epoch", -1))
            limit = min(wanted.partition_max_bytes, self._max_bytes - size_bytes)
            records = partition.read(wanted.fetch_offset, max(limit, 0), at_least_one=size_bytes == 0)
        except MillraceError as error:
            return _failed(wanted.partition, error.code, partition)
        return PartitionFetched(
            wanted.partition, 0, partition.high_watermark, partition.last_stable_offset,
            partition.log.log_start_offset, records,
        )  # fmt: skip


def _failed(index: int, code: ErrorCode, partition: Partition | None) -> PartitionFetched:
    if partition is None:
        return PartitionFetched(index, code, -1, -1, -1, b"")
    return PartitionFetched(
        index, code, partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset, b""
    )


API = Api(ApiKey.FETCH, VersionRange(4, 18), handle)
