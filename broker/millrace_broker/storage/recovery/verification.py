"""A check of every byte of a log, at any time and while it is appended to.

Lengths, CRC and offsets of each batch are checked, and each index entry must fit one of them (`index_check`). A
finding names the file and the byte at which the bad batch or entry begins. After a wrong CRC the check goes on behind
the batch, after bytes that are no batch with the next one that is valid. What is set aside already is a finding too,
with its offsets. Offsets may be left out below the one from which on the log leaves out none, and in repaired ranges.
The leader epochs of batches are compared with those of the log (`batch_epochs`).

Damage that nobody has met yet is set aside: reads of it are refused, health and the next checkpoint name it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace.records.batch import BatchHeader
from millrace_broker.storage.batches.salvage import SearchBounds, batch_behind
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET, walk_batches
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.recovery.index_check import IndexCheck
from millrace_broker.storage.reports import LogFinding, VerifiedSegment, VerifyReport
from millrace_broker.storage.segments.batch_epochs import Entries, EpochComparison, WrongEpoch, mend
from millrace_broker.storage.segments.damage import covering, intact_bytes, is_repaired
from millrace_broker.storage.segments.damage_search import set_aside_from
from millrace_broker.storage.segments.segment import LogSegment

Pace = Callable[[int], object]
"""A function that is called with the bytes of each batch, and may wait."""


def _at_once(_: int) -> None:
    """Lets a check go on without a break."""


class SegmentCheck:
    """One check of a segment's batches, and of its indexes, with its findings."""

    def __init__(
        self,
        fs: FileSystem,
        segment: LogSegment,
        next_base: int | None,
        gapless_from: int,
        *,
        epochs: EpochComparison,
        up_to_offset: int | None = None,
        pace: Pace = _at_once,
    ) -> None:
        """Takes the next segment's base offset, None without one; from `gapless_from` on the log leaves out no offset.

        `epochs` compares the batches' leader epochs with those of the log.
        With `up_to_offset`, where a batch ends, those above it are not checked, nor are the indexes. `pace` gets the
        size of each batch that was checked, and may wait, or raise an error that ends the check.
        """
        self.segment = segment
        self.batches = self.records = self.checked_bytes = 0
        self.indexes: IndexCheck | None = None
        self.size_bytes = segment.size_bytes
        self.damaged_offsets: list[int] = []
        self._log_findings: list[LogFinding] = []
        self._fs = fs
        self._end_offset = MAX_LONG if next_base is None else next_base
        self._gapless_from = gapless_from
        self._is_whole = up_to_offset is None
        self._up_to_offset = MAX_LONG if up_to_offset is None else up_to_offset
        self._pace = pace
        self._gaps: list[tuple[LogFinding, int]] = []
        self._epochs = epochs

    @property
    def wrong_epochs(self) -> list[WrongEpoch]:
        """The batches with another leader epoch than the log has there."""
        return self._epochs.wrong

    @property
    def findings(self) -> list[LogFinding]:
        """What was found so far, in the batches first."""
        path, indexes = self.segment.path, [] if self.indexes is None else self.indexes.findings
        epochs = [LogFinding(file=path, position=one.position, reason=str(one)) for one in self.wrong_epochs]
        return self._log_findings + epochs + indexes

    @property
    def report(self) -> VerifiedSegment:
        """The segment's size, the counts of batches and records that were read, and the number of findings."""
        return VerifiedSegment(
            base_offset=self.segment.base_offset,
            size_bytes=self.size_bytes,
            batches=self.batches,
            records=self.records,
            findings=len(self.findings),
        )

    def run(self, fd: int | None = None) -> None:
        """Checks all batches, and that each index entry fits one; those of another file instead, with its descriptor.

        Raises OSError, and what `pace` raises.
        """
        segment = self.segment
        self.indexes = IndexCheck(self._fs, segment) if self._is_whole else None
        self.size_bytes = segment.size_bytes  # after the indexes were read: none of their entries is for later batches
        if segment.damage and self.indexes is not None:
            self.indexes.note_damage()
        for one in segment.damage:
            self._find(one.position, str(one))
        for position, end in intact_bytes(segment.damage, 0, self.size_bytes):
            passed = (one.end_offset for one in segment.damage if one.end_position <= position)
            self._walk(segment.fd if fd is None else fd, position, end, max(passed, default=segment.base_offset))
        self._epochs.finish()
        if self.indexes is not None:
            self.indexes.finish()

    def set_aside(self) -> None:
        """Adds the damage that `run` found to the segment's damaged ranges, which reads pass over. Raises OSError."""
        for offset in self.damaged_offsets:
            if covering(self.segment.damage, offset) is None:
                set_aside_from(self._fs, self.segment, offset, self._gapless_from)

    def mend_epochs(self) -> int:
        """Mends leader epochs of batches where that is certain; returns how many. Raises OSError."""
        return mend(self._fs, self.segment, self.wrong_epochs)

    def _walk(self, fd: int, start: int, end: int, next_offset: int) -> None:
        """Checks the batches between two positions, the first to be at `next_offset`; goes on behind damage."""
        while start < end and next_offset < self._up_to_offset:
            try:
                for position, header, crc_holds in walk_batches(self._fs, fd, end, start):
                    self._check(position, header, next_offset, crc_holds=crc_holds)
                    start, next_offset = position + header.size_bytes, header.next_offset
                    self.checked_bytes += header.size_bytes
                    self._pace(header.size_bytes)
                    if next_offset >= self._up_to_offset:
                        return
            except RecordError as error:
                bounds = SearchBounds(end, next_offset, self.segment.base_offset + MAX_RELATIVE_OFFSET)
                found = batch_behind(self._fs, fd, start, bounds)
                behind = "the end" if found is None else f"offset {found.base_offset} at position {found.position}"
                self._find(start, f"{error}; offset {next_offset} up to {behind} can't be read")
                self._note_damage(next_offset)
                start, next_offset = (end, next_offset) if found is None else (found.position, found.base_offset)

    def _check(self, position: int, header: BatchHeader, next_offset: int, *, crc_holds: bool) -> None:
        segment = self.segment
        if not crc_holds:
            self._find(position, f"CRC-32C of the batch at offset {header.base_offset} is wrong")
            self._note_damage(next_offset)
        if header.base_offset != next_offset and not is_repaired(segment.repaired, next_offset, header.base_offset):
            self._find_offset(header, position, next_offset)
        self._epochs.note(position, header)
        if self.indexes is not None:
            self.indexes.match(position, header)
        self.batches += 1
        self.records += header.record_count

    def _find_offset(self, header: BatchHeader, position: int, expected: int) -> None:
        """Adds a finding for a batch with another offset than expected, unless offsets may be left out there."""
        reason = f"offset {header.base_offset} where {expected} is expected"
        gap = LogFinding(file=self.segment.path, position=position, reason=reason)
        is_left_out = expected < header.base_offset <= self._gapless_from
        if is_left_out and header.next_offset <= self._end_offset:
            self._gaps = [(gap, expected)]
        else:
            for finding, offset in (*self._gaps, (gap, expected)):
                self._log_findings.append(finding)
                self._note_damage(offset)
            self._gaps = []

    def _note_damage(self, offset: int) -> None:
        self.damaged_offsets.append(offset)
        if self.indexes is not None:
            self.indexes.note_damage()

    def _find(self, position: int, reason: str) -> None:
        self._log_findings.append(LogFinding(file=self.segment.path, position=position, reason=reason))


def verify_log(
    fs: FileSystem,
    topic_partition: TopicPartition,
    log_start_offset: int,
    log_end_offset: int,
    segments: Sequence[LogSegment],
    *,
    epochs: Entries,
    mend: Callable[[SegmentCheck], object],
    gapless_from: int = 0,
    dry_run: bool = False,
) -> VerifyReport:
    """Checks all batches and index entries of the segments, but for those deleted meanwhile; returns a report.

    `epochs` are those of the log up to its end, `mend` is called to mend those of batches that are wrong. From
    `gapless_from` on the log leaves out no offset. A dry run reads none. Raises OSError.
    """
    checks: list[SegmentCheck] = []
    for segment, following in zip_longest(segments, segments[1:]):
        if not segment.retain():
            continue
        try:
            next_base = None if following is None else following.base_offset
            comparison = EpochComparison(epochs, log_end_offset)
            check = SegmentCheck(fs, segment, next_base, gapless_from, epochs=comparison)
            if not dry_run:
                check.run()
                check.set_aside()
                mend(check)
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
