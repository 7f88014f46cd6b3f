"""The one door from readers in Spark to the brokers: what a plan asks of topics and logs, and what a task fetches.

Of a topic with transactions, a committed read ends at the last stable offset (KIP-98). The only other way from Spark to
a broker is Spark's own Kafka connector, which connects in the JVM (`warehouse.load.jobs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from millrace.client import Cluster, SimpleConsumer
from millrace.client.damaged_batches import AbsentOffsets, DamagedBatches, is_compacted
from millrace.client.fetched import FetchedBatch, FetchedData, IsolationLevel
from millrace.client.log_offsets import LogOffsets as LogOffsets  # noqa: PLC0414  part of this door
from millrace.client.log_offsets import read_log_offsets
from millrace.client.metadata import ClusterMetadata
from millrace.client.simple_consumer import log_end, serves
from millrace.errors import MillraceError
from millrace.records.batch import walk
from millrace.records.damage import Rules
from millrace.records.intervals import Interval
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.choices import Isolation

FETCH_MAX_BYTES = 8 << 20
FETCH_MAX_WAIT_MS = 500
SAMPLE_BYTES = 64 << 10
NOT_TOLD = SecuritySource()


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic, the cluster that has it, and the isolation and security with which it is read."""

    bootstrap: str
    topic: str
    isolation: Isolation = Isolation.READ_COMMITTED
    security: SecuritySource = NOT_TOLD


class TopicDescription(NamedTuple):
    """A topic's id and partitions, and their leaders' epochs; -1 where the cluster tells none (before Kafka 2.1).

    Where it gives no ids (before Kafka 2.8), the topic's name stands for the id.
    """

    topic_id: str
    partitions: tuple[int, ...]
    leader_epochs: Mapping[int, int] = MappingProxyType({})


class Brokers:
    """A client of a cluster, which connects at its first call.

    It can be pickled to Spark's workers, where it connects again and reads the files of its security settings there.

    Raises:
        UnknownTopicError: The cluster has no such topic.
        ClientError: The brokers can't answer.
    """

    def __init__(self, bootstrap: str, isolation: Isolation, security: SecuritySource = NOT_TOLD) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._isolation = IsolationLevel[isolation.name]
        self._cluster: Cluster | None = None
        self._absent: AbsentOffsets | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the next call opens them again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def metadata(self, topics: Sequence[str] | None) -> ClusterMetadata:
        """Returns the metadata of these topics, or of all where `topics` is None."""
        return self._connected().metadata(topics)

    def describe(self, topic: str) -> TopicDescription:
        """Returns a topic's id, partitions and leader epochs; raises UnknownTopicError where there is no such topic."""
        metadata = self.metadata([topic]).topic(topic)
        leader_epochs = {partition: found.leader_epoch for partition, found in metadata.partitions.items()}
        return TopicDescription(str(metadata.topic_id or topic), tuple(sorted(leader_epochs)), leader_epochs)

    def log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Returns where each partition's log starts and ends; the end is the last stable offset for committed reads.

        All partitions are asked for together; one that gets no answer is asked for alone, as often as retries last.
        """
        found = read_log_offsets(self._connected(), [(topic, partition) for partition in partitions], self._isolation)
        return {
            partition: offsets if isinstance(offsets, LogOffsets) else self._log_offsets_alone(topic, partition)
            for (_, partition), offsets in found.items()
        }

    def newest_log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Returns where logs start and end at the newest leaders that any broker knows; `epoch_ends` asks these then.

        A broker that the others can't reach may take itself for a leader that it is no longer. Raises ClientError where
        one of the brokers can't answer, as it could know of a newer leader.
        """
        cluster = self._connected()
        metadata = cluster.newest_metadata([topic])
        wanted = [(topic, partition) for partition in partitions]
        found = read_log_offsets(cluster, wanted, self._isolation, metadata=metadata)
        return {partition: _offsets_or_raise(offsets) for (_, partition), offsets in found.items()}

    def epoch_ends(self, topic: str, leader_epochs: Mapping[int, int]) -> dict[int, int]:
        """Returns where each partition's leader epoch ends in its log, for the epochs that the brokers know."""
        consumer = self._consumer()
        ends = {one: consumer.epoch_end(topic, one, epoch).end_offset for one, epoch in leader_epochs.items()}
        return {partition: end_offset for partition, end_offset in ends.items() if end_offset >= 0}

    def is_compacted(self, topic: str) -> bool:
        """Returns whether the topic's present cleanup policy compacts its log."""
        return is_compacted(self._connected(), topic)

    def serves(self, topic: str, partition: int, from_offset: int, until_offset: int) -> bool:
        """Returns whether the leader has batches, or fails to read, at offsets where a reader found no records."""
        return serves(self._connected(), topic, partition, Interval(from_offset, until_offset))

    def check_gap(self, topic: str, partition: int, gap: Interval) -> None:
        """Raises MissingOffsetsError for offsets that compaction can't have removed, or that the log does have."""
        if self._absent is None:
            self._absent = AbsentOffsets(lambda: nullcontext(self._connected()), log_end, serves, accept=True)
        self._absent.check(topic, partition, gap)

    def damaged_batches(self, topic: str, partition: int, rules: Rules) -> DamagedBatches:
        """Returns a reader that finds the damaged batches of a partition, by `rules`, and goes on behind them."""

        def fetch(offset: int, max_bytes: int | None) -> FetchedData:
            limit = FETCH_MAX_BYTES if max_bytes is None else max_bytes
            return self._consumer().fetch(topic, partition, offset, max_bytes=limit, isolation=self._isolation)

        return DamagedBatches(f"{topic}-{partition}", fetch, rules)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Returns the first offset with a timestamp of `timestamp_ms` or later; None where there is none."""
        return self._consumer().offset_for_time(topic, partition, timestamp_ms)

    def bytes_per_offset(self, topic: str, partition: int, offset: int) -> float:
        """Returns the bytes per offset in the log, by the first batches from `offset` on; 1 where there are none."""
        records = self._consumer().fetch(topic, partition, offset, max_bytes=SAMPLE_BYTES).records
        sizes = [(header.size_bytes, header.next_offset - header.base_offset) for _, header in walk(records)]
        return sum(size for size, _ in sizes) / max(sum(offsets for _, offsets in sizes), 1) if sizes else 1.0

    def fetch(self, topic: str, partition: int, offset: int) -> FetchedData:
        """Fetches batches from an offset on, at most FETCH_MAX_BYTES; waits at most FETCH_MAX_WAIT_MS for the first."""
        return self._consumer().fetch(
            topic,
            partition,
            offset,
            max_bytes=FETCH_MAX_BYTES,
            max_wait_ms=FETCH_MAX_WAIT_MS,
            isolation=self._isolation,
        )

    def batches(self, topic: str, partition: int, offset: int, *, accept_missing_offsets: bool) -> list[FetchedBatch]:
        """Fetches and parses batches from `offset` on; raises MissingOffsetsError for offsets that a log has lost."""
        consumer = SimpleConsumer(self._connected(), accept_missing_offsets=accept_missing_offsets)
        return list(consumer.batches(topic, partition, self.fetch(topic, partition, offset)))

    def _log_offsets_alone(self, topic: str, partition: int) -> LogOffsets:
        cluster = self._connected()

        def attempt() -> LogOffsets:
            return _offsets_or_raise(*read_log_offsets(cluster, [(topic, partition)], self._isolation).values())

        return cluster.until_it_passes(attempt)

    def _consumer(self) -> SimpleConsumer:
        return SimpleConsumer(self._connected())

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._bootstrap, security=self._security.read())
        return self._cluster


def _offsets_or_raise(offsets: LogOffsets | MillraceError) -> LogOffsets:
    if isinstance(offsets, MillraceError):
        raise offsets
    return offsets


def brokers_of(source: TopicSource) -> Brokers:
    """Returns a client of a topic's cluster."""
    return Brokers(source.bootstrap, source.isolation, source.security)


