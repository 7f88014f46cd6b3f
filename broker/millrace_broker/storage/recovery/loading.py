"""Opening a log's folder: which segments are there, and what in them is valid (docs/durability.md).

After a clean shutdown each segment is taken as it is, once its indexes pass a cheap check. After a crash every segment
from the one that holds the recovery point on is walked batch by batch. The log ends at the first byte that is no valid
batch, or at the first gap between two segments there: what lies behind is cut, and a warning says how many bytes.
Segments that end at or below the recovery point are never cut: their bytes were synced, and `verify` reports damage in
them.

Offsets are left out inside a segment by compaction, or by damage (the CRC does not cover a batch's base offset):

| segment | offsets may be left out |
|---|---|
| after a clean shutdown, or ends at or below the recovery point | yes: its bytes were synced |
| closed, above the recovery point | if all of it is valid and it ends where the next one begins |
| the newest | below the recovery point |
| any, in a log that has followed one with gaps (`offset_gaps`) | yes |

Compaction works below the recovery point, which may be above the one that was checkpointed; the second row allows for
that, and compaction keeps the last batch of each segment. A lost tail or a changed base offset breaks the rule of that
row, and then offsets may be left out below the recovery point only.

A full disk keeps no log from opening: rebuilt indexes stay in memory until there is room for them, and the next start
rebuilds them again if there was none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from millrace.config import MAX_LONG
from millrace.fs import FileSystem
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.filenames import (
    DELETED_FILE_SUFFIX,
    LOG_SUFFIX,
    TopicPartition,
    parse_segment_file_name,
)
from millrace_broker.storage.recovery.offset_gaps import may_have_gaps
from millrace_broker.storage.reports import LogRecovery
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_swap import finish_swaps

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".tmp"


@dataclass(slots=True)
class LoadedLog:
    """The segments of a folder, the last one ready to grow, and what was done to open them."""

    segments: list[LogSegment] = field(default_factory=list)
    next_offset: int = 0
    was_clean: bool = False
    may_have_gaps: bool = False
    recovered_segments: int = 0
    truncated_bytes: int = 0
    dropped_segments: int = 0

    def report(self, topic_partition: TopicPartition, log_start_offset: int) -> LogRecovery:
        """Returns what was found and done, as a report."""
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


def load_log(
    fs: FileSystem, directory: str, config: LogConfig, *, recovery_point: int, log_start_offset: int, clean: bool
) -> LoadedLog:
    """Opens all segments of a folder; a folder without any gets an empty one at the log start offset.

    OSError passes, and then no file stays open.
    """
    loaded = LoadedLog(next_offset=log_start_offset, was_clean=clean)
    with ExitStack() as undo:
        undo.callback(_release_all, loaded)
        _load(loaded, fs, directory, config, recovery_point=recovery_point, clean=clean)
        undo.pop_all()
    return loaded


def _release_all(loaded: LoadedLog) -> None:
    for segment in loaded.segments:
        segment.release()


def _load(
    loaded: LoadedLog, fs: FileSystem, directory: str, config: LogConfig, *, recovery_point: int, clean: bool
) -> None:
    log_start_offset = loaded.next_offset
    finish_swaps(fs, directory)
    loaded.may_have_gaps = may_have_gaps(fs, directory)
    bases = _tidy(fs, directory)
    for base, next_base in zip(bases, [*bases[1:], None], strict=False):
        segment = LogSegment(fs, directory, base, config)
        loaded.segments.append(segment)
        if next_base is not None and (clean or next_base <= recovery_point):
            # At the recovery point itself the batches are synced, but perhaps not the last index entries.
            _take_closed(loaded, segment, next_base, trust_indexes=clean or next_base < recovery_point)
        elif not _take_newest(loaded, segment, next_base, recovery_point=recovery_point, clean=clean):
            _drop(fs, directory, loaded, [each for each in bases if each > base])
            break
    if loaded.next_offset < log_start_offset:
        _drop_all(fs, directory, loaded, log_start_offset)
    if not loaded.segments:
        segment = LogSegment(fs, directory, log_start_offset, config)
        loaded.segments.append(segment)
        segment.begin()


def _take_closed(loaded: LoadedLog, segment: LogSegment, next_base: int, *, trust_indexes: bool) -> None:
    """Loads a segment whose batches are synced: they stay as they are, valid or not; indexes are rebuilt if need be."""
    if trust_indexes and segment.load_closed(next_base):
        return
    bad_bytes, reason = segment.recover(truncate=False, gaps_up_to_offset=next_base)
    segment.finish()
    segment.next_offset = next_base
    if segment.write_indexes():
        segment.sync()
        segment.seal()
    loaded.recovered_segments += 1
    if bad_bytes:
        position = segment.size_bytes - bad_bytes
        logger.error("%s: damaged at position %d, %d bytes: %s", segment.path, position, bad_bytes, reason)


def _take_newest(
    loaded: LoadedLog, segment: LogSegment, next_base: int | None, *, recovery_point: int, clean: bool
) -> bool:
    """Loads a segment whose tail may be lost; returns false where the log must end with it though others follow."""
    if not clean or not segment.load_active():
        _recover(loaded, segment, next_base, MAX_LONG if clean or loaded.may_have_gaps else recovery_point)
    loaded.next_offset = segment.next_offset
    if next_base is None:
        return True
    if segment.next_offset != next_base:
        logger.warning("%s: ends at %d, the next segment begins at %d", segment.path, segment.next_offset, next_base)
        return False
    segment.finish()
    return True


def _recover(loaded: LoadedLog, segment: LogSegment, next_base: int | None, gaps_up_to_offset: int) -> None:
    loaded.recovered_segments += 1
    if next_base is not None and _is_whole(segment, next_base):
        return
    cut_bytes, reason = segment.recover(truncate=True, gaps_up_to_offset=gaps_up_to_offset)
    loaded.truncated_bytes += cut_bytes
    if cut_bytes:
        segment.sync_batches()
        position = segment.size_bytes
        logger.warning("%s: truncated %d bytes at position %d: %s", segment.path, cut_bytes, position, reason)


def _is_whole(segment: LogSegment, next_base: int) -> bool:
    """Rebuilds the indexes of a closed segment; returns false where it is damaged or ends too early."""
    bad_bytes, _ = segment.recover(truncate=False, gaps_up_to_offset=next_base)
    return not bad_bytes and segment.next_offset == next_base


def _tidy(fs: FileSystem, directory: str) -> list[int]:
    """Removes what a crash left half done; returns the base offsets of the segments, sorted."""
    names = fs.listdir(directory)
    files = {name: parsed for name in names if (parsed := parse_segment_file_name(name))}
    bases = sorted(base for base, suffix in files.values() if suffix == LOG_SUFFIX)
    orphans = [name for name, (base, _) in files.items() if base not in bases]
    leftovers = [name for name in names if name.endswith((DELETED_FILE_SUFFIX, TEMPORARY_SUFFIX))]
    _unlink(fs, directory, [*orphans, *leftovers])
    return bases


def _drop(fs: FileSystem, directory: str, loaded: LoadedLog, bases: list[int]) -> None:
    """Removes the segments behind a cut, whose batches no longer follow on anything."""
    files = [name for name in fs.listdir(directory) if (parsed := parse_segment_file_name(name)) and parsed[0] in bases]
    cut_bytes = sum(_size(fs, os.path.join(directory, name)) for name in files if name.endswith(LOG_SUFFIX))
    _unlink(fs, directory, files)
    loaded.dropped_segments += len(bases)
    loaded.truncated_bytes += cut_bytes
    if bases:
        logger.warning("%s: truncated %d bytes in %d later segments", directory, cut_bytes, len(bases))


def _drop_all(fs: FileSystem, directory: str, loaded: LoadedLog, log_start_offset: int) -> None:
    """Removes all segments of a log that was cut below its start; it goes on, empty, at the start."""
    segments, loaded.segments = loaded.segments, []
    for segment in segments:
        segment.release()
    _drop(fs, directory, loaded, [segment.base_offset for segment in segments])
    loaded.next_offset = log_start_offset


def _unlink(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    removed = False
    for name in names:
        fs.unlink(os.path.join(directory, name))
        removed = True
    if removed:
        fs.fsync_dir(directory)


def _size(fs: FileSystem, path: str) -> int:
    fd = fs.open(path)
    try:
        return fs.size(fd)
    finally:
        fs.close(fd)
