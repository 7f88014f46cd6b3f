"""Where the log of a partition with limits may begin; each violation is an anomaly in plain words.

- The log start offset of a log in a process only rises, and is never above the high watermark.
- What is below it was deleted on request, or is older than `retention.ms`, or the log has `retention.bytes` without it.
  Of records that no leader could read yet, as its log is damaged, that is not known: a sound replica may delete them.
- What was deleted on request is not read again from a replica that was in sync, until it starts (`record_deleters`).
- In the end no log has a segment more than `retention.bytes` allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace_broker.storage import Log
from millrace_support.simulation.workloads.history import History


class Limits(NamedTuple):
    """The limits of a log that is to be judged."""

    retention_ms: int
    retention_bytes: int
    segment_bytes: int


class RetentionJudge:
    """Looks at the logs of one partition, before and after brokers delete what is too old or too much."""

    def __init__(self, history: History, limits: Limits, anomaly: Callable[[str], None]) -> None:
        self.history = history
        self.justified = 0
        self._limits = limits
        self._anomaly = anomaly
        self._asked = 0
        self._starts: dict[tuple[int, int], tuple[Log, int]] = {}

    def asks_to_delete(self, offset: int) -> None:
        """Notes a request to delete all below an offset."""
        self._asked = max(self._asked, offset)

    def looks_at(self, broker_id: int, process: int, log: Log, now_ms: int) -> None:
        """Looks where the log of a broker begins; `process` is the number of its process."""
        start, (known, before) = log.log_start_offset, self._starts.get((broker_id, process), (log, 0))
        self._starts[broker_id, process] = log, start
        what = f"{self.history.key}: the log of broker {broker_id}"
        if start < before and known is log:
            self._anomaly(f"{what} begins at {start} after {before}")
        if start > self.history.high_watermark:
            self._anomaly(f"{what} begins at {start}, above the high watermark {self.history.high_watermark}")
        elif start > self.justified:
            self._check_reason(what, log, start, now_ms)
            self.justified = start

    def _check_reason(self, what: str, log: Log, start: int, now_ms: int) -> None:
        young = [
            offset
            for offset in range(max(self.justified, self._asked), start)
            if offset in self.history.records
            and now_ms - self.history.records[offset].timestamp_ms <= self._limits.retention_ms
        ]
        if young and self._bytes_behind(young[-1], start) + log.size_bytes < self._limits.retention_bytes:
            self._anomaly(f"{what} begins at {start}, though offset {young[-1]} is neither too old nor too much")

    def _bytes_behind(self, offset: int, end: int) -> int:
        return sum(len(batch) for base, batch in self.history.batches.items() if offset < base < end)

    def check_end(self, broker_id: int, log: Log) -> None:
        """Looks whether a log keeps its limit of bytes, when nothing is written any more."""
        if log.size_bytes > self._limits.retention_bytes + self._limits.segment_bytes:
            self._anomaly(f"{self.history.key}: the log of broker {broker_id} has {log.size_bytes} bytes")

    def justifies(self, offset: int) -> bool:
        """Returns whether readers may go on at an offset, as all below it may be deleted."""
        return offset <= max(self.justified, self._asked)

    def has_deleted_unseen(self, offset: int) -> bool:
        """Returns whether an offset may be deleted that no leader could read yet, as its log is damaged."""
        return offset not in self.history.batches and self.justifies(offset + 1)
