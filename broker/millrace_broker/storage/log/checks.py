"""The checks of a log while it is in use: of all of it at once, or of one segment at a time, as the scrubber asks.

`verify` goes over all segments by the descriptors that the broker has open, sets damage aside and mends leader epochs.
`SegmentScrub` looks at what the next
start would find: it opens the file of a closed segment by its name.

| what is wrong | what becomes of it |
|---|---|
| batches of the file | they are set aside (`damage`), and whoever heals damage finds them there |
| the file's name is gone, or names other bytes, and the open file is whole | the segment is written again |
| the same, and the open file is damaged, too | its damage is set aside, and the segment is written again |
| the name is gone, and the file is not open any more (`millrace.descriptor_pool`) | the whole segment is set aside |
| an index file is gone, or does not fit the batches, which are whole | the segment is written again, with its indexes |
| the index of aborted transactions is not as it was written | it is not read, and whoever heals damage makes it again |
| the leader epoch of a batch, which no checksum covers | it is written again where that is certain (`batch_epochs`) |
| the name of the active segment is gone | the next append begins another one, or else whoever heals; then as above |

To write a segment again is to copy it beside itself, rebuild the indexes of the copy, sync it, and swap it for the old
one as compaction does (`segment_swap`): readers keep the old one until they are done. A crash before the swap leaves
`.rewritten.tmp` files, which a start removes. Nothing is written again that a truncation, retention or compaction has
taken out of the log meanwhile.

What was found without a lock counts only if the log still has the segment, and was not truncated since. That is looked
at, and damage set aside, while `names_lock` is held, which keeps truncations out and holds up no append and no read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import REWRITTEN_FILE_SUFFIX
from millrace_broker.storage.log.healing import COPY_BYTES, SegmentHealing
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments
from millrace_broker.storage.recovery.verification import Pace, SegmentCheck, verify_log
from millrace_broker.storage.reports import VerifyReport
from millrace_broker.storage.segments.batch_epochs import EpochComparison
from millrace_broker.storage.segments.damage import DamagedRange
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)


def verify(fs: FileSystem, segments: LogSegments, epochs: LeaderEpochs, *, dry_run: bool) -> VerifyReport:
    """Checks all segments that a log has now, and begins again where it is truncated meanwhile. Raises StorageError."""
    while True:
        with segments.names_lock:  # while no truncation is at work
            truncations, end, now = segments.truncations, segments.end_offset, segments.now
        with storage_errors(segments.directory):
            report = verify_log(
                fs, segments.topic_partition, segments.start_offset, end, now[:],
                epochs=epochs.entries, mend=partial(_mend_epochs, segments, truncations),
                gapless_from=segments.gaps.gapless_from, dry_run=dry_run,
            )  # fmt: skip
        with segments.names_lock:
            if truncations == segments.truncations:
                return report


def _mend_epochs(segments: LogSegments, truncations: int, check: SegmentCheck) -> int | None:
    """Mends leader epochs of a segment's batches; returns how many, None where the log has changed. Raises OSError."""
    with _settled(segments, truncations, check.segment) as is_settled:
        return check.mend_epochs() if is_settled else None


@contextmanager
def _settled(segments: LogSegments, truncations: int, segment: LogSegment) -> Iterator[bool]:
    """Yields whether a log still has a segment as it was; within the context it is not cut, nor taken out."""
    with segments.names_lock:
        is_same_log = not segments.is_closed and segments.truncations == truncations
        yield is_same_log and not segments.is_held and segment in segments.now


@dataclass(slots=True)
class Scrubbed:
    """The result of one segment's check: the bytes that were read, and what was found and not known before."""

    checked_bytes: int = 0
    findings: int = 0
    is_left: bool = False  # something is wrong that the next round must see to


