"""A comparison of a segment's indexes with its batches, as a walk over the batches meets them in order.

    .index       each entry names a position at which a batch begins, and the last offset of that batch
    .timeindex   each entry names an offset, and the largest timestamp of the batch that has it; where no batch has a
                 timestamp, as where compaction leaves empty ones alone, the offset is that of the segment; no batch is
                 newer than the last entry of a file that is complete

An index that is complete in its file is read from there by its name, as the next start will read it: the file may be
gone, or shorter than what was written. One that still grows is taken as it is in memory. A file can't be longer than a
segment's index may be, and its entries are decoded one by one, as a thousand of them at once would keep others waiting.
Of each index at most `MAX_FINDINGS` are told.

A start that trusts the indexes of a closed segment looks only at the batches at its end (`is_as_indexed`).
"""

from __future__ import annotations

from struct import Struct

from millrace.errors import RecordError
from millrace.fs import FileSystem, read_file
from millrace.records.batch import NO_TIMESTAMP, BatchHeader
from millrace_broker.storage.reports import LogFinding
from millrace_broker.storage.segments.indexes import IndexFile
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.time_entries import last_headers, names_newest

MAX_FINDINGS = 100


def is_as_indexed(segment: LogSegment, least_end: int) -> bool:
    """Returns whether a closed segment's batches end where they may, and its time index with the largest timestamp.

    They end at the next segment, or before it from `least_end` on, with the damage that is known. Raises OSError.
    """
    try:
        last = last_headers(segment)
    except RecordError:
        return False
    ends = [segment.base_offset, *(one.next_offset for one in last[-1:]), *(one.end_offset for one in segment.damage)]
    return least_end <= max(ends) <= segment.next_offset and names_newest(segment, last)


class _Entries:
    """Holds the packed entries of one index; `slot` is the number of the next one to be compared."""

    def __init__(self, fs: FileSystem, index: IndexFile) -> None:
        self.findings: list[LogFinding] = []
        self.path = index.path
        self.slot = 0
        self._entry: Struct = index.ENTRY
        size_bytes = len(index) * self._entry.size
        self.is_complete = index.is_sealed
        self._data = b"".join(self._entry.pack(*one) for one in index) if not index.is_sealed else b""
        if index.is_sealed:
            self._read(fs, size_bytes)
        self._count = len(self._data) // self._entry.size

    def _read(self, fs: FileSystem, size_bytes: int) -> None:
        try:
            self._data = read_file(fs, self.path)
        except FileNotFoundError:
            self.find("the file is missing", 0)
            return
        if len(self._data) != size_bytes:
            self.find(f"the file has {len(self._data)} bytes where {size_bytes} were written", 0)

    def find(self, reason: str, slot: int | None = None) -> None:
        """Adds a finding for an entry, by default the next one, unless there are enough."""
        if len(self.findings) < MAX_FINDINGS:
            position = (self.slot if slot is None else slot) * self._entry.size
            self.findings.append(LogFinding(file=self.path, position=position, reason=reason))

    def peek(self, ahead: int = 0) -> tuple[int, int] | None:
        """Returns the next entry, or one behind it; None where there are no more."""
        slot = self.slot + ahead
        if slot >= self._count:
            return None
        return self._at(slot)

    @property
    def last(self) -> tuple[int, int] | None:
        """The last entry; None if there are none."""
        return self._at(self._count - 1) if self._count else None

    def _at(self, slot: int) -> tuple[int, int]:
        key, value = self._entry.unpack_from(self._data, slot * self._entry.size)
        return key, value


class IndexCheck:
    """Compares the entries of a segment's offset index and time index with its batches, which are passed in order."""

    def __init__(self, fs: FileSystem, segment: LogSegment) -> None:
        """Reads the index files. Raises OSError."""
        self._base_offset = segment.base_offset
        self._damage = segment.damage
        self._offsets = _Entries(fs, segment.offset_index)
        self._times: _Entries | None = _Entries(fs, segment.time_index)
        self._newest = NO_TIMESTAMP
        self._time_findings: list[LogFinding] = self._times.findings

    @property
    def findings(self) -> list[LogFinding]:
        """What was found so far, in the offset index first."""
        return self._offsets.findings + self._time_findings

    def note_damage(self) -> None:
        """Ends the comparison of times: the batches that entries name may be among those that can't be read."""
        self._times = None

    def match(self, position: int, header: BatchHeader) -> None:
        """Compares the entries that belong to a batch, and finds those that lie between it and the one before it."""
        entries = self._offsets
        while (entry := entries.peek()) is not None:
            if entry[1] > position and not _is_passed(entries.peek(1), position):
                break
            if entry[1] != position:
                self._find_misplaced(entry[1])
            elif entry[0] != header.last_offset - self._base_offset:
                entries.find(_reason(position, "does not name the batch's last offset"))
            entries.slot += 1
        self._match_times(header)

    def _match_times(self, header: BatchHeader) -> None:
        entries = self._times
        if entries is None:
            return
        self._newest = max(self._newest, header.max_timestamp)
        first, last = header.base_offset - self._base_offset, header.last_offset - self._base_offset
        while (entry := entries.peek()) is not None and entry[1] <= last:
            is_misplaced = entry[1] < first and entry[0] != NO_TIMESTAMP
            if is_misplaced or entry[0] != header.max_timestamp:
                entries.find(f"timestamp {entry[0]} is not that of offset {self._base_offset + entry[1]}")
            entries.slot += 1

    def finish(self) -> None:
        """Finds entries behind the last batch, and a time index in which no entry has the largest timestamp."""
        while (entry := self._offsets.peek()) is not None:
            self._find_misplaced(entry[1])
            self._offsets.slot += 1
        while self._times is not None and (entry := self._times.peek()) is not None:
            self._times.find(f"offset {self._base_offset + entry[1]} is not in the segment")
            self._times.slot += 1
        if self._times is not None and self._times.is_complete:
            self._check_newest(self._times)

    def _check_newest(self, times: _Entries) -> None:
        last = times.last
        if self._newest > (NO_TIMESTAMP if last is None else last[0]):
            times.find(f"no entry has the segment's largest timestamp, {self._newest}")

    def _find_misplaced(self, position: int) -> None:
        if any(one.position <= position < one.end_position for one in self._damage):
            return  # where batches can't be read
        self._offsets.find(_reason(position, "no batch begins there"))


def _is_passed(behind: tuple[int, int] | None, position: int) -> bool:
    """Returns whether an entry that leads too far hides the one behind it, which is for `position` or before."""
    return behind is not None and behind[1] <= position


def _reason(position: int, what: str) -> str:
    return f"entry for byte {position} of the log: {what}"
