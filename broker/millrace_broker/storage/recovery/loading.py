"""Opening a log's folder: which segments are there, and what in them is valid (docs/durability.md).

After a clean shutdown each segment is taken as it is, once its indexes pass a cheap check, down to its newest timestamp
(`index_check`), and it ends where the next one begins. After a crash every segment from the one that holds the
recovery point on is walked batch by batch.

Damage that began below the recovery point, or any after a clean shutdown, was synced. It is set aside: the bytes stay,
`damaged-ranges` names them, and the log goes on behind them. Damage at the recovery point or above, after a crash, ends
the log: what follows is cut, and a warning says how many bytes.

Where the first segments have lost their `.log`, they are missing, too, synced or not: an index that is left tells where
the log began, and so does the log start offset of the checkpoint (`lost_segments`).

An index that is left tells in a compacted log, too, that a segment between two others is lost, and was not compacted
away, or that one was cut: it names the last batch that was there. The next start knows that only from `damaged-ranges`:
it keeps the holes that are named there, as far as nothing has filled them.

Where the log's end is damaged, it goes on in another segment at the recovery point, so that no offset is given twice.
Where nothing is left of the end, not even damaged bytes, a second checkpoint, that of the high watermark, must say that
there was more: otherwise the recovery point is wrong, and refused.

A log start offset above the log's end is refused, too: a checkpoint has it only once the log is synced up to there.

Offsets are left out inside a segment by compaction, or by damage (the CRC does not cover a batch's base offset):

| segment | offsets may be left out |
|---|---|
| after a clean shutdown, or ends at or below the recovery point | yes: its bytes were synced |
| closed, above the recovery point | if all that is not set aside is valid and it ends where the next one begins |
| the newest | below the recovery point |
| any, in a log that has followed one with gaps (`offset_gaps`) | up to the offset that the file names |
| any, within a range that was repaired (`range_files`) | yes |

Compaction works below the recovery point, which may be above the one that was checkpointed; the second row allows for
that, and compaction keeps the last batch of each segment. A lost tail or a changed base offset breaks the rule of that
row, and then offsets may be left out below the recovery point only.

A full disk keeps no log from opening: rebuilt indexes stay in memory until there is room for them, and the next start
rebuilds them again if there was none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem, file_size
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import is_disk_full
from millrace_broker.storage.filenames import (
    DAMAGED_RANGES,
    DELETED_FILE_SUFFIX,
    LOG_SUFFIX,
    OFFSET_GAPS,
    REPAIRED_RANGES,
    TXNINDEX_CHECKSUMS,
    TopicPartition,
    parse_segment_file_name,
    segment_file_name,
)
from millrace_broker.storage.recovery.index_check import is_as_indexed
from millrace_broker.storage.recovery.lost_segments import is_missing, lost_segments, signs_of_deletion
from millrace_broker.storage.recovery.offset_gaps import OffsetGaps, known_at_start, read_allowed
from millrace_broker.storage.recovery.range_files import (
    Checksums,
    Damage,
    Noted,
    read_checksums,
    read_damage,
    read_repaired,
    write_damage,
)
from millrace_broker.storage.reports import LogRecovery
from millrace_broker.storage.segments.damage import (
    ENDS_EARLY,
    AllowedGaps,
    DamagedRange,
    RepairedRange,
    Synced,
    are_still_there,
    batches_end,
    behind,
    is_repaired,
)
from millrace_broker.storage.segments.damage_search import add_holes, add_known_holes, note_missing
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_swap import finish_swaps
from millrace_broker.storage.segments.time_entries import prepare_appends

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """A log's offsets in its data folder's checkpoints, on which recovery relies; 0 where a checkpoint has no entry.

    `was_clean` says that the last shutdown synced all, and `is_start_known` that a log that begins above
    `log_start_offset` has lost segments, unless names of deleted ones are left (`lost_segments`).
    Segments of a log that was compacted elsewhere may end before the next one begins (`may_end_early`).
    """

    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    was_clean: bool = False
    is_start_known: bool = False
    may_end_early: bool = False

    @property
    def last_end(self) -> int:
        """The offset up to which batches may leave out offsets; above it each follows on the one before it."""
        return MAX_LONG if self.was_clean and not self.recovery_point else self.recovery_point

    @property
    def synced_at_end(self) -> Synced:
        """The part of the newest segment that was surely synced, by recovery point and clean-shutdown marker."""
        if not self.was_clean:
            return Synced(self.recovery_point, self.recovery_point)
        return Synced(MAX_LONG, self.recovery_point or None, is_end=self.recovery_point > 0)


@dataclass(slots=True)
class LoadedLog:
    """The segments of a log's folder, the last one ready for appends, and what was done to open them."""

    segments: list[LogSegment] = field(default_factory=list)
    log_start_offset: int = 0
    next_offset: int = 0
    was_clean: bool = False
    gaps_allowed_below: int = 0
    repaired: tuple[RepairedRange, ...] = ()
    recovered_segments: int = 0
    truncated_bytes: int = 0
    dropped_segments: int = 0
    deleted: list[str] = field(default_factory=list)
    noted: Noted = field(default_factory=lambda: Noted({}, None))

    def offset_gaps(self, fs: FileSystem, directory: str, first_dirty_offset: int | None) -> OffsetGaps:
        """Returns where the log may leave out offsets; the offset is that of the cleaner's checkpoint."""
        known = known_at_start(
            self.gaps_allowed_below, end_offset=self.next_offset, first_dirty_offset=first_dirty_offset
        )
        gaps = OffsetGaps(fs, directory, allowed_below=self.gaps_allowed_below, gapless_from=known)
        gaps.repaired_end = max((one.end_offset for one in self.repaired), default=0)
        return gaps

    def report(self, topic_partition: TopicPartition, log_start_offset: int) -> LogRecovery:
        """Returns how the log was opened, for the broker's `RecoveryReport`."""
        return LogRecovery(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            was_clean=self.was_clean,
            segments=len(self.segments),
            recovered_segments=self.recovered_segments,
            truncated_bytes=self.truncated_bytes,
            dropped_segments=self.dropped_segments,
            log_start_offset=log_start_offset,
            log_end_offset=self.next_offset,
        )


