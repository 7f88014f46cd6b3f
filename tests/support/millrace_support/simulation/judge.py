"""What must hold in a simulated cluster, whatever fails; each violation is an anomaly in plain words.

- A leader epoch of a partition has one leader.
- The high watermark of a leader does not go back in its epoch.
- Batches below the high watermark of a leader lie at the same offsets on all later leaders: readers may have them.
  They are what clients have sent, and markers of transactions.
- A batch that was acknowledged with acks=all is on as many replicas as min.insync.replicas asks for at that time.
  Readers get it, and no other one, at its offset, and it is there at the end.
- In the end all replicas have the same log, and all are in sync.

Where nothing is promised any more (`promises`), what readers had may be lost, and is not compared.

Logs are compared batch by batch, as bytes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from millrace.clock import Clock
from millrace.errors import CorruptRecordError, RecordError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import check_crc, read_header, walk
from millrace.wire.encoder import contents
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import Log, LogFinding, TopicPartition
from millrace_support.simulation.promises import Promises
from millrace_support.simulation.swarm.settings import Settings
from millrace_support.simulation.workloads.compaction_judge import CompactedHistory
from millrace_support.simulation.workloads.drawn import (
    DELETE_RETENTION_MS,
    LIMITED_TOPIC,
    LIMITS,
    Workloads,
    configs_of,
)
from millrace_support.simulation.workloads.history import AFTER_CRC, History
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

READ_BYTES = 1 << 20


class Judge:
    """Looks at brokers while they run, and at the end."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        clock: Clock,
        workloads: Workloads,
        settings: Settings,
        promises: Promises,
    ) -> None:
        self.anomalies: list[str] = []
        self.promises = promises
        self._settings = settings
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._written: dict[TopicPartition, set[bytes]] = defaultdict(set)
        self._clock = clock
        compacted = configs_of(workloads) if workloads.compaction else {}
        self.histories: dict[TopicPartition, History] = {
            key: self._new_history(key, is_compacted="cleanup.policy" in compacted.get(key.topic, {}))
            for key in partitions
        }
        self.retention = {
            key: RetentionJudge(history, LIMITS, self.anomaly)
            for key, history in self.histories.items()
            if key.topic == LIMITED_TOPIC
        }
        self.damaged: set[TopicPartition] = set()
        """The partitions of which a replica was damaged: its batches may be out of reach until it has healed."""
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._read_to: dict[tuple[TopicPartition, int, int, int], int] = {}
        self._high_watermarks: dict[tuple[TopicPartition, int, int, int], int] = {}

    def _new_history(self, key: TopicPartition, *, is_compacted: bool) -> History:
        written = None if key.topic in INTERNAL_TOPICS else self._written[key]
        if is_compacted:
            return CompactedHistory(key, self.anomaly, written, DELETE_RETENTION_MS, self._clock.now_ms)
        return History(key, self.anomaly, written)

    def begins(self, key: TopicPartition) -> None:
        """Notes a partition that is created."""
        self.histories[key] = self._new_history(key, is_compacted=False)

    def ends(self, key: TopicPartition, logs: Iterable[Log]) -> None:
        """Notes that a partition is deleted: nothing of what is in its logs may come to the next one of its name.

        A write that has come to none of them may, as it names no topic id.
        """
        for log in logs:
            with self._bears_damage(key):
                for _, batch in batches(log, log.log_start_offset, log.log_end_offset):
                    self._written[key].discard(batch[AFTER_CRC:])
        for batch in self.histories[key].batches.values():
            self._written[key].discard(batch[AFTER_CRC:])
        self.acknowledged.pop(key, None)
        for of_key in [one for one in self._leaders if one[0] == key]:
            del self._leaders[of_key]
        for of_process in [one for one in self._high_watermarks if one[0] == key]:
            del self._high_watermarks[of_process]
            self._read_to.pop(of_process, None)

    @contextmanager
    def _bears_damage(self, key: TopicPartition) -> Iterator[None]:
        """Ends what reads a log where that is damaged, if a fault has damaged the partition."""
        try:
            yield
        except RecordError:  # of a damaged header, too, which seems to be one of another format
            if key not in self.damaged:
                raise

    def anomaly(self, text: str) -> None:
        """Notes a violation once."""
        if text not in self.anomalies:
            self.anomalies.append(text)

    def writes(self, key: TopicPartition, batch: bytes) -> None:
        """Notes that a client sends a batch."""
        self._written[key].add(batch[AFTER_CRC:])

    def acknowledges(
        self, key: TopicPartition, offset: int, batch: bytes, factor: int, replicas: Iterable[Log | None]
    ) -> None:
        """Notes an answer to a write with acks=all; as many replicas as min.insync.replicas asks for must have it.

        A replica whose log is closed, or may have been lost since, is None, and may have it. `factor` leaves out what a
        reassignment adds.
        """
        if self.promises.is_void(key):
            return
        payload = batch[AFTER_CRC:]
        holders = sum(log is None or self._may_have(log, offset, payload) for log in replicas)
        if holders < self._settings.least_holders(factor):
            self.anomaly(f"{key}: offset {offset} is acknowledged, and {holders} replicas have it")
        if self.acknowledged[key].setdefault(offset, payload) != payload:
            self.anomaly(f"{key}: offset {offset} is acknowledged twice, for different records")
        committed = self.histories[key].batches.get(offset)
        if committed is not None and committed[AFTER_CRC:] != payload:
            self.anomaly(f"{key}: offset {offset} is acknowledged, but readers have other records there")

    def look_at_leader(self, broker_id: int, start: int, key: TopicPartition, partition: Partition) -> None:
        """Looks at a partition that a broker leads; `start` is the number of its process, counted from the first."""
        epoch, high_watermark = partition.leader_epoch, partition.high_watermark
        leader = self._leaders.setdefault((key, epoch), broker_id)
        if leader != broker_id:
            self.anomaly(f"{key}: brokers {leader} and {broker_id} both lead in epoch {epoch}")
        of_process = key, broker_id, start, epoch
        before = self._high_watermarks.get(of_process, 0)
        if high_watermark < before:
            self.anomaly(
                f"{key}: the high watermark of broker {broker_id} goes back in epoch {epoch}, to {high_watermark}"
            )
        self._high_watermarks[of_process] = high_watermark
        history = self.histories[key]
        history.high_watermark = max(history.high_watermark, high_watermark)
        if high_watermark > self._read_to.get(of_process, 0) and not self.promises.is_void(key):
            with self._bears_damage(key):
                self._read(of_process, partition.log, high_watermark)

    def _may_have(self, log: Log, offset: int, payload: bytes) -> bool:
        """Returns whether a log has a batch, or had it before it was compacted, deleted or damaged."""
        if log.config.is_compacted or offset < log.log_start_offset:
            return log.log_end_offset > offset
        with self._bears_damage(log.topic_partition):
            return dict(batches(log, offset, offset + 1)).get(offset, b"")[AFTER_CRC:] == payload
        return log.log_end_offset > offset

    def _read(self, of_process: tuple[TopicPartition, int, int, int], log: Log, end: int) -> None:
        key, broker_id = of_process[:2]
        for offset, batch in batches(log, self._read_to.get(of_process, 0), end):
            self.histories[key].sees(offset, batch, f"broker {broker_id}")
            self._read_to[of_process] = read_header(batch).next_offset
        self._read_to[of_process] = end

    def look_at_log(self, broker_id: int, start: int, key: TopicPartition, log: Log) -> None:
        """Looks where a log with limits begins; `start` is the number of its broker's process."""
        if not self.promises.is_void(key):
            self.retention[key].looks_at(broker_id, start, log, self._clock.now_ms())

    def compare(self, key: TopicPartition, replicas: dict[int, Log]) -> None:
        """Compares the logs of a partition once everything is in sync again."""
        history, is_void = self.histories[key], self.promises.is_void(key)
        begin = max(log.log_start_offset for log in replicas.values())
        try:
            logs = {broker: dict(batches(log, begin, log.log_end_offset)) for broker, log in replicas.items()}
        except RecordError as error:
            self.anomaly(f"{key}: a log can't be read in the end: {error}")
            return
        first = next(iter(logs.values()))
        for broker, found in logs.items():
            if found != first and not isinstance(history, CompactedHistory):
                self.anomaly(f"{key}: broker {broker} has another log than broker {next(iter(logs))}")
            if findings := _lasting(replicas[broker]):
                self.anomaly(f"{key}: the log of broker {broker} is damaged: {findings}")
            if is_void:
                continue
            history.check_log(found, replicas[broker].log_end_offset, f"broker {broker}")
            if key in self.retention:
                self.retention[key].check_end(broker, replicas[broker])
        for offset, payload in self.acknowledged[key].items():
            is_deleted = key in self.retention and self.retention[key].has_deleted_unseen(offset)
            if not is_void and not is_deleted and history.batches.get(offset, b"")[AFTER_CRC:] != payload:
                self.anomaly(f"{key}: what was acknowledged at offset {offset} is lost")


