"""The swap of a compacted segment for those that it was made of: a crash leaves the old ones or the new one.

A segment that is written again takes its own place in the same way (`log.checks`).

    step                                                       what a crash behind it leaves
    1  write and sync <base>.{log,index,timeindex}.cleaned     the old ones; `.cleaned` is removed at the next start
    2  rename .cleaned -> .swap, the .log last                 the old ones, unless the .log.swap is there
    3  sync the folder                                         the new one, from here on: the start does 4 to 7
    4  rename the old files -> .replaced.deleted
    5  sync the folder: no old file may outlive the .swap name
    6  rename .swap -> no suffix, the .log last
    7  sync the folder

A `.log.swap` is the decision: it holds all that stays of the segments from its base offset to its end, and each byte of
it was synced before the name existed. The suffixes, and what a start does with them, are Kafka's, which takes what ends
with `.deleted` for deleted; only here it says of a segment that the log begins behind it (`recovery.lost_segments`). An
index that is missing is rebuilt.

The producer snapshots at the old segments' base offsets are deleted with them. Such a snapshot may list a transaction
as open whose marker was in the segment behind it and has been compacted away; a recovery from there would never see it
end. The batches that are left say the same of their producers, and newer snapshots are still there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace_broker.storage.batches.scan import walk_batches
from millrace_broker.storage.filenames import (
    CLEANED_FILE_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    REPLACED_FILE_SUFFIX,
    SWAP_FILE_SUFFIX,
    parse_segment_file_name,
    parse_snapshot_file_name,
    segment_file_name,
)
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)


def swap_in(fs: FileSystem, directory: str, old: Sequence[LogSegment], new: LogSegment) -> list[str]:
    """Renames a compacted segment into the place of `old` (steps 2 to 7 above); returns the old files, to be removed.

    After an OSError the folder is as after a crash at that step.
    """
    new.change_suffix(SWAP_FILE_SUFFIX)
    fs.fsync_dir(directory)
    deleted: list[str] = []
    for segment in old:
        snapshot = os.path.join(directory, segment_file_name(segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX))
        for path in filter(fs.exists, [*segment.file_paths(), snapshot]):
            fs.rename(path, path + REPLACED_FILE_SUFFIX)
            deleted.append(path + REPLACED_FILE_SUFFIX)
    fs.fsync_dir(directory)
    new.change_suffix("")
    fs.fsync_dir(directory)
    return deleted


def discard(fs: FileSystem, segment: LogSegment) -> None:
    """Closes a segment that won't take another's place, and removes its files. Raises OSError."""
    paths = segment.file_paths()
    segment.release()
    for path in paths:
        with suppress(FileNotFoundError):
            fs.unlink(path)


def finish_swaps(fs: FileSystem, directory: str) -> list[str]:
    """Removes `.cleaned` files at a start, and completes each swap with a `.log.swap`. Raises OSError.

    Returns the names that are in the folder then, so that it need not be listed again.
    """
    names = fs.listdir(directory)
    leftovers = [name for name in names if name.endswith(CLEANED_FILE_SUFFIX)]
    decided = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_FILE_SUFFIX)]
    for name in decided:
        end_offset = _end_of_valid(fs, os.path.join(directory, name))
        if end_offset is None and name.removesuffix(SWAP_FILE_SUFFIX) in names:
            logger.error("%s: the compacted segment %s is damaged; the old one stays", directory, name)
            leftovers.append(name)
        else:
            _finish_swap(fs, directory, name, end_offset)
    names = fs.listdir(directory) if decided else names
    leftovers += [name for name in names if name.endswith(SWAP_FILE_SUFFIX) and name not in leftovers]
    for name in leftovers:
        fs.unlink(os.path.join(directory, name))
    if leftovers or decided:
        fs.fsync_dir(directory)
        names = fs.listdir(directory)
    return names


def _finish_swap(fs: FileSystem, directory: str, log_name: str, end_offset: int | None) -> None:
    final_name = log_name.removesuffix(SWAP_FILE_SUFFIX)
    parsed = parse_segment_file_name(final_name)
    base_offset = parsed[0] if parsed is not None else 0
    replaced = range(base_offset, base_offset + 1 if end_offset is None else end_offset)
    for name in fs.listdir(directory):
        found = parse_segment_file_name(name)
        if (found[0] if found is not None else parse_snapshot_file_name(name)) in replaced:
            fs.unlink(os.path.join(directory, name))
    fs.fsync_dir(directory)
    stem = log_name.removesuffix(LOG_SUFFIX + SWAP_FILE_SUFFIX)
    swapped = [name for name in fs.listdir(directory) if name.startswith(stem) and name.endswith(SWAP_FILE_SUFFIX)]
    for name in sorted(swapped, key=log_name.__eq__):
        fs.rename(os.path.join(directory, name), os.path.join(directory, name.removesuffix(SWAP_FILE_SUFFIX)))
    logger.info("%s: %s took the place of segments %d to %s", directory, final_name, base_offset, end_offset)


def _end_of_valid(fs: FileSystem, path: str) -> int | None:
    """Returns the offset after the last batch of a `.log` file; None where it is damaged or empty."""
    fd = fs.open(path)
    end_offset = None
    try:
        for _, header, crc_holds in walk_batches(fs, fd, fs.size(fd)):
            if not crc_holds:
                return None
            end_offset = header.next_offset
    except RecordError:
        return None
    finally:
        fs.close(fd)
    return end_offset
