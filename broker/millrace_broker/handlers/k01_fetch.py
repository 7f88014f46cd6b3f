"""Fetch, versions 0 to 18.

    v0-v1  messages of format v0     v2-v3  messages of format v1; v3 adds max bytes
    v4     batches, isolation level, aborted transactions
    v5     log start offset          v7     fetch sessions (KIP-227)
    v9     leader epoch fencing      v11    rack (there is only one replica to read from)
    v12    flexible, diverging epochs
    v13    topics by id              v15    replica state in a tagged field
    v16    the answer names the leader (KIP-951)                         v17, v18  tagged fields of followers

An answer below min bytes waits in the purgatory for max wait, unless a read failed or diverged. Partitions that the
cluster does not have stand behind the others in the answer, with their error, and do not end the wait for the others.
From v3 on the first batch is returned whole even above the byte limits (KIP-74).
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    MillraceError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Part, Parts
from millrace.wire.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from millrace.wire.fetch_request import READ_COMMITTED, PartitionKey, Wanted, decode_fetch_request
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.partitions import endpoints, is_known, leader_hint, led_partition
from millrace_broker.replication.down_conversion import (
    FIRST_VERSION_OF_BATCHES,
    FIRST_VERSION_WITH_WHOLE_BATCH,
    converted_soon,
    without_records,
)
from millrace_broker.replication.fetch_sessions import Fetched, FetchSessionError
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
FIRST_VERSION_WITH_ZSTD = 10
LAST_VERSION_WITHOUT_STORAGE_ERROR = 5
TELL_THE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
ZSTD = "zstd"


class _Read(NamedTuple):
    """One pass over all partitions."""

    fetched: Fetched
    size_bytes: int
    is_urgent: bool


class _Seen(NamedTuple):
    """The state of a partition when it was looked at last."""

    appended_bytes: int
    visible_end: int
    is_held_back: bool  # by an open transaction


class _Target(NamedTuple):
    """A partition of the request that the cluster has."""

    key: PartitionKey
    topic_partition: TopicPartition
    wanted: Wanted


def handle(services: Services, request: Request) -> Reply:
    """Reads the records that there are, or waits for more."""
    fetch = _Fetch(services, request)
    read = fetch.read()
    if read.is_urgent or read.size_bytes >= fetch.min_bytes or fetch.max_wait_ms <= 0 or not fetch.targets:
        return fetch.answer(read)
    return fetch.wait(read.size_bytes)


class _Fetch:
    """A Fetch request, which may wait in the purgatory."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._version = request.version
        message = decode_fetch_request(request.version, request.body)
        self._context = services.fetch_sessions.context(
            message.session_id,
            message.session_epoch,
            message.wanted,
            message.forgotten,
            uses_topic_ids=request.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            now_ms=self._now_ms(),
        )
        self._committed = message.isolation_level == READ_COMMITTED
        self._max_bytes = min(message.max_bytes, services.config.fetch_max_bytes)
        self.min_bytes = min(message.min_bytes, self._max_bytes)
        self.max_wait_ms = message.max_wait_ms
        self.targets: list[_Target] = []
        self._unknown: list[tuple[PartitionKey, PartitionFetched]] = []
        for key, wanted in self._context.wanted.items():
            self._resolve(key, wanted)
        self._reply: asyncio.Future[Parts]
        self._missing_bytes = 0
        self._sees_more = False
        self._seen: dict[TopicPartition, _Seen] = {}

    def read(self) -> _Read:
        """Reads every partition in the order of the request, until max bytes are reached."""
        fetched: list[tuple[PartitionKey, PartitionFetched]] = []
        size_bytes, is_urgent = 0, isinstance(self._context, FetchSessionError)
        for target in self.targets:
            one = self._read_target(target, size_bytes)
            size_bytes += len(one.records)
            is_urgent = is_urgent or bool(one.error_code) or one.diverging_epoch is not None
            fetched.append((target.key, one))
        return _Read(fetched + self._unknown, size_bytes, is_urgent)

    def answer(self, read: _Read) -> Parts | asyncio.Future[Parts]:
        """Returns the message's parts; a worker converts the records for a client that knows only older formats."""
        answer = self._context.answer(read.fetched, self._now_ms())
        if self._version < FIRST_VERSION_WITH_ZSTD:
            fetched = [(key, self._for_old_client(key, one)) for key, one in answer.fetched]
            if self._version < FIRST_VERSION_OF_BATCHES and read.size_bytes:
                return asyncio.ensure_future(self._convert(fetched))
            return self._encode(fetched, answer.error_code, answer.session_id)
        return self._encode(answer.fetched, answer.error_code, answer.session_id)

    def wait(self, size_bytes: int) -> asyncio.Future[Parts]:
        """Waits in the purgatory until enough has been appended; a client that disconnects cancels the future."""
        purgatory = self._services.replicas.purgatory
        self._missing_bytes = self.min_bytes - size_bytes
        for target in self.targets:
            partition = self._services.replicas.partitions.get(target.topic_partition)
            if partition is not None:
                self._seen[target.topic_partition] = self._look_at(partition)
        self._reply = asyncio.get_running_loop().create_future()
        self._reply.add_done_callback(lambda _: purgatory.release(self))
        purgatory.hold(self, (target.topic_partition for target in self.targets), self.max_wait_ms)
        return self._reply

    def try_complete(self, key: TopicPartition) -> bool:
        """Completes once the logs have grown by the missing bytes and the reader may see more, or a partition is gone.

        An open transaction keeps a `read_committed` reader waiting however much is written. The transaction's end
        releases the reader, as the records that become visible then were written before it began to wait.
        """
        partition, seen = self._services.replicas.partitions.get(key), self._seen.get(key)
        if partition is not None and seen is not None:
            self._missing_bytes -= partition.appended_bytes - seen.appended_bytes
            now = self._seen[key] = self._look_at(partition)
            sees_more_here = now.visible_end > seen.visible_end
            self._sees_more = self._sees_more or sees_more_here
            is_released = sees_more_here and seen.is_held_back
            if not is_released and (self._missing_bytes > 0 or (self._committed and not self._sees_more)):
                return False
        self.expire()
        return True

    def _look_at(self, partition: Partition) -> _Seen:
        visible_end = partition.visible_end(committed=self._committed)
        return _Seen(partition.appended_bytes, visible_end, visible_end < partition.high_watermark)

    def expire(self) -> None:
        """Sends the records that there are now."""
        if self._reply.done():
            return
        reply = self.answer(self.read())
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(self._hand_on)
        else:
            self._reply.set_result(reply)

    def _hand_on(self, reply: asyncio.Future[Parts]) -> None:
        if self._reply.done() or reply.cancelled():
            return
        error = reply.exception()
        if error is None:
            self._reply.set_result(reply.result())
        else:
            self._reply.set_exception(error)

    def _resolve(self, key: PartitionKey, wanted: Wanted) -> None:
        """Finds the partition that the client names by the topic's name or id."""
        topic, index = key
        name = topic if isinstance(topic, str) else self._services.metadata.topic_name(topic) or ""
        topic_partition = TopicPartition(name, index)
        if topic_partition in self._services.replicas.partitions or is_known(self._services, topic_partition):
            self.targets.append(_Target(key, topic_partition, wanted))
        else:
            is_unknown_id = not name and not isinstance(topic, str)
            code = UnknownTopicIdError.code if is_unknown_id else UnknownTopicError.code
            self._unknown.append((key, _failed(index, code)))

    def _read_target(self, target: _Target, size_bytes: int) -> PartitionFetched:
        (topic, index), wanted = target.key, target.wanted
        try:
            partition = led_partition(self._services, target.topic_partition)
            if topic != partition.topic_id and not isinstance(topic, str):
                raise InconsistentTopicIdError(f"{target.topic_partition} has the topic id {partition.topic_id}")
            partition.check_leader_epoch(wanted.current_leader_epoch)
            diverging = None
            if wanted.last_fetched_epoch != NO_LEADER_EPOCH:
                diverging = partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
            if diverging is not None:
                return self._fetched(index, partition, b"", None, diverging)
            return self._read_partition(partition, index, wanted, size_bytes)
        except MillraceError as error:
            tells_leader = self._version >= FIRST_VERSION_WITH_LEADERS and error.code in TELL_THE_LEADER
            failed = _failed(index, error.code)._replace(aborted=None)
            if not tells_leader:
                return failed
            return failed._replace(current_leader=leader_hint(self._services, target.topic_partition))

    def _read_partition(self, partition: Partition, index: int, wanted: Wanted, size_bytes: int) -> PartitionFetched:
        limit = max(min(wanted.max_bytes, self._max_bytes - size_bytes), 0)
        at_least_one = size_bytes == 0 and self._version >= FIRST_VERSION_WITH_WHOLE_BATCH
        records, aborted = partition.read(
            wanted.fetch_offset, limit, at_least_one=at_least_one, committed=self._committed
        )
        return self._fetched(index, partition, records, aborted, None)

    @staticmethod
    def _fetched(
        index: int,
        partition: Partition,
        records: Part,
        aborted: list[tuple[int, int]] | None,
        diverging: tuple[int, int] | None,
    ) -> PartitionFetched:
        return PartitionFetched(
            index, 0, partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset, records,
            aborted, diverging,
        )  # fmt: skip

    def _for_old_client(self, key: PartitionKey, fetched: PartitionFetched) -> PartitionFetched:
        """Returns what a client below v10 may see of a partition, whose records or error may be too new for it."""
        if fetched.error_code:
            hides = fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            if hides and self._version <= LAST_VERSION_WITHOUT_STORAGE_ERROR:
                return fetched._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return fetched
        partition = self._services.replicas.partitions.get(TopicPartition(str(key.topic), key.partition))
        if partition is None:
            return fetched
        config = partition.log.config
        if config.compression_type == ZSTD:
            return without_records(fetched, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self._version < FIRST_VERSION_OF_BATCHES and not config.message_downconversion_enable:
            return without_records(fetched, ErrorCode.UNSUPPORTED_VERSION)
        return fetched

    async def _convert(self, fetched: Fetched) -> Parts:
        wanted = self._context.wanted
        return self._encode(await converted_soon(self._version, fetched, wanted, self._max_bytes), 0, 0)

    def _encode(self, fetched: Fetched, error_code: int, session_id: int) -> Parts:
        topics = [
            TopicFetched(
                topic if isinstance(topic, str) else "",
                topic if isinstance(topic, UUID) else NO_TOPIC_ID,
                [one for _, one in group],
            )
            for topic, group in groupby(fetched, key=_topic_of)
        ]
        failed = [one for _, one in fetched if one.error_code]
        if failed or error_code:
            count_errors(self._services, ApiKey.FETCH, (error_code, *(one.error_code for one in failed)))
        hints = [one.current_leader for one in failed if one.current_leader is not None]
        nodes = endpoints(self._services, hints) if hints else ()
        return encode_fetch_response(self._version, topics, error_code, session_id=session_id, endpoints=nodes)

    def _now_ms(self) -> int:
        return self._services.clock.monotonic_ms()


def _topic_of(pair: tuple[PartitionKey, PartitionFetched]) -> str | UUID:
    return pair[0].topic


def _failed(index: int, code: int) -> PartitionFetched:
    return PartitionFetched(index, code, -1, -1, -1, b"", aborted=())


API = Api(
    ApiKey.FETCH,
    VersionRange(0, 18),
    handle,
    refuses="a topic with message.downconversion.enable=false before v4 (UNSUPPORTED_VERSION); "
    "zstd before v4, and in a topic with compression.type=zstd before v10 (UNSUPPORTED_COMPRESSION_TYPE); "
    "before v4 a batch of more than 64 MiB once decompressed (MESSAGE_TOO_LARGE)",
)