def _lasting(log: Log) -> list[LogFinding]:
    """Returns what a verification finds, but for indexes of the active segment: these are seen to once it is closed.

    Damage below the log start offset is not healed: nobody reads there, and it goes with its segment.
    """
    findings, active = log.verify().findings, os.path.splitext(log.segments.active.path)
    all_damage = {str(one) for segment in log.segments for one in segment.damage}
    passed = all_damage - {str(one) for _, one in log.damage}
    names = ((os.path.splitext(one.file), one) for one in findings if one.reason not in passed)
    return [one for (base, suffix), one in names if base != active[0] or suffix == active[1]]


def batches(log: Log, begin: int, end: int) -> Iterable[tuple[int, bytes]]:
    """Yields the base offset and the bytes of the batches of a log that begin from `begin` on and before `end`.

    Raises CorruptRecordError or UnsupportedMagicError where the log is damaged.
    """
    offset, log_end = max(begin, log.log_start_offset), log.log_end_offset
    while offset < min(end, log_end):
        data = bytes(contents(log.read(offset, READ_BYTES, up_to_offset=log_end)))
        if not data:
            return
        asked = offset
        for position, header in walk(data):
            check_crc(memoryview(data), position, header)
            if begin <= header.base_offset < end:
                yield header.base_offset, data[position : position + header.size_bytes]
            offset = header.next_offset
        if offset <= asked:
            raise CorruptRecordError(f"{log.topic_partition}: {len(data)} bytes have no whole batch of offset {asked}")
