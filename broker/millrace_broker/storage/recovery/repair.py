"""Checking and repairing the segments of a folder that no broker uses (`millrace verify`).

    <base offset>.log            rewritten without the damage, by way of <base offset>.log.tmp
    <base offset>.log.damaged    the file as it was, byte for byte; .damaged.2 and so on where there is one already
    <base offset>.index …        removed, and rebuilt by the next start

A repair drops what lies between an invalid message and the next valid one, and nothing else. The log then has a gap at
the offsets that are lost. Before that, the log is synced and the recovery point is raised to its end: otherwise a start
after a crash would end the log at the gap.

A crash leaves the old `.log` or the new one, never a mixture, and no index that does not fit it. The repair can be run
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct

from millrace.errors import StorageError
from millrace.fs import FileSystem, read_file
from millrace_broker.storage.batches.salvage import CHUNK_BYTES, Damage, ValidBatch, examine
from millrace_broker.storage.checkpoints import read_offsets, write_offsets
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import (
    LOCK,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    parse_partition_dir,
    parse_segment_file_name,
    segment_file_name,
)
from millrace_broker.storage.reports import Finding
from millrace_broker.storage.segments.offset_index import OffsetIndex
from millrace_broker.storage.segments.time_index import TimeIndex

DAMAGED_SUFFIX = ".damaged"
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """What the files of one segment hold. `next_offset` follows its last valid batch. No findings: all is well."""

    file: str
    size_bytes: int
    batches: int
    next_offset: int
    damaged_bytes: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """What was dropped from a segment, and the path of the file as it was."""

    file: str
    original: str
    dropped_bytes: int


class _OffsetIndexCheck:
    """Matches index entries with batches: each entry must have the last offset of the batch at its position."""

    def __init__(self, fs: FileSystem, log: str) -> None:
        self._path = _sibling(log, OFFSET_INDEX_SUFFIX)
        self._unmatched = {entry: slot for slot, entry in enumerate(_entries(fs, self._path, OffsetIndex.ENTRY))}

    def match(self, batch: ValidBatch, base_offset: int) -> None:
        """Removes the entry of a batch of the log from the unmatched ones."""
        self._unmatched.pop((batch.last_offset - base_offset, batch.position), None)

    def findings(self) -> Iterator[Finding]:
        """Yields a finding for each entry that no batch has matched."""
        for entry, slot in self._unmatched.items():
            reason = f"entry {entry}: no batch at byte {entry[1]} of the log ends with that offset"
            yield Finding(file=self._path, position=slot * OffsetIndex.ENTRY.size, reason=reason)


def find_segments(fs: FileSystem, path: str) -> list[str]:
    """Returns the `.log` files of a data folder, of a partition's, or `path` itself; StorageError without any."""
    with storage_errors(path):
        if parsed := parse_segment_file_name(os.path.basename(path)):
            if parsed[1] != LOG_SUFFIX:
                raise StorageError(f"{path}: give the segment's .log; its indexes are checked with it")
            return [path]
        names = fs.listdir(path)
        folders = [os.path.join(path, name) for name in names if parse_partition_dir(name)]
        found = [log for folder in (path, *folders) for log in _logs_in(fs, folder)]
    if not found and not folders:
        raise StorageError(f"{path}: neither a data folder, nor a partition's, nor a segment's file")
    return found


@contextmanager
def locked(fs: FileSystem, logs: Iterable[str]) -> Iterator[None]:
    """Locks the data folders of these files, so that no broker opens them; StorageError where one has them open."""
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


def check_segment(fs: FileSystem, path: str) -> SegmentReport:
    """Walks a segment's file and matches its indexes with it; StorageError where it can't be read."""
    base_offset = next_offset = _base_offset(path)
    size_bytes = batches = damaged_bytes = 0
    findings: list[Finding] = []
    with storage_errors(path):
        index = _OffsetIndexCheck(fs, path)
        for part in _parts(fs, path):
            size_bytes += part.size_bytes
            if isinstance(part, Damage):
                damaged_bytes += part.size_bytes
                findings.append(_finding(path, part))
            else:
                batches += 1
                next_offset = part.last_offset + 1
                index.match(part, base_offset)
        findings += index.findings()
        findings += _time_index_findings(fs, _sibling(path, TIME_INDEX_SUFFIX))
    return SegmentReport(
        file=path,
        size_bytes=size_bytes,
        batches=batches,
        next_offset=next_offset,
        damaged_bytes=damaged_bytes,
        findings=tuple(findings),
    )