def is_topic_compacted(source: TopicSource) -> bool:
    """Returns whether the topic's present cleanup policy compacts its log."""
    with brokers_of(source) as brokers:
        return brokers.is_compacted(source.topic)


def describe_topic(source: TopicSource) -> TopicDescription:
    """Returns a topic's id, partitions and leader epochs.

    Raises UnknownTopicError where the cluster has no such topic.
    """
    with brokers_of(source) as brokers:
        return brokers.describe(source.topic)


def log_offsets(source: TopicSource, partitions: Iterable[int]) -> dict[int, LogOffsets]:
    """Returns where each partition's log starts and ends now; committed reads end at the last stable offset."""
    with brokers_of(source) as brokers:
        return brokers.log_offsets(source.topic, partitions)


def check_ends(source: TopicSource, log: Mapping[int, LogOffsets], reached: Mapping[int, int]) -> dict[int, LogOffsets]:
    """Returns the offsets in `log`; for logs that end below what was read of them, as their newest leaders say.

    Args:
        source: The topic.
        log: By partition, where its log starts and ends, as its leader said.
        reached: By partition, the offset up to which the log has been read.
    """
    short = [one for one, offsets in log.items() if offsets.log_end < reached.get(one, 0)]
    if not short:
        return dict(log)
    with brokers_of(source) as brokers:
        return {**log, **brokers.newest_log_offsets(source.topic, short)}


def epoch_ends(source: TopicSource, leader_epochs: Mapping[int, int]) -> dict[int, int]:
    """Returns where each partition's leader epoch ends in its log, for the epochs that the broker knows."""
    with brokers_of(source) as brokers:
        return brokers.epoch_ends(source.topic, leader_epochs)


def offsets_for_time(source: TopicSource, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int | None]:
    """Returns each partition's first offset with a timestamp of `timestamp_ms` or later; None where there is none."""
    with brokers_of(source) as brokers:
        return {partition: brokers.offset_for_time(source.topic, partition, timestamp_ms) for partition in partitions}
