"""A check of every byte of a log, at any time and while it is appended to.

Lengths, CRC and offsets of each batch are checked, and each index entry must point to the batch that has its offset. A
finding names the file and the byte at which the bad batch or entry begins. After a wrong CRC the check goes on behind
the batch, after bytes that are no batch with the next one that is valid. What is set aside already is a finding too,
with its offsets. Offsets may be left out below the one from which on the log leaves out none, and in repaired ranges.

Damage that nobody has met yet is set aside: reads of it are refused, health and the next checkpoint name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace.records.batch import BatchHeader
from millrace_broker.storage.batches.salvage import SearchBounds, batch_behind
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET, walk_batches
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.reports import LogFinding, VerifiedSegment, VerifyReport
from millrace_broker.storage.segments.damage import covering, intact_bytes, is_repaired
from millrace_broker.storage.segments.damage_search import set_aside_from
from millrace_broker.storage.segments.segment import LogSegment


class _SegmentCheck:
    """One check of a segment's batches and indexes, with its findings."""

    def __init__(self, fs: FileSystem, segment: LogSegment, next_base: int | None, gapless_from: int) -> None:
        self.findings: list[LogFinding] = []
        self.batches = self.records = 0
        self._index = list(segment.offset_index)
        self.size_bytes = segment.size_bytes
        self._segment = segment
        self._fs = fs
        self._end_offset = MAX_LONG if next_base is None else next_base
        self._gapless_from = gapless_from
        self._gaps: list[tuple[LogFinding, int]] = []
        self._damaged_offsets: list[int] = []
        self._expected = {position: offset for offset, position in self._index}

    @property
    def report(self) -> VerifiedSegment:
        """The segment's size, the counts of batches and records that were read, and the number of findings."""
        return VerifiedSegment(
            base_offset=self._segment.base_offset,
            size_bytes=self.size_bytes,
            batches=self.batches,
            records=self.records,
            findings=len(self.findings),
        )

    def run(self) -> None:
        """Checks all batches, and that each index entry fits one."""
        segment = self._segment
        for one in segment.damage:
            self._find(segment.path, one.position, str(one))
        for position, end in intact_bytes(segment.damage, 0, self.size_bytes):
            passed = (one.end_offset for one in segment.damage if one.end_position <= position)
            self._walk(position, end, max(passed, default=segment.base_offset))
        for position in self._expected:
            self._find_index(position, "no batch begins there")

    def set_aside(self) -> None:
        """Adds the damage that `run` found to the segment's damaged ranges, which reads pass over. Raises OSError."""
        for offset in self._damaged_offsets:
            if covering(self._segment.damage, offset) is None:
                set_aside_from(self._fs, self._segment, offset, self._gapless_from)

    def _walk(self, start: int, end: int, next_offset: int) -> None:
        """Checks the batches between two positions, the first to be at `next_offset`; goes on behind damage."""
        segment = self._segment
        while start < end:
            try:
                for position, header, crc_holds in walk_batches(self._fs, segment.fd, end, start):
                    self._check(position, header, next_offset, crc_holds=crc_holds)
                    start, next_offset = position + header.size_bytes, header.next_offset
            except RecordError as error:
                bounds = SearchBounds(end, next_offset, segment.base_offset + MAX_RELATIVE_OFFSET)
                found = batch_behind(self._fs, segment.fd, start, bounds)
                behind = "the end" if found is None else f"offset {found.base_offset} at position {found.position}"
                self._find(segment.path, start, f"{error}; offset {next_offset} up to {behind} can't be read")
                self._damaged_offsets.append(next_offset)
                start, next_offset = (end, next_offset) if found is None else (found.position, found.base_offset)

    def _check(self, position: int, header: BatchHeader, next_offset: int, *, crc_holds: bool) -> None:
        segment = self._segment
        if not crc_holds:
            self._find(segment.path, position, f"CRC-32C of the batch at offset {header.base_offset} is wrong")
            self._damaged_offsets.append(next_offset)
        if header.base_offset != next_offset and not is_repaired(segment.repaired, next_offset, header.base_offset):
            self._find_offset(header, position, next_offset)
        if self._expected.pop(position, None) not in (None, header.last_offset - segment.base_offset):
            self._find_index(position, "does not name the batch's last offset")
        self.batches += 1
        self.records += header.record_count

    def _find_offset(self, header: BatchHeader, position: int, expected: int) -> None:
        """Adds a finding for a batch with another offset than expected, unless offsets may be left out there."""
        reason = f"offset {header.base_offset} where {expected} is expected"
        gap = LogFinding(file=self._segment.path, position=position, reason=reason)
        is_left_out = expected < header.base_offset <= self._gapless_from
        if is_left_out and header.next_offset <= self._end_offset:
            self._gaps = [(gap, expected)]
        else:
            for finding, offset in (*self._gaps, (gap, expected)):
                self.findings.append(finding)
                self._damaged_offsets.append(offset)
            self._gaps = []

    def _find(self, path: str, position: int, reason: str) -> None:
        self.findings.append(LogFinding(file=path, position=position, reason=reason))

    def _find_index(self, position: int, reason: str) -> None:
        index = self._segment.offset_index
        entry = next(slot for slot, (_, found) in enumerate(self._index) if found == position)
        self._find(index.path, entry * index.ENTRY.size, f"entry for byte {position} of the log: {reason}")


def verify_log(
    fs: FileSystem,
    topic_partition: TopicPartition,
    log_start_offset: int,
    log_end_offset: int,
    segments: Sequence[LogSegment],
    *,
    gapless_from: int = 0,
    dry_run: bool = False,
) -> VerifyReport:
    """Checks all batches and index entries of the segments, but for those deleted meanwhile; returns a report.

    From `gapless_from` on the log leaves out no offset. A dry run reads none. Raises OSError.
    """
    checks: list[_SegmentCheck] = []
    for segment, following in zip_longest(segments, segments[1:]):
        if not segment.retain():
            continue
        try:
            next_base = None if following is None else following.base_offset
            check = _SegmentCheck(fs, segment, next_base, gapless_from)
            if not dry_run:
                check.run()
                check.set_aside()
        finally:
            segment.release()
        checks.append(check)
    return VerifyReport(
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        segments=len(checks),
        batches=sum(check.batches for check in checks),
        records=sum(check.records for check in checks),
        size_bytes=sum(check.size_bytes for check in checks),
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        findings=tuple(finding for check in checks for finding in check.findings),
        by_segment=tuple(check.report for check in checks),
    )
