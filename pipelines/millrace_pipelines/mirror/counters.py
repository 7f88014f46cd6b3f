"""What an instance has mirrored, and how far behind it is: one place, which metrics, status and progress bars read.

The loop of a partition alone writes its line, and readers take a copy; a figure may be a moment older than the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from millrace.records.batch import NO_TIMESTAMP
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.stops import Mirrored, Stop


class Counted(NamedTuple):
    """The partition of a source cluster that a line is about."""

    source: str
    what: Mirrored


@dataclass(slots=True)
class PartitionCounters:
    """One partition, since this instance has had it.

    Attributes:
        way: To follow or to copy.
        records: Records that were mirrored.
        size_bytes: Bytes of their batches.
        next_offset: The source offset up to which all is at the target; None until that is known.
        source_end: Where the source ends: its high watermark or, where records are copied, its last stable offset.
        newest_ms: The time of the newest record that was mirrored; -1 for none.
        stop: Why nothing more is mirrored.
        trouble: The last error, which may pass; empty once it has.
        is_lasting: Whether that needs somebody to change rights, credentials or settings.
    """

    way: Way
    records: int = 0
    size_bytes: int = 0
    next_offset: int | None = None
    source_end: int | None = None
    newest_ms: int = NO_TIMESTAMP
    stop: Stop | None = None
    trouble: str = ""
    is_lasting: bool = False

    @property
    def lag(self) -> int | None:
        """How many offsets the target is behind; None while either end is unknown."""
        if self.next_offset is None or self.source_end is None:
            return None
        return max(self.source_end - self.next_offset, 0)

    def count(self, records: int, size_bytes: int, newest_ms: int) -> None:
        """Adds what was mirrored."""
        self.records += records
        self.size_bytes += size_bytes
        self.newest_ms = max(self.newest_ms, newest_ms)


class Counters:
    """The counters of all partitions that this instance has, and of the transactions that it wrote."""

    def __init__(self) -> None:
        self._lines: dict[Counted, PartitionCounters] = {}
        self.transactions = 0
        self.aborted_transactions = 0

    def line(self, source: str, what: Mirrored, way: Way) -> PartitionCounters:
        """Returns the line of a partition that this instance has from now on, for its loop to write."""
        return self._lines.setdefault(Counted(source, what), PartitionCounters(way))

    def drop(self, source: str, what: Mirrored) -> None:
        """Removes the line of a partition that another instance has now."""
        self._lines.pop(Counted(source, what), None)

    def read(self) -> dict[Counted, PartitionCounters]:
        """Returns a copy of all lines."""
        return {one: replace(line) for one, line in self._lines.copy().items()}
