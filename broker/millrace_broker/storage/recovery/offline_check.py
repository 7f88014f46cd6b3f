"""Checking one segment that no broker uses (`millrace verify`): what in it is damaged, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from millrace.errors import StorageError
from millrace.fs import FileSystem, file_size, read_file
from millrace_broker.storage.batches.salvage import Damage, ValidBatch, examine, segment_bounds
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from millrace_broker.storage.reports import Finding
from millrace_broker.storage.segments.damage import DamagedRange, are_still_there, intact_bytes
from millrace_broker.storage.segments.offset_index import OffsetIndex
from millrace_broker.storage.segments.time_index import TimeIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """What the files of one segment hold. `next_offset` follows its last valid batch. No findings: all is well."""

    file: str
    size_bytes: int
    batches: int
    next_offset: int
    damaged_bytes: int
    damage: tuple[DamagedRange, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """What a folder says of one of its segments: its damage, and the offset up to which its batches and damage reach.

    Batches are missing where they end before `must_reach`.
    """

    named: tuple[DamagedRange, ...] = ()
    end_offset: int = 0
    must_reach: int = 0


ALONE = SegmentContext()


class _OffsetIndexCheck:
    """Matches index entries with batches: each entry must have the last offset of the batch at its position."""

    def __init__(self, fs: FileSystem, log: str) -> None:
        self._path = sibling(log, OFFSET_INDEX_SUFFIX)
        self._unmatched = {entry: slot for slot, entry in enumerate(_entries(fs, self._path, OffsetIndex.ENTRY))}

    def match(self, batch: ValidBatch, base_offset: int) -> None:
        """Removes the entry of a batch of the log from the unmatched ones."""
        self._unmatched.pop((batch.last_offset - base_offset, batch.position), None)

    def findings(self) -> Iterator[Finding]:
        """Yields a finding for each entry that no batch has matched."""
        for entry, slot in self._unmatched.items():
            reason = f"entry {entry}: no batch at byte {entry[1]} of the log ends with that offset"
            yield Finding(file=self._path, position=slot * OffsetIndex.ENTRY.size, reason=reason)


def check_segment(fs: FileSystem, path: str, context: SegmentContext = ALONE) -> SegmentReport:
    """Walks a segment's file and matches its indexes with it; raises StorageError where it can't be read."""
    base_offset = next_offset = base_offset_of(path)
    batches = 0
    with storage_errors(path):
        size_bytes = file_size(fs, path)
        index = _OffsetIndexCheck(fs, path)
        damage: list[DamagedRange] = []
        for part in parts_of(fs, path, context):
            if isinstance(part, DamagedRange):
                damage.append(part)
            else:
                batches += 1
                next_offset = part.last_offset + 1
                index.match(part, base_offset)
        findings = [Finding(file=path, position=one.position, reason=str(one)) for one in damage]
        findings += index.findings()
        findings += _time_index_findings(fs, sibling(path, TIME_INDEX_SUFFIX))
    return SegmentReport(
        file=path,
        size_bytes=size_bytes,
        batches=batches,
        next_offset=next_offset,
        damaged_bytes=sum(one.end_position - one.position for one in damage),
        damage=tuple(damage),
        findings=tuple(findings),
    )


def parts_of(fs: FileSystem, path: str, context: SegmentContext) -> Iterator[ValidBatch | DamagedRange]:
    """Yields the valid batches of a segment, and what is damaged or missing, in order. Raises OSError."""
    fd = fs.open(path)
    try:
        yield from _Parts(fs, fd, base_offset_of(path), context)
    finally:
        fs.close(fd)


class _Parts:
    """One walk over a segment's file. The end of a damaged range is known once the next batch is."""

    def __init__(self, fs: FileSystem, fd: int, base_offset: int, context: SegmentContext) -> None:
        self._fs, self._fd, self._base_offset = fs, fd, base_offset
        is_still_damaged = are_still_there(fs, fd, context.named, base_offset)
        self._named = context.named if is_still_damaged else ()
        self._context = context
        self._next_offset = base_offset

    def __iter__(self) -> Iterator[ValidBatch | DamagedRange]:
        size_bytes, named = self._fs.size(self._fd), list(self._named)
        for start, end in [*intact_bytes(self._named, 0, size_bytes), (size_bytes, size_bytes)]:
            while named and named[0].end_position <= start:
                yield named[0]
                self._next_offset = max(self._next_offset, named.pop(0).end_offset)
            until = named[0].start_offset if named else self._context.end_offset
            yield from self._between(start, end, until)
        if self._next_offset < self._context.must_reach:
            end = self._context.must_reach
            yield DamagedRange(self._next_offset, end, size_bytes, size_bytes, "the segment ends too early")

    def _between(self, start: int, end: int, until: int) -> Iterator[ValidBatch | DamagedRange]:
        """Yields what lies between two positions; damage at their end has the offsets up to `until`."""
        damage: Damage | None = None
        bounds = segment_bounds(end, self._base_offset, self._next_offset)
        for part in examine(self._fs, self._fd, start, bounds):
            if isinstance(part, ValidBatch):
                if damage is not None:
                    yield self._ranged(damage, part.base_offset)
                damage, self._next_offset = None, part.last_offset + 1
                yield part
            elif damage is None:
                damage = part
            else:
                damage = damage._replace(size_bytes=damage.size_bytes + part.size_bytes)
        if damage is not None:
            yield self._ranged(damage, until)
            self._next_offset = max(self._next_offset, until)

    def _ranged(self, damage: Damage, end_offset: int) -> DamagedRange:
        end_offset = max(self._next_offset, end_offset)
        end_position = damage.position + damage.size_bytes
        return DamagedRange(self._next_offset, end_offset, damage.position, end_position, damage.reason)


def base_offset_of(path: str) -> int:
    """Returns the base offset in a segment's file name. Raises StorageError."""
    parsed = parse_segment_file_name(os.path.basename(path))
    if parsed is None:
        raise StorageError(f"{path}: not a segment's file")
    return parsed[0]


def _time_index_findings(fs: FileSystem, path: str) -> Iterator[Finding]:
    """Yields a finding for each entry whose timestamp does not increase, or whose offset goes back."""
    before: tuple[int, int] | None = None
    for slot, entry in enumerate(_entries(fs, path, TimeIndex.ENTRY)):
        if before is not None and (entry[0] <= before[0] or entry[1] < before[1]):
            reason = f"entry {entry} does not lie above the one before, {before}"
            yield Finding(file=path, position=slot * TimeIndex.ENTRY.size, reason=reason)
        before = entry


def _entries(fs: FileSystem, path: str, entry: Struct) -> Iterator[tuple[int, int]]:
    """Yields the whole entries of an index, without the zeros behind them that a killed Kafka leaves."""
    if not fs.exists(path):
        return
    content = read_file(fs, path)
    whole = content[: len(content) // entry.size * entry.size].rstrip(b"\0")
    count = -(-len(whole) // entry.size)
    yield from entry.iter_unpack(content[: count * entry.size])


def sibling(path: str, suffix: str) -> str:
    """Returns the path of a file that belongs to a segment's `.log`."""
    return os.path.join(os.path.dirname(path), segment_file_name(base_offset_of(path), suffix))
