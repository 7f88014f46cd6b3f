"""The records of one partition as readers may have them: what has ever been below the high watermark of a leader.

A batch that was seen once is the same for ever, for every reader and on every later leader. It is one that a client has
sent, or a marker. The outcome of a transaction in the partition is that of the first marker of its producer behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from millrace.records.batch import BatchHeader, read_header
from millrace.records.control import ControlType, decode_marker
from millrace.records.record import Record, read_records
from millrace_broker.storage import TopicPartition

EPOCH = slice(12, 16)  # where the leader epoch of a batch is
AFTER_CRC = 21  # where the part of a batch begins that a leader does not change: attributes and all that follows


class History:
    """What readers of a partition may have seen.

    Args:
        key: the partition.
        anomaly: is told what is wrong.
        written: the batches that clients have sent to it, without what a leader changes; None where brokers write it.

    Attributes:
        end: the offset behind the last batch that was seen.
        high_watermark: the largest one of a leader. It is above `end` while that leader's log is damaged and can't be
            read up to there.
        may_have_wrong_epochs: whether a leader epoch of a batch has rotted, so that readers may get it until it is
            mended: no checksum covers it. In the end all must be right again.
    """

    def __init__(self, key: TopicPartition, anomaly: Callable[[str], None], written: Collection[bytes] | None) -> None:
        self.key = key
        self.end = self.high_watermark = 0
        self.batches: dict[int, bytes] = {}
        self.records: dict[int, Record] = {}
        self.may_have_wrong_epochs = False
        self.outcomes: dict[int, bool | None] = {}  # of those that belong to transactions: None while it is open
        self._anomaly = anomaly
        self._written = written
        self._open: dict[int, list[int]] = defaultdict(list)

    def sees(self, offset: int, batch: bytes, where: str) -> None:
        """Takes a batch that is below the high watermark there."""
        if not self._are_same(self.batches.setdefault(offset, batch), batch):
            self._anomaly(f"{self.key}: readers get other records at offset {offset} from {where}")
        if offset >= self.end:
            self._add(read_header(batch), batch)

    def _are_same(self, one: bytes, other: bytes) -> bool:
        if not self.may_have_wrong_epochs:
            return one == other
        return (one[: EPOCH.start], one[EPOCH.stop :]) == (other[: EPOCH.start], other[EPOCH.stop :])

    def is_committed(self, offset: int) -> bool:
        """Returns whether readers of committed records get the record at an offset."""
        return self.outcomes.get(offset, True) is True

    def visible(self, *, committed: bool) -> Iterator[Record]:
        """Yields the records that readers get, all or only the committed ones."""
        return (record for offset, record in self.records.items() if not committed or self.is_committed(offset))

    def _add(self, header: BatchHeader, batch: bytes) -> None:
        self.end = header.next_offset
        if header.is_control:
            self._end_transaction(header, batch)
            return
        if self._written is not None and batch[AFTER_CRC:] not in self._written:
            self._anomaly(f"{self.key}: nobody has written what readers get at offset {header.base_offset}")
        for record in read_records(memoryview(batch)):
            self.records[record.offset] = record
            if header.is_transactional:
                self.outcomes[record.offset] = None
                self._open[header.producer_id].append(record.offset)

    def _end_transaction(self, header: BatchHeader, batch: bytes) -> None:
        marker = decode_marker(header, memoryview(batch))
        if marker is not None:
            offsets = self._open.pop(header.producer_id, ())
            self._decide(offsets, is_commit=marker.control_type is ControlType.COMMIT)

    def _decide(self, offsets: Collection[int], *, is_commit: bool) -> None:
        self.outcomes.update(dict.fromkeys(offsets, is_commit))

    def misses(self, begin: int, end: int, where: str) -> None:
        """Takes note that there is nothing from `begin` on and before `end` there."""
        self._anomaly(f"{self.key}: offsets {begin} to {end} are missing at {where}")

    def check_log(self, found: Mapping[int, bytes], end: int, where: str) -> None:
        """Looks at the batches of a whole log that ends at `end`, by their base offsets."""
        for offset, batch in self.batches.items():
            if offset >= min(found, default=end) and found.get(offset) != batch:
                self._anomaly(f"{self.key}: what readers had at offset {offset} is lost at {where}")