def load_log(fs: FileSystem, directory: str, config: LogConfig, promises: Promises) -> LoadedLog:
    """Opens all segments of a folder; a folder without any gets an empty one at the log start offset.

    Raises OSError, and then no file stays open.
    """
    loaded = LoadedLog(was_clean=promises.was_clean)
    with ExitStack() as undo:
        undo.callback(_release_all, loaded)
        _Loading(fs, directory, config, promises, loaded).load()
        undo.pop_all()
    return loaded


def _release_all(loaded: LoadedLog) -> None:
    for segment in loaded.segments:
        segment.release()


class _Loading:
    """The opening of one log's folder, segment by segment."""

    def __init__(
        self, fs: FileSystem, directory: str, config: LogConfig, promises: Promises, loaded: LoadedLog
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._config = config
        self._promises = promises
        self._loaded = loaded
        self._may_end_early = promises.may_end_early
        self._named: Damage = {}
        self._is_named_damage_known = True
        self._checksums: Checksums | None = None
        self._lost: list[int] = []
        self._first = 0  # the base offset of the first segment that is not lost

    def load(self) -> None:
        fs, directory, loaded = self._fs, self._directory, self._loaded
        names = finish_swaps(fs, directory)  # few have more than segments, and what is not there is not asked for
        if OFFSET_GAPS in names:
            loaded.gaps_allowed_below = read_allowed(fs, directory)
            self._may_end_early = True
        if REPAIRED_RANGES in names:
            loaded.repaired = read_repaired(fs, directory)
        if DAMAGED_RANGES in names:
            self._read_damage()
        if TXNINDEX_CHECKSUMS in names:
            self._checksums = read_checksums(fs, directory)
        files = {name: parsed for name in names if (parsed := parse_segment_file_name(name))}
        is_just_made = not self._promises.log_start_offset and _is_just_made(fs, directory, files)
        bases: list[int] = []
        if not is_just_made:
            self._lost = lost_segments(names, files, self._promises.log_start_offset, may_end_early=self._may_end_early)
            signs = self._check_first(names, files)
            bases = sorted([*self._lost, *_tidy(fs, directory, [*{*names} - {*signs}], files, self._lost)])
            self._name_first()
        loaded.next_offset = self._promises.log_start_offset
        for base, next_base in zip(bases, [*bases[1:], None], strict=False):
            if not self._take(base, next_base):
                _drop(fs, directory, loaded, [each for each in bases if each > base])
                break
        if not bases:
            self._begin(loaded.next_offset)
            if not is_just_made:
                fs.fsync_dir(directory)  # a crash must not keep a later segment's name alone: the log would begin there
        self._check_end()
        self._check_start()
        self._name_damage()

    def _check_first(self, names: Collection[str], files: Mapping[str, tuple[int, str]]) -> Collection[str]:
        """Adds a segment at the known start to the lost ones, if the log begins above it and no deletion says why.

        Returns the names that say it: they stay, in the log's list of files to remove.
        """
        logs, start = {base for base, suffix in files.values() if suffix == LOG_SUFFIX}, self._promises.log_start_offset
        first = min(logs.union(self._lost), default=0)
        self._first = min(logs, default=0)
        if not (self._promises.is_start_known and logs and start < first):
            return ()
        signs = [] if self._promises.was_clean else signs_of_deletion(names, start, first)
        self._loaded.deleted = [os.path.join(self._directory, name) for name in signs]
        if not signs:
            self._lost.insert(0, start)
        return signs

    def _name_first(self) -> None:
        """Writes down what is lost before the first segment, before it gets files: a crash would leave them empty.

        They would look like those of a segment that was not synced, behind which a log ends.
        """
        lost = [base for base in self._lost if base < self._first]
        if lost and self._is_named_damage_known:
            holes = {base: (DamagedRange(base, end, 0, 0, ENDS_EARLY),) for base, end in pairwise([*lost, self._first])}
            named = {**self._named, **holes}
            self._named = named if self._write_damage(named) else self._named

    def _read_damage(self) -> None:
        try:
            self._named = read_damage(self._fs, self._directory)
        except CorruptRecordError as error:
            logger.warning("%s; all segments are walked for it", error)
            self._is_named_damage_known = False

    def _take(self, base: int, next_base: int | None) -> bool:
        """Opens the segment at offset `base`; returns false if the segments behind it must be dropped."""
        segment = LogSegment(self._fs, self._directory, base, self._config)
        self._loaded.segments.append(segment)
        segment.repaired = self._loaded.repaired
        named = self._still_missing(base)
        is_known = self._is_named_damage_known and are_still_there(self._fs, segment.fd, named, base)
        segment.damage = named if is_known else ()
        was_clean, recovery_point = self._promises.was_clean, self._promises.recovery_point
        is_hole = next_base is not None and is_known and is_missing(named, base, next_base)
        if next_base is not None and (was_clean or is_hole or next_base <= max(recovery_point, self._first)):
            # At the recovery point itself the batches are synced, but perhaps not the last index entries.
            is_synced = base not in self._lost and (was_clean or next_base < recovery_point)
            self._take_closed(segment, next_base, trusts=is_known and is_synced and self._has_its_aborted(segment))
            return True
        trusts = is_known and was_clean and self._has_its_aborted(segment)
        return self._take_newest(segment, next_base, trusts=trusts)

    def _has_its_aborted(self, segment: LogSegment) -> bool:
        """Returns whether the transaction index is what was noted of it, where anything was noted."""
        index, base = segment.transaction_index, segment.base_offset
        if self._checksums is None or index.checksum == self._checksums.get(base):
            return True
        if base in self._checksums:
            logger.warning("%s is not as it was written; it is made again of the log's batches", index.path)
        return False

    def _still_missing(self, base: int) -> tuple[DamagedRange, ...]:
        """Returns a segment's ranges in the file `damaged-ranges`, without holes that a repair has given up."""
        return tuple(one for one in self._named.get(base, ()) if not one.is_hole or not self._is_repaired(one))

    def _keep_holes(self, segment: LogSegment, end_offset: int) -> None:
        """Adds the named holes up to `end_offset` again: a walk takes one for what compaction has left out."""
        base_offset = segment.base_offset
        holes = [one for one in self._still_missing(base_offset) if one.is_hole and one.end_offset <= end_offset]
        add_known_holes(self._fs, segment, holes)

    def _is_repaired(self, damaged: DamagedRange) -> bool:
        return is_repaired(self._loaded.repaired, damaged.start_offset, damaged.end_offset)

    def _take_closed(self, segment: LogSegment, next_base: int, *, trusts: bool) -> None:
        """Loads a synced segment, without reading its batches if it `trusts` the indexes; cuts nothing off."""
        self._loaded.next_offset = next_base
        indexed_end, batches_end = segment.indexed_end, self._batches_end(segment, next_base)
        least_end = min(batches_end, indexed_end) if self._may_end_early else batches_end
        if trusts and segment.load_closed(next_base) and is_as_indexed(segment, least_end):
            return
        segment.recover(AllowedGaps(next_base), truncate=False, synced=Synced(MAX_LONG, next_base, is_end=True))
        add_holes(self._fs, segment)
        may_end_early = self._may_end_early and segment.base_offset not in self._lost
        if not may_end_early or segment.next_offset < min(indexed_end, batches_end):
            note_missing(segment, batches_end)
        self._keep_holes(segment, next_base)
        segment.finish()
        segment.next_offset = next_base
        if segment.write_indexes():
            segment.sync()
            segment.seal()
        self._loaded.recovered_segments += 1

    def _take_newest(self, segment: LogSegment, next_base: int | None, *, trusts: bool) -> bool:
        """Loads a segment, by its indexes if it `trusts` them; returns false if those behind it must be dropped."""
        is_loaded = trusts and segment.load_active() and prepare_appends(segment)
        if not (is_loaded and segment.next_offset <= self._promises.last_end):
            self._recover(segment, next_base)
        self._loaded.next_offset = segment.next_offset
        if next_base is None:
            return True
        if segment.next_offset < self._batches_end(segment, next_base) or segment.next_offset > next_base:
            ends = segment.next_offset
            logger.warning("%s: ends at %d, the next segment begins at %d", segment.path, ends, next_base)
            return False
        segment.finish()
        self._loaded.next_offset = segment.next_offset = next_base
        return True

    def _batches_end(self, segment: LogSegment, next_base: int) -> int:
        return batches_end(self._loaded.repaired, segment.base_offset, next_base)

    def _recover(self, segment: LogSegment, next_base: int | None) -> None:
        loaded, promises = self._loaded, self._promises
        loaded.recovered_segments += 1
        if next_base is not None and self._is_whole(segment, next_base):
            return
        gaps = AllowedGaps(promises.last_end, loaded.gaps_allowed_below)
        cut_bytes, reason = segment.recover(gaps, truncate=True, synced=promises.synced_at_end)
        loaded.truncated_bytes += cut_bytes
        add_holes(self._fs, segment)
        self._keep_holes(segment, segment.next_offset)
        if cut_bytes:
            segment.sync_batches()
            position = segment.size_bytes
            logger.warning("%s: truncated %d bytes at position %d: %s", segment.path, cut_bytes, position, reason)

    def _is_whole(self, segment: LogSegment, next_base: int) -> bool:
        """Rebuilds a closed segment's indexes; returns false if it ends early or unsynced bytes are damaged."""
        segment.recover(AllowedGaps(next_base), truncate=False, synced=Synced(MAX_LONG, next_base, is_end=True))
        if any(one.start_offset >= self._promises.recovery_point for one in segment.damage):
            return False
        self._keep_holes(segment, segment.next_offset)
        return self._batches_end(segment, next_base) <= segment.next_offset <= next_base

    def _check_end(self) -> None:
        """Begins a segment behind a damaged or repaired end; adds a damaged range for offsets that the end lacks."""
        loaded, recovery_point = self._loaded, self._promises.recovery_point
        newest = loaded.segments[-1]
        repaired_end = behind(loaded.repaired, loaded.next_offset)
        if repaired_end > loaded.next_offset:
            newest.next_offset = loaded.next_offset = repaired_end
            newest.finish()
            self._begin(repaired_end)
            newest = loaded.segments[-1]
        witnessed = min(recovery_point, self._promises.high_watermark)
        if loaded.next_offset < witnessed:
            note_missing(newest, witnessed)
        elif loaded.next_offset < recovery_point:
            loaded.was_clean = False
            logger.error(
                "%s: the log ends at %d, and its recovery point is said to be %d: that is refused",
                self._directory,
                loaded.next_offset,
                recovery_point,
            )
        if newest.damage and newest.damage[-1].end_position == newest.size_bytes:
            newest.finish()
            self._begin(newest.next_offset)

    def _check_start(self) -> None:
        loaded, start_offset = self._loaded, self._promises.log_start_offset
        loaded.log_start_offset = start_offset
        if loaded.next_offset < start_offset:
            loaded.log_start_offset = loaded.segments[0].base_offset
            logger.error(
                "%s: the log ends at %d, and is said to start at %d: that is refused, and it starts at %d",
                self._directory,
                loaded.next_offset,
                start_offset,
                loaded.log_start_offset,
            )

    def _begin(self, base_offset: int) -> None:
        segment = LogSegment(self._fs, self._directory, base_offset, self._config)
        self._loaded.segments.append(segment)
        segment.begin()
        self._loaded.next_offset = base_offset

    def _name_damage(self) -> None:
        """Reports all damaged ranges in the broker's log, and writes them to `damaged-ranges` if it has others."""
        damage = {segment.base_offset: segment.damage for segment in self._loaded.segments if segment.damage}
        for segment in self._loaded.segments:
            for one in segment.damage:
                logger.error("%s: %s", segment.path, one)
        is_named = damage == self._named and self._is_named_damage_known
        is_named = is_named or self._write_damage(damage)
        self._loaded.noted = Noted(damage if is_named else self._named, self._checksums)

    def _write_damage(self, damage: Damage) -> bool:
        """Writes `damaged-ranges`; returns false without room for it."""
        try:
            write_damage(self._fs, self._directory, damage)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return False
        return True


def _is_just_made(fs: FileSystem, directory: str, files: Collection[str]) -> bool:
    """Returns whether the folder is new: it has the empty file of its first segment, and none of another."""
    first = segment_file_name(0, LOG_SUFFIX)
    return len(files) == 1 and first in files and not file_size(fs, os.path.join(directory, first))


def _tidy(
    fs: FileSystem, directory: str, names: Sequence[str], files: Mapping[str, tuple[int, str]], lost: Collection[int]
) -> list[int]:
    """Removes files of segments that lack their `.log` and other leftovers; returns the segments' base offsets, sorted.

    `files` has the base offset and the suffix of those names that are a segment's; what is `lost` stays.
    """
    bases = sorted(base for base, suffix in files.values() if suffix == LOG_SUFFIX)
    orphans = [name for name, (base, _) in files.items() if base not in bases and base not in lost]
    if orphans:
        logger.warning("%s: segments are deleted or lost, of which these are left: %s", directory, ", ".join(orphans))
    leftovers = [name for name in names if name.endswith((DELETED_FILE_SUFFIX, TEMPORARY_SUFFIX))]
    _unlink(fs, directory, [*orphans, *leftovers])
    return bases


def _drop(fs: FileSystem, directory: str, loaded: LoadedLog, bases: list[int]) -> None:
    """Removes the files of the segments in `bases`, as those before them end too early."""
    files = [name for name in fs.listdir(directory) if (parsed := parse_segment_file_name(name)) and parsed[0] in bases]
    cut_bytes = sum(file_size(fs, os.path.join(directory, name)) for name in files if name.endswith(LOG_SUFFIX))
    _unlink(fs, directory, files)
    loaded.dropped_segments += len(bases)
    loaded.truncated_bytes += cut_bytes
    if bases:
        logger.warning("%s: truncated %d bytes in %d later segments", directory, cut_bytes, len(bases))


def _unlink(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    removed = False
    for name in names:
        fs.unlink(os.path.join(directory, name))
        removed = True
    if removed:
        fs.fsync_dir(directory)