class SegmentScrub:
    """One check of one segment of a log that is in use."""

    def __init__(
        self,
        fs: FileSystem,
        segments: LogSegments,
        config: LogConfig,
        segment: LogSegment,
        epochs: LeaderEpochs,
        *,
        recovery_point: int,
        pace: Pace,
    ) -> None:
        """Takes the log's segments and settings, and up to where it is synced: no more of the active one is checked."""
        self.result = Scrubbed()
        self._fs = fs
        self._segments = segments
        self._config = config
        self._segment = segment
        self._recovery_point = recovery_point
        self._pace = pace
        self._truncations = segments.truncations
        self._epochs = epochs.entries  # at the recovery point at least, and of all closed segments

    def run(self) -> Scrubbed:
        """Checks the segment unless the log has lost it; returns the result. Raises OSError, and what `pace` raises."""
        segment, now = self._segment, self._segments.now
        if segment in now and segment.retain():
            try:
                if segment is now.active:
                    self._check_active()
                else:
                    self._check_closed(now[now.index(segment) + 1].base_offset)
            finally:
                segment.release()
        return self.result

    def _check_active(self) -> None:
        segment = self._segment
        check = self._new_check(None, up_to_offset=self._recovery_point)
        check.run()
        self.result.checked_bytes = check.checked_bytes
        self._set_aside(check)
        self._mend_epochs(check)
        if segment.size_bytes and not self._fs.exists(segment.path) and self._is_active_still():
            segment.has_lost_its_name = True
            segment.is_index_full = True  # so the next append begins another segment
            self.result.is_left = True
            self._tell("%s is missing; it is written again once another segment has begun", segment.path)

    def _new_check(self, next_base: int | None, up_to_offset: int | None = None) -> SegmentCheck:
        comparison = EpochComparison(self._epochs, MAX_LONG if up_to_offset is None else up_to_offset)
        return SegmentCheck(
            self._fs, self._segment, next_base, self._segments.gaps.gapless_from,
            epochs=comparison, up_to_offset=up_to_offset, pace=self._pace,
        )  # fmt: skip

    def _is_active_still(self) -> bool:
        with self._settled() as is_settled:
            return is_settled and self._segment is self._segments.now.active and not self._fs.exists(self._segment.path)

    def _check_closed(self, next_base: int) -> None:
        segment = self._segment
        named = self._new_check(next_base)
        is_there = self._run_by_name(named)
        self.result.checked_bytes = named.checked_bytes
        if is_there and not named.damaged_offsets:
            self._mend_epochs(named)
            self._check_indexes(named)
            return
        if not is_there and not self._is_open():
            self._set_all_aside()
            return
        opened = self._new_check(next_base)
        opened.run()
        self._set_aside(opened)
        self._mend_epochs(opened)
        if not is_there:
            self._write_again(segment.path, "the file is missing")
        elif not opened.damaged_offsets:
            self._write_again(segment.path, named.findings[0].reason)

    def _is_open(self) -> bool:
        """Returns whether the segment's file can be read though its name is gone, as its descriptor is still open."""
        try:
            self._segment.read_at(0, 1)
        except FileNotFoundError:
            return False
        return True

    def _check_indexes(self, check: SegmentCheck) -> None:
        """Has the segment written again where an index is wrong; one with damage gets others when it heals."""
        segment = self._segment
        aborted = segment.transaction_index
        if segment.damage or check.indexes is None:
            return
        try:
            has_aborted = bool(aborted.entries())
        except CorruptRecordError as error:
            self.result.is_left = True
            self._tell("%s; it is made again, of the log's batches", error)
            return
        if check.indexes.findings:
            finding = check.indexes.findings[0]
            self._write_again(f"{finding.file}, byte {finding.position}", finding.reason)
        elif has_aborted and not self._fs.exists(aborted.path):
            self._write_again(aborted.path, "the file is missing")

    def _run_by_name(self, check: SegmentCheck) -> bool:
        """Checks the file that has the segment's name; returns false where there is none."""
        try:
            fd = self._fs.open(self._segment.path)
        except FileNotFoundError:
            return False
        try:
            check.run(fd)
        finally:
            self._fs.close(fd)
        return True

    def _settled(self) -> AbstractContextManager[bool]:
        return _settled(self._segments, self._truncations, self._segment)

    def _set_aside(self, check: SegmentCheck) -> None:
        if not check.damaged_offsets:
            return
        with self._settled() as is_settled:
            if is_settled:
                before = len(self._segment.damage)
                check.set_aside()
                self.result.findings += len(self._segment.damage) - before

    def _mend_epochs(self, check: SegmentCheck) -> None:
        """Mends leader epochs of batches in the open file, and syncs that. Raises OSError."""
        wrong = check.wrong_epochs
        if not wrong:
            return
        mended = _mend_epochs(self._segments, self._truncations, check)
        if mended is None:
            return
        self.result.findings += len(wrong)
        if mended:
            self._fs.fsync(self._segment.fd)
        elif self._segment is not self._segments.now.active and any(one.is_certain for one in wrong):
            self._write_again(self._segment.path, str(wrong[0]))  # the open file is right, the one with the name is not

    def _set_all_aside(self) -> None:
        segment = self._segment
        whole = DamagedRange(segment.base_offset, segment.next_offset, 0, segment.size_bytes, "the file is missing")
        with self._settled() as is_settled:
            if is_settled and segment.damage != (whole,) and not self._fs.exists(segment.path):
                segment.damage = ()
                segment.add_damage(whole)
                self.result.findings += 1
                logger.error("%s: %s", segment.path, whole)

    def _write_again(self, path: str, reason: str) -> None:
        """Swaps the segment for a copy of itself with new indexes, unless it is not synced yet. Raises OSError."""
        segment = self._segment
        with self._settled() as is_settled:
            self.result.is_left |= is_settled and not segment.is_sealed
            if not is_settled or not segment.is_sealed:
                return
        delay_ms = self._config.file_delete_delay_ms
        with SegmentHealing(self._fs, self._segments.directory, self._config, segment, REWRITTEN_FILE_SUFFIX) as new:
            for position in range(COPY_BYTES, segment.size_bytes + COPY_BYTES, COPY_BYTES):
                new.copy_up_to(min(position, segment.size_bytes))
                self._pace(COPY_BYTES)
            known, copied = {one.start_offset for one in segment.damage}, new.complete()
            unknown = [one for one in copied.damage if one.start_offset not in known]
            if unknown:
                raise CorruptRecordError(f"{segment.path} can't be written again: {unknown[0]}")
            copied.damage = segment.damage
            if self._segments.replace([segment], copied, self._truncations, delay_ms):
                new.taken()
                self._tell("%s: %s; the segment was written again from the file that is open", path, reason)

    def _tell(self, sentence: str, *values: object) -> None:
        self.result.findings += 1
        logger.warning(sentence, *values)
