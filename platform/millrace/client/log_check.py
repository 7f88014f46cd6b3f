"""Reads the partitions of a running cluster through its brokers, one fetch at a time, and checks their batches.

    log start offset ≤ [ batch ][ batch ]  gap  [ batch ] ≤ log's end
                        CRC-32C, header; offsets rise without overlap; leader epochs never fall

Gaps are normal in a topic that is compacted, and damage in another one: a batch is lost, or says wrong offsets. The
first batch may begin below the log start offset, because deleting records may move that into the middle of a batch.
Batches of the old formats have no leader epochs.

A partition is read from its log start offset to where it ended when its turn came, or a share of these offsets is. What
prevents that (it has no leader, a fetch fails, the brokers don't say whether the topic is compacted) is a finding of
this partition; the other partitions are checked all the same.

So `millrace verify --bootstrap` looks at any cluster that speaks the protocol, and Dagster at one whose brokers have no
admin endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.client.cluster import Cluster
from millrace.client.damaged_batches import is_compacted
from millrace.client.metadata import ClusterMetadata
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import MillraceError, OffsetOutOfRangeError, RecordError
from millrace.records.batch import NO_LEADER_EPOCH, BatchHeader, compute_crc, walk

MOST_OF_A_BATCH = 8  # findings


class Share(NamedTuple):
    """One of `parts` equal shares of a partition's offsets, counted from 0; by default all of them."""

    number: int = 0
    parts: int = 1

    def of(self, offsets: range) -> range:
        """Returns the offsets that belong to this share; all shares together have each offset once."""
        size = len(offsets)
        return offsets[size * self.number // self.parts : size * (self.number + 1) // self.parts]


ALL = Share()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFinding:
    """A fault at an offset: of the batch that begins there, or of the read from there on."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The result of reading one partition; `next_offset` follows its last batch. Without findings all is well."""

    topic: str
    partition: int
    batches: int
    size_bytes: int
    next_offset: int
    findings: tuple[BatchFinding, ...]


class PartitionCheck:
    """Checks the batches of one fetch after another; `next_offset` is where the next fetch begins.

    `is_compacted` says whether compaction explains offsets that no batch has.
    """

    def __init__(self, topic: str, partition: int, log_start_offset: int, *, is_compacted: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = log_start_offset
        self._is_compacted = is_compacted
        self._is_at_start = True
        self._leader_epoch = NO_LEADER_EPOCH
        self._batches = 0
        self._size_bytes = 0
        self._findings: list[BatchFinding] = []

    def take(self, records: bytes, end_offset: int) -> bool:
        """Checks the batches that a fetch returned; returns whether to fetch again, from `next_offset` on.

        `end_offset` is the log end offset that the leader tells after the fetch.
        """
        asked_offset = self.next_offset
        view = memoryview(records)
        try:
            for position, header in walk(view):
                self._take_batch(view[position : position + header.size_bytes], header, end_offset)
        except RecordError as error:
            reason = f"the answer to a fetch holds no batch here: {error}; the partition is not checked from here on"
            self.find(self.next_offset, reason)
            return False
        if self.next_offset > asked_offset:
            return True
        reason = f"the log ends at offset {end_offset}, but no valid batch is served from {asked_offset} on"
        self.find(asked_offset, reason)
        return False

    def go_on_from(self, log_start_offset: int) -> None:
        """Continues at a log start offset that retention has moved up in the meantime."""
        self.next_offset = log_start_offset
        self._is_at_start = True

    def find(self, offset: int, reason: str) -> None:
        """Adds a finding, unless there is one at this offset from an earlier fetch of the same batch."""
        finding = BatchFinding(offset=offset, reason=reason)
        if finding not in self._findings[-MOST_OF_A_BATCH:]:
            self._findings.append(finding)

    def report(self) -> PartitionReport:
        """Returns the findings so far, and how far the partition was read."""
        return PartitionReport(
            topic=self.topic,
            partition=self.partition,
            batches=self._batches,
            size_bytes=self._size_bytes,
            next_offset=self.next_offset,
            findings=tuple(self._findings),
        )

    def _take_batch(self, batch: memoryview, header: BatchHeader, end_offset: int) -> None:
        if not self._is_compacted and self.next_offset < header.base_offset < end_offset:
            missing = f"offsets {self.next_offset}-{header.base_offset - 1} are missing: the topic is not compacted"
            self.find(self.next_offset, missing)
        for reason in (*self._wrong_content(batch, header), *self._wrong_place(header, end_offset)):
            self.find(header.base_offset, reason)
        self._batches += 1
        self._size_bytes += header.size_bytes
        if header.partition_leader_epoch > NO_LEADER_EPOCH:
            self._leader_epoch = header.partition_leader_epoch
        if self.next_offset < header.next_offset <= end_offset:
            self.next_offset = header.next_offset
            self._is_at_start = False

    def _wrong_content(self, batch: memoryview, header: BatchHeader) -> Iterator[str]:
        if compute_crc(batch, 0, header.size_bytes) != header.crc:
            yield f"CRC-32C of the batch at offset {header.base_offset} is wrong"
        if not self._is_compacted and not header.is_control and header.record_count <= header.last_offset_delta:
            yield (
                f"the batch at offset {header.base_offset} has {header.record_count} records for its "
                f"{header.last_offset_delta + 1} offsets: the topic is not compacted"
            )
        if NO_LEADER_EPOCH < header.partition_leader_epoch < self._leader_epoch:
            yield (
                f"leader epoch {header.partition_leader_epoch} of the batch at offset {header.base_offset} "
                f"is below {self._leader_epoch}, that of the batch before"
            )

    def _wrong_place(self, header: BatchHeader, end_offset: int) -> Iterator[str]:
        subject = f"the batch at offset {header.base_offset}"
        if self._is_at_start and header.next_offset <= self.next_offset:
            yield f"{subject} lies below the log's start, offset {self.next_offset}"
        elif not self._is_at_start and header.base_offset < self.next_offset:
            yield f"{subject} overlaps the one before, which ends at offset {self.next_offset - 1}"
        if header.next_offset > end_offset:
            yield f"{subject} ends at offset {header.last_offset}, beyond the log's end at {end_offset}"


UNKNOWN_START = 0  # where a check begins if the partition can't be asked for its start


def check_topics(cluster: Cluster, topics: Sequence[str], share: Share = ALL) -> Iterator[PartitionReport]:
    """Checks a share of every partition of these topics, or of all topics if none is named.

    Raises:
        UnknownTopicError: A topic does not exist; nothing is checked then.
        BrokerUnreachableError: No broker answers with the list of topics.
    """
    metadata = cluster.metadata(topics or None)
    consumer = SimpleConsumer(cluster)
    found = [metadata.topic(name) for name in dict.fromkeys(topics or sorted(metadata.topics))]
    for topic in found:
        try:
            compacted, refusal = is_compacted(cluster, topic.name), None
        except MillraceError as error:
            compacted, refusal = True, error
        for partition in topic.partitions:
            check = PartitionCheck(topic.name, partition, UNKNOWN_START, is_compacted=compacted)
            if refusal is None:
                yield _checked(check, metadata, consumer, share)
            else:
                check.find(UNKNOWN_START, f"{refusal}; the partition is not checked")
                yield check.report()


def _checked(
    check: PartitionCheck, metadata: ClusterMetadata, consumer: SimpleConsumer, share: Share
) -> PartitionReport:
    topic, partition = check.topic, check.partition
    try:
        metadata.leader(topic, partition)  # a missing one is told at once, where a fetch would wait for it
        offsets = share.of(range(consumer.earliest(topic, partition), consumer.latest(topic, partition)))
        check.go_on_from(offsets.start)
        _read(check, consumer, offsets.stop)
    except MillraceError as error:
        check.find(check.next_offset, f"{error}; the partition is not checked from here on")
    return check.report()


def _read(check: PartitionCheck, consumer: SimpleConsumer, until_offset: int) -> None:
    topic, partition = check.topic, check.partition
    leads_on = True
    while leads_on and check.next_offset < until_offset:
        try:
            records = consumer.fetch(topic, partition, check.next_offset).records
        except OffsetOutOfRangeError:
            log_start_offset = consumer.earliest(topic, partition)
            if log_start_offset <= check.next_offset:
                raise
            check.go_on_from(log_start_offset)  # what was next has been deleted meanwhile
        else:
            leads_on = check.take(records, consumer.latest(topic, partition))
