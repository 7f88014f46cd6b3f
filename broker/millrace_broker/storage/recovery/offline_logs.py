"""The logs in the folders of a broker that is stopped, for `millrace verify`: where they are, and what is said of them.

A partition's folder is judged as a start judges it after a clean stop (`loading`): what `damaged-ranges` names is
damage as long as it is still there, and a closed segment must end where the next one begins, unless that was repaired
or the log was compacted elsewhere. At the log's end, batches are missing below both the recovery point and the high
watermark, and damage reaches up to the recovery point.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from millrace.errors import CorruptRecordError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.checkpoints import salvaged_offsets
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LOCK,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_partition_dir,
    parse_segment_file_name,
)
from millrace_broker.storage.recovery import damaged_ranges
from millrace_broker.storage.recovery.offline_check import (
    SegmentContext,
    SegmentReport,
    base_offset_of,
    check_segment,
)
from millrace_broker.storage.recovery.offset_gaps import may_have_gaps
from millrace_broker.storage.recovery.repaired_ranges import read_repaired
from millrace_broker.storage.segments.repaired import batches_end, is_repaired


def find_segments(fs: FileSystem, path: str) -> list[str]:
    """Returns the `.log` files of a data folder, of a partition's, or `path` itself.

    Raises StorageError without any.
    """
    with storage_errors(path):
        if parsed := parse_segment_file_name(os.path.basename(path)):
            if parsed[1] != LOG_SUFFIX:
                raise StorageError(f"{path}: give the segment's .log; its indexes are checked with it")
            return [path]
        names = fs.listdir(path)
        folders = [os.path.join(path, name) for name in names if parse_partition_dir(name)]
        found = [log for folder in (path, *folders) for log in logs_in(fs, folder)]
    if not found and not folders:
        raise StorageError(f"{path}: neither a data folder, nor a partition's, nor a segment's file")
    return found


@contextmanager
def locked(fs: FileSystem, logs: Iterable[str]) -> Iterator[None]:
    """Locks the data folders of these files, so that no broker opens them.

    Raises StorageError where one has them open.
    """
    folders = sorted({os.path.dirname(os.path.dirname(os.path.abspath(log))) for log in logs})
    fds: list[int] = []
    try:
        for folder in folders:
            path = os.path.join(folder, LOCK)
            with storage_errors(path):
                if fs.exists(path):
                    fds.append(fs.open(path))
                    _lock(fs, fds[-1], folder)
        yield
    finally:
        for fd in fds:
            fs.close(fd)


def segment_contexts(fs: FileSystem, folder: str) -> dict[str, SegmentContext]:
    """Returns what is known of each segment of a folder, an absolute path, by that of its `.log`.

    Raises StorageError.
    """
    with storage_errors(folder):
        logs, named, repaired = logs_in(fs, folder), named_damage(fs, folder), read_repaired(fs, folder)
        may_end_early = may_have_gaps(fs, folder) or _offset_in(fs, folder, CLEANER_OFFSET_CHECKPOINT) is not None
    found: dict[str, SegmentContext] = {}
    for path, following in zip_longest(logs, logs[1:]):
        base = base_offset_of(path)
        damage = tuple(
            one
            for one in named.get(base, ())
            if not one.is_hole or not is_repaired(repaired, one.start_offset, one.end_offset)
        )
        if following is None:
            synced = _offset_in(fs, folder, RECOVERY_POINT_CHECKPOINT) or 0
            witnessed = _offset_in(fs, folder, REPLICATION_OFFSET_CHECKPOINT) or 0
            must_reach = batches_end(repaired, base, min(synced, witnessed))
            found[path] = SegmentContext(named=damage, end_offset=synced, must_reach=must_reach)
        else:
            end = batches_end(repaired, base, base_offset_of(following))
            found[path] = SegmentContext(named=damage, end_offset=end, must_reach=0 if may_end_early else end)
    return found


def check_logs(fs: FileSystem, logs: Sequence[str]) -> list[SegmentReport]:
    """Checks segments, each by what its folder says of it. Raises StorageError."""
    known: dict[str, SegmentContext] = {}
    for path in map(os.path.abspath, logs):
        if path not in known:
            known |= segment_contexts(fs, os.path.dirname(path))
    return [check_segment(fs, path, known[os.path.abspath(path)]) for path in logs]


def named_damage(fs: FileSystem, folder: str) -> damaged_ranges.Damage:
    """Returns what `damaged-ranges` names; nothing where it can't be read. Raises OSError."""
    try:
        return damaged_ranges.read_damage(fs, folder)
    except CorruptRecordError:
        return {}


def logs_in(fs: FileSystem, folder: str) -> list[str]:
    """Returns the `.log` files of a folder, sorted. Raises OSError."""
    parsed = {name: parse_segment_file_name(name) for name in sorted(fs.listdir(folder))}
    return [
        os.path.join(folder, name) for name, found in parsed.items() if found is not None and found[1] == LOG_SUFFIX
    ]


def _offset_in(fs: FileSystem, folder: str, checkpoint: str) -> int | None:
    """Returns what a checkpoint of the data folder says of the partition of a folder. Raises StorageError."""
    partition = parse_partition_dir(os.path.basename(folder))
    path = os.path.join(os.path.dirname(folder), checkpoint)
    return None if partition is None else salvaged_offsets(fs, path).get(partition)


def _lock(fs: FileSystem, fd: int, folder: str) -> None:
    try:
        fs.lock(fd)
    except BlockingIOError:
        raise StorageError(f"{folder}: a broker has this folder open ({LOCK}); stop it first") from None