def repair_segment(fs: FileSystem, path: str) -> SegmentRepair | None:
    """Drops the damage from a segment's file, keeping a copy; returns None where nothing is damaged. StorageError.

    Indexes that do not fit are removed too. The folder must be `locked`.
    """
    report = check_segment(fs, path)
    if not report.findings:
        return None
    folder = os.path.dirname(path)
    with storage_errors(path):
        original = ""
        if report.damaged_bytes:
            original = _free_name(fs, path + DAMAGED_SUFFIX)
            _copy(fs, path, original, [(0, report.size_bytes)])
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if fs.exists(_sibling(path, suffix)):
                fs.unlink(_sibling(path, suffix))
        fs.fsync_dir(folder)
        if report.damaged_bytes:
            _copy(fs, path, path, _valid_ranges(fs, path))
    return SegmentRepair(file=path, original=original, dropped_bytes=report.damaged_bytes)


def repair(fs: FileSystem, logs: Sequence[str]) -> list[SegmentRepair]:
    """Raises the recovery points of damaged partitions, then repairs them; returns what was done. StorageError."""
    with locked(fs, logs):
        damaged = [path for path in logs if check_segment(fs, path).findings]
        for folder in sorted({os.path.dirname(os.path.abspath(path)) for path in damaged}):
            _raise_recovery_point(fs, folder)
        return [done for path in damaged if (done := repair_segment(fs, path)) is not None]


def _raise_recovery_point(fs: FileSystem, folder: str) -> None:
    topic_partition = parse_partition_dir(os.path.basename(folder))
    checkpoint = os.path.join(os.path.dirname(folder), RECOVERY_POINT_CHECKPOINT)
    if topic_partition is None or not fs.exists(checkpoint):
        return
    with storage_errors(folder):
        logs = _logs_in(fs, folder)
        for path in logs:
            _sync(fs, path)
    end = check_segment(fs, logs[-1]).next_offset
    write_offsets(fs, checkpoint, {**read_offsets(fs, checkpoint), topic_partition: end})


def _logs_in(fs: FileSystem, folder: str) -> list[str]:
    names = fs.listdir(folder)
    parsed = {name: parse_segment_file_name(name) for name in names}
    return [
        os.path.join(folder, name) for name, found in parsed.items() if found is not None and found[1] == LOG_SUFFIX
    ]


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


def _valid_ranges(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """Returns (start, end) of each run of valid batches."""
    ranges: list[tuple[int, int]] = []
    for part in _parts(fs, path):
        if isinstance(part, ValidBatch):
            end = part.position + part.size_bytes
            start = ranges.pop()[0] if ranges and ranges[-1][1] == part.position else part.position
            ranges.append((start, end))
    return ranges


def _parts(fs: FileSystem, path: str) -> Iterator[ValidBatch | Damage]:
    fd = fs.open(path)
    try:
        yield from examine(fs, fd, _base_offset(path))
    finally:
        fs.close(fd)


def _copy(fs: FileSystem, source: str, target: str, ranges: Iterable[tuple[int, int]]) -> None:
    """Writes parts of `source` to `target`, durably and at once; both may be the same path."""
    temporary = target + TEMPORARY_SUFFIX
    source_fd, fd = fs.open(source), fs.open(temporary, create=True)
    try:
        fs.truncate(fd, 0)
        written = 0
        for start, end in ranges:
            for position in range(start, end, CHUNK_BYTES):
                chunk = fs.pread(source_fd, min(CHUNK_BYTES, end - position), position)
                written += fs.pwritev(fd, [chunk], written)
        fs.fsync(fd)
    finally:
        fs.close(fd)
        fs.close(source_fd)
    fs.rename(temporary, target)
    fs.fsync_dir(os.path.dirname(target))


def _sync(fs: FileSystem, path: str) -> None:
    fd = fs.open(path)
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


def _lock(fs: FileSystem, fd: int, folder: str) -> None:
    try:
        fs.lock(fd)
    except BlockingIOError:
        raise StorageError(f"{folder}: a broker has this folder open ({LOCK}); stop it first") from None


def _free_name(fs: FileSystem, path: str) -> str:
    number, name = 1, path
    while fs.exists(name):
        number += 1
        name = f"{path}.{number}"
    return name


def _finding(path: str, damage: Damage) -> Finding:
    reason = f"{damage.reason}; {damage.size_bytes} bytes up to the next valid batch or the end"
    return Finding(file=path, position=damage.position, reason=reason)


def _base_offset(path: str) -> int:
    parsed = parse_segment_file_name(os.path.basename(path))
    if parsed is None:
        raise StorageError(f"{path}: not a segment's file")
    return parsed[0]


def _sibling(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), segment_file_name(_base_offset(path), suffix))
