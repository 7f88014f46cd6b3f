"""Reads by offset, without state: the caller keeps the offsets, or has a group's kept (docs/clients.md).

An answer holds whole batches as they lie in the log, the first of which may begin below the asked offset, the last
of which may be cut short. Brokers return the first batch whole even above the limit (KIP-74); for one that does
not, the limit is doubled until the batch is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from millrace.client.answers import check, is_retriable
from millrace.client.client_settings import cluster_of
from millrace.client.cluster import Cluster
from millrace.client.connection import MAX_RESPONSE_BYTES, Connection, asking_for
from millrace.client.damaged_batches import (
    WAY_ON,
    AbsentOffsets,
    DamagedBatches,
    MissingOffsetsError,
    ReadOn,
    is_damage,
)
from millrace.client.fetched import (
    FetchedBatch,
    FetchedData,
    IsolationLevel,
    fetched_data,
    left_out,
    starts_with_cut_batch,
)
from millrace.client.groups import GroupOffset, Groups
from millrace.client.version_zero import commit_to_zookeeper, fetch_from_zookeeper, segment_starts
from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import (
    ClientError,
    CorruptRecordError,
    InvalidRequestError,
    MillraceError,
    OffsetOutOfRangeError,
    RecordError,
    RecordTooLargeError,
)
from millrace.records.batch import NO_OFFSET
from millrace.records.damage import Rules, has_unread_end
from millrace.records.intervals import Interval
from millrace.records.record import Record, read_records
from millrace.security.client_security import ClientSecurity
from millrace.wire.messages import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from millrace.wire.api_messages import Ask
    from millrace.wire.messages.fetch import FetchResponse, PartitionData

LATEST = -1
EARLIEST = -2
FETCH_MAX_BYTES = 4 << 20
TAIL_BYTES = 64 << 10  # more than lies between two entries of a broker's index
LARGEST_FETCH_BYTES = MAX_RESPONSE_BYTES // 2
CONSUMER = -1


class _Limits(NamedTuple):
    """The parameters of a `multifetch` that hold for all of its partitions."""

    max_wait_ms: int
    min_bytes: int
    isolation: IsolationLevel


class OffsetStorage(StrEnum):
    """Where a group's offsets are: with its coordinator, or in ZooKeeper; named as in `offsets.storage`."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


class EpochEnd(NamedTuple):
    """The largest leader epoch not above the one asked for, and the offset after it; both -1 if unknown."""

    leader_epoch: int
    end_offset: int


