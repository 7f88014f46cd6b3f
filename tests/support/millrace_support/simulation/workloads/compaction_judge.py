"""What must be left of a compacted partition; each violation is an anomaly in plain words.

- A record that is gone was aborted, or a newer committed record has its key, or it was a tombstone that has stayed for
  `delete.retention.ms`.
- A record that is left is the one that was written, at its offset.

So all replicas have the same newest values, whichever segments each of them has compacted. A replica that was away for
longer than a tombstone stays may keep what that has deleted, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from millrace.records.batch import BatchHeader, read_header
from millrace.records.record import Record, read_records
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.workloads.history import History


class CompactedHistory(History):
    """What readers of a compacted partition may have seen, of which each broker keeps another part.

    Args:
        key: the partition.
        anomaly: is told what is wrong.
        written: the batches that clients have sent to it; None where brokers write it.
        delete_retention_ms: how long a tombstone stays at least.
        now_ms: returns the time.
    """

    def __init__(
        self,
        key: TopicPartition,
        anomaly: Callable[[str], None],
        written: Collection[bytes] | None,
        delete_retention_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(key, anomaly, written)
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        self._newest: dict[bytes | None, int] = {}

    def sees(self, offset: int, batch: bytes, where: str) -> None:
        """Takes a batch that is below the high watermark there, or what compaction has left of it.

        Where damage has kept readers from a log, it may show later what others had compacted before the first look.
        """
        if offset >= self.end:
            super().sees(offset, batch, where)
            return
        header = read_header(batch)
        for record in () if header.is_control else read_records(memoryview(batch)):
            if record.offset not in self.records and self._may_be_gone(record):
                self.records[record.offset] = record
            if self.records.get(record.offset) != record:
                self._anomaly(f"{self.key}: compaction has changed the record at offset {record.offset} at {where}")

    def _add(self, header: BatchHeader, batch: bytes) -> None:
        super()._add(header, batch)
        if not header.is_control and not header.is_transactional:
            self._are_committed(range(header.base_offset, header.next_offset))

    def _decide(self, offsets: Collection[int], *, is_commit: bool) -> None:
        super()._decide(offsets, is_commit=is_commit)
        if is_commit:
            self._are_committed(offsets)

    def _are_committed(self, offsets: Iterable[int]) -> None:
        """Notes records as committed; a damaged log may be compacted, elsewhere, before the first look at a batch."""
        for offset in offsets:
            if offset in self.records:
                key = self.records[offset].key
                self._newest[key] = max(offset, self._newest.get(key, offset))

    def misses(self, begin: int, end: int, where: str) -> None:
        """Looks whether all records from `begin` on and before `end` may be gone there.

        One whose transaction is not decided below the high watermark is looked at in the end. Its marker may be there,
        above that, and a process that has started since takes it for decided, as in Apache Kafka: the snapshots of
        producers hold no transactions that have ended.
        """
        for offset in range(begin, min(end, self.end)):
            record, is_decided = self.records.get(offset), self.outcomes.get(offset, True) is not None
            if record is not None and is_decided and not self._may_be_gone(record):
                self._anomaly(
                    f"{self.key}: the record at offset {offset} is gone at {where}, and no newer one is there"
                )

    def _may_be_gone(self, record: Record) -> bool:
        if self.outcomes.get(record.offset) is False or self._newest.get(record.key, -1) > record.offset:
            return True
        is_old = self._now_ms() - record.timestamp_ms >= self._delete_retention_ms
        return record.value is None and is_old and self.is_committed(record.offset)

    def check_log(self, found: Mapping[int, bytes], end: int, where: str) -> None:
        """Looks at the batches of a whole log, by their base offsets."""
        left: set[int] = set()
        for offset, batch in found.items():
            self.sees(offset, batch, where)
            if not read_header(batch).is_control:
                left.update(record.offset for record in read_records(memoryview(batch)))
        for offset in range(end):
            if offset not in left:
                self.misses(offset, offset + 1, where)