class FetchRequest(NamedTuple):
    """The partition, offset and size limit of one part of a `multifetch`."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = FETCH_MAX_BYTES


class SimpleConsumer:
    """Reads partitions from their leaders; takes a `Cluster`, or `HOST:PORT[,HOST:PORT…]` and its security.

    Or it takes properties as keywords, as `Producer` does: `SimpleConsumer(bootstrap_servers="127.0.0.1:9092")`.

    Every call may raise UnknownTopicError, BrokerError or BrokerUnreachableError after the cluster's retries. With
    `accept_missing_offsets` reading goes on, with a warning, past offsets that are missing without compaction, and
    past batches that can't be read (`damaged_batches`).
    """

    def __init__(
        self,
        cluster: Cluster | str | None = None,
        *,
        security: ClientSecurity | None = None,
        accept_missing_offsets: bool = False,
        **properties: Any,
    ) -> None:
        self._owns_cluster = not isinstance(cluster, Cluster)
        self._cluster = cluster_of(cluster, security, properties)
        self.accepts_missing_offsets = accept_missing_offsets
        self._absent = AbsentOffsets(lambda: nullcontext(self._cluster), log_end, serves, accept=accept_missing_offsets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, unless they are those of a given cluster."""
        if self._owns_cluster:
            self._cluster.close()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_MAX_BYTES,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        largest_bytes: int = LARGEST_FETCH_BYTES,
    ) -> FetchedData:
        """Returns batches from `offset` on, up to `max_bytes` but at least one if there is any.

        For a batch that is cut off, `max_bytes` is doubled up to `largest_bytes`. The broker holds the request up to
        `max_wait_ms` until it has `min_bytes`. Raises OffsetOutOfRangeError for an offset that the log does not have,
        RecordTooLargeError for a batch above `largest_bytes`.
        """
        limits = _Limits(max_wait_ms, min_bytes, isolation)
        while True:
            fetched = self._fetch(topic, partition, offset, max_bytes, limits)
            if not starts_with_cut_batch(fetched.records):
                return fetched
            if max_bytes >= largest_bytes:
                raise RecordTooLargeError(f"{topic}-{partition}: the batch at {offset} is above {max_bytes} bytes")
            max_bytes = min(2 * max_bytes, largest_bytes)

    def multifetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[FetchedData | MillraceError]:
        """Fetches many partitions with one request to each leader; each partition has its data or its error.

        A batch above the `max_bytes` of its partition is fetched by itself; so is a partition whose leader has moved.
        """
        limits = _Limits(max_wait_ms, min_bytes, isolation)
        found: dict[FetchRequest, FetchedData | MillraceError] = {}
        by_leader: dict[tuple[Connection, int], list[FetchRequest]] = {}
        named: Counter[tuple[str, int]] = Counter()  # a request names a partition once
        for request in dict.fromkeys(requests):
            try:
                connection = self._cluster.leader_connection(request.topic, request.partition)
                by_leader.setdefault((connection, named[request[:2]]), []).append(request)
                named[request[:2]] += 1
            except MillraceError as error:
                found[request] = error
        for (connection, _), wanted in by_leader.items():
            found |= self._multifetch_from(connection, wanted, limits)
        return [found[request] for request in requests]

    def messages(
        self,
        topic: str,
        partition: int,
        offset: int = EARLIEST,
        *,
        until_offset: int | None = None,
        max_bytes: int = FETCH_MAX_BYTES,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Yields the records from an offset up to the current end of the log; to rewind, call it again.

        `offset` may be EARLIEST or LATEST. Control batches and, with READ_COMMITTED, aborted records are passed over.
        Raises OffsetOutOfRangeError for an offset beyond the log, RecordError where a batch is damaged or missing.
        """
        end = self.latest(topic, partition, isolation) if until_offset is None else until_offset
        if offset < 0:
            offset = self._offset(topic, partition, offset, isolation)
        if until_offset is None and offset > end:
            self.fetch(topic, partition, offset, isolation=isolation)  # raises where the log has no such offset
        goes_on = False
        while offset < end:
            try:
                fetched = self.fetch(topic, partition, offset, max_bytes=max_bytes, isolation=isolation)
                for batch in self.batches(topic, partition, fetched, end, goes_on=goes_on):
                    yield from (record for record in batch.records() if offset <= record.offset < end)
                    goes_on, offset = True, batch.header.next_offset
                if not fetched.records:
                    self.reaches(topic, partition, fetched, end, isolation)
                    return
            except MillraceError as error:
                span = Interval(offset, end)
                found = self.read_on(topic, partition, span, error, isolation=isolation, goes_on=goes_on)
                yield from found.records
                goes_on, offset = True, found.next_offset

    def read_on(
        self,
        topic: str,
        partition: int,
        span: Interval,
        error: MillraceError,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        goes_on: bool = False,
    ) -> ReadOn:
        """Returns the readable records of a span at whose beginning reading failed with `error`, past damaged batches.

        Raises the error if it tells of no damage, or without `accept_missing_offsets`. `goes_on` says that a batch that
        was read before ends where the span begins.
        """
        if not is_damage(error):
            raise error
        if not self._absent.accept:
            raise error if isinstance(error, MissingOffsetsError) else CorruptRecordError(f"{error}; {WAY_ON}")

        def fetch(offset: int, max_bytes: int | None) -> FetchedData:
            limit = FETCH_MAX_BYTES if max_bytes is None else max_bytes
            return self.fetch(topic, partition, offset, max_bytes=limit, isolation=isolation)

        rules = Rules(read_records, lambda gap: self._absent.check(topic, partition, gap))
        return DamagedBatches(f"{topic}-{partition}", fetch, rules).read_on(span, error, goes_on=goes_on)

    def batches(
        self,
        topic: str,
        partition: int,
        fetched: FetchedData,
        until_offset: int = MAX_LONG,
        *,
        goes_on: bool = False,
    ) -> Iterator[FetchedBatch]:
        """Yields the batches of a fetch; raises MissingOffsetsError for lost offsets before one, below `until_offset`.

        `goes_on` says that a batch that was read before ends where this fetch begins.
        """
        found = fetched.batches(goes_on=goes_on)
        for batch in list(found) if self._absent.accept else found:  # none of those before one that overlaps is right
            if batch.absent is not None and batch.absent.from_offset < until_offset:
                self._absent.check(topic, partition, batch.absent, is_inside=batch.lacks_records)
            yield batch

    def reaches(
        self, topic: str, partition: int, fetched: FetchedData, until_offset: int, isolation: IsolationLevel
    ) -> bool:
        """Returns whether an empty fetch means that compaction left no record from its offset to `until_offset`.

        False if the log ends before `until_offset`; raises MissingOffsetsError if the topic is not compacted.
        """
        if fetched.records or fetched.end_offset(isolation) < until_offset:
            return False
        self._absent.check(topic, partition, Interval(fetched.asked_offset, until_offset))
        return True

    def get_offsets_before(self, topic: str, partition: int, time: int, max_num_offsets: int) -> list[int]:
        """Returns first offsets of segments last written to before or at `time` in ms, newest first.

        There are `max_num_offsets` at most. For LATEST the log's end comes first, for EARLIEST there is only its
        beginning; a time before 1970 gives none. Apache Kafka from 4.0 on tells nothing of segments; from it come the
        first offset whose record is not older (without one, and for LATEST, the log's end) and the log's beginning.
        """
        if not 0 < max_num_offsets <= MAX_INT:
            raise InvalidRequestError(f"max_num_offsets={max_num_offsets}: 1 to {MAX_INT} can be asked for")
        if time < EARLIEST:
            return []
        starts = segment_starts(self._cluster, topic, partition, time, max_num_offsets)
        return self._two_offsets(topic, partition, time)[:max_num_offsets] if starts is None else starts

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        storage: OffsetStorage | str = OffsetStorage.KAFKA,
    ) -> None:
        """Commits offsets by (topic, partition) for a group that has no members.

        Raises the BrokerError of a partition that can't be committed, after all others were; raises
        UnsupportedVersionError for `storage` in ZooKeeper where the brokers can't keep offsets there.
        """
        for (topic, partition), offset in offsets.items():
            if offset < 0:
                raise InvalidRequestError(f"{offset} is no offset of {topic}-{partition}")
        if OffsetStorage(storage) is OffsetStorage.ZOOKEEPER:
            commit_to_zookeeper(self._cluster, group_id, offsets)
        else:
            Groups(self._cluster).commit(group_id, {key: GroupOffset(offset, "") for key, offset in offsets.items()})

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]],
        *,
        storage: OffsetStorage | str = OffsetStorage.KAFKA,
    ) -> dict[tuple[str, int], int | None]:
        """Returns a group's committed offsets by partition, None where there is none; raises BrokerError.

        Raises UnsupportedVersionError for `storage` in ZooKeeper where the brokers can't keep offsets there.
        """
        wanted = list(partitions)
        if OffsetStorage(storage) is OffsetStorage.ZOOKEEPER:
            found = fetch_from_zookeeper(self._cluster, group_id, wanted)
        else:
            found = {key: one.offset for key, one in Groups(self._cluster).offsets(group_id, wanted).items()}
        return {key: offset if (offset := found.get(key, NO_OFFSET)) != NO_OFFSET else None for key in wanted}

    def earliest(self, topic: str, partition: int) -> int:
        """Returns the log start offset."""
        return self._offset(topic, partition, EARLIEST)

    def latest(self, topic: str, partition: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        """Returns the offset of the next readable record: the high watermark, or the last stable offset."""
        return self._offset(topic, partition, LATEST, isolation)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Returns the first offset whose record is not older than the time; None where there is none.

        The time may lie before 1970.
        """
        offset = self._offset(topic, partition, max(timestamp_ms, 0))  # the protocol has keywords below 0, not times
        return None if offset == NO_OFFSET else offset

    def epoch_end(self, topic: str, partition: int, leader_epoch: int) -> EpochEnd:
        """Returns how far the log goes in a leader epoch (KIP-101).

        If its end is below an offset that was read of the epoch, the log has been truncated.
        """
        ask = OFFSET_FOR_LEADER_EPOCH.ask(
            {
                "replica_id": CONSUMER,
                "topics": [{"topic": topic, "partitions": [{"partition": partition, "leader_epoch": leader_epoch}]}],
            }
        )
        subject = f"leader epochs of {topic}-{partition}"
        action = asking_for(ask, lambda answer: answer.topics[0].partitions[0], subject)
        answer = self._cluster.on_leader(topic, partition, action)
        return EpochEnd(int(answer.leader_epoch), int(answer.end_offset))

    def _two_offsets(self, topic: str, partition: int, time: int) -> list[int]:
        """Returns the offset for `time` and the log start offset, where brokers have no ListOffsets v0."""
        earliest = self.earliest(topic, partition)
        if time == EARLIEST:
            return [earliest]
        found = None if time == LATEST else self.offset_for_time(topic, partition, time)
        newest = self.latest(topic, partition) if found is None else found
        return list(dict.fromkeys((newest, earliest)))

    def _multifetch_from(
        self, connection: Connection, requests: Sequence[FetchRequest], limits: _Limits
    ) -> dict[FetchRequest, FetchedData | MillraceError]:
        max_bytes = min(sum(one.max_bytes for one in requests), LARGEST_FETCH_BYTES)
        ask = _fetching(requests, limits, max_bytes)
        try:
            answer = connection.request(*ask, wait_s=limits.max_wait_ms / 1000)
            check(answer.error_code, "multifetch")
        except MillraceError as error:
            return {request: self._fetched_alone(request, error, limits) for request in requests}
        answered = {(topic.topic, one.partition_index): one for topic in answer.responses for one in topic.partitions}
        missing = left_out(answer, "multifetch")
        return {one: self._fetched_of(one, answered.get(one[:2], missing), limits) for one in requests}

    def _fetched_of(
        self, request: FetchRequest, partition: PartitionData | ClientError, limits: _Limits
    ) -> FetchedData | MillraceError:
        subject = f"fetch of {request.topic}-{request.partition} at offset {request.offset}"
        if isinstance(partition, ClientError):
            return self._fetched_alone(request, partition, limits)
        try:
            fetched = fetched_data(partition, subject, request.offset)
        except MillraceError as error:
            return self._fetched_alone(request, error, limits)
        is_left_out = not fetched.records and request.offset < fetched.end_offset(limits.isolation)
        if is_left_out or starts_with_cut_batch(fetched.records):
            return self._fetched_alone(request, RecordTooLargeError(subject), limits, is_cut=True)
        return fetched

    def _fetched_alone(
        self, request: FetchRequest, error: MillraceError, limits: _Limits, *, is_cut: bool = False
    ) -> FetchedData | MillraceError:
        """Returns the data or error of a new fetch of one partition, after `error`; that error if no retry can help.

        `is_cut` says that the partition's first batch was above `max_bytes`: it is fetched whatever the error.
        """
        if not is_cut and not is_retriable(error):
            return error
        try:
            return self.fetch(*request[:3], max_bytes=request.max_bytes, isolation=limits.isolation)
        except MillraceError as again:
            return again

    def _fetch(self, topic: str, partition: int, offset: int, max_bytes: int, limits: _Limits) -> FetchedData:
        ask = _fetching([FetchRequest(topic, partition, offset, max_bytes)], limits, max_bytes)
        subject = f"fetch of {topic}-{partition} at offset {offset}"

        def action(connection: Connection) -> FetchedData | CorruptRecordError:
            answer = connection.request(*ask, wait_s=limits.max_wait_ms / 1000)
            check(answer.error_code, subject)
            if not answer.responses:
                raise left_out(answer, subject)
            try:
                return fetched_data(answer.responses[0].partitions[0], subject, offset)
            except CorruptRecordError as error:  # of the log, which stays so: it is not asked again
                return error

        fetched = self._cluster.on_leader(topic, partition, action)
        if isinstance(fetched, CorruptRecordError):
            raise fetched
        return fetched

    def _offset(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> int:
        ask = LIST_OFFSETS.ask(
            {
                "replica_id": CONSUMER,
                "isolation_level": isolation,
                "topics": [
                    {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp_ms}]},
                ],
            }
        )
        action = asking_for(ask, lambda answer: answer.topics[0].partitions[0], f"offsets of {topic}-{partition}")
        return int(self._cluster.on_leader(topic, partition, action).offset)


def _fetching(requests: Sequence[FetchRequest], limits: _Limits, max_bytes: int) -> Ask[FetchResponse]:
    return FETCH.ask(
        {
            "replica_id": CONSUMER,
            "max_wait": limits.max_wait_ms,
            "min_bytes": limits.min_bytes,
            "isolation_level": limits.isolation,
            "max_bytes": max_bytes,
            "topics": [
                {
                    "topic": one.topic,
                    "partitions": [
                        {"partition": one.partition, "fetch_offset": one.offset, "partition_max_bytes": one.max_bytes}
                    ],
                }
                for one in requests
            ],
            "forgotten_topics_data": (),
        }
    )


def log_end(cluster: Cluster, topic: str, partition: int) -> int:
    """Returns a partition's high watermark."""
    return SimpleConsumer(cluster).latest(topic, partition)


def serves(cluster: Cluster, topic: str, partition: int, interval: Interval) -> bool:
    """Returns whether the leader has, or can't read, records in an interval that a reader found to be missing.

    It fetches at the interval's last offset, and looks for unread bytes behind the batch before the interval.
    """
    consumer, before = SimpleConsumer(cluster), interval.from_offset - 1
    try:
        fetched = consumer.fetch(topic, partition, interval.until_offset - 1, max_bytes=1)
        batch = next(fetched.batches(), None)
        if batch is None or (batch.is_passed_over and batch.header.base_offset < interval.until_offset):
            return True
        if any(interval.from_offset <= record.offset < interval.until_offset for record in batch.records()):
            return True
        if before < fetched.log_start_offset:
            return False
        return has_unread_end(consumer.fetch(topic, partition, before, max_bytes=TAIL_BYTES).records, TAIL_BYTES)
    except (RecordError, OffsetOutOfRangeError):
        return True
