"""Repairing the segments of a folder that no broker uses (`millrace verify --repair`).

    <base offset>.log            rewritten without the damage, by way of <base offset>.log.tmp
    <base offset>.log.damaged    the file as it was, byte for byte; .damaged.2 and so on where there is one already
    <base offset>.index …        removed, and rebuilt by the next start
    repaired-ranges              names the offsets that are given up (`range_files`)
    damaged-ranges               names them no more

A repair gives up what is damaged or missing (`offline_logs`), and nothing else: each other batch keeps its offsets.

    step                                                     what a crash behind it leaves
    1  sync the log, raise its recovery point to its end     the damage
    2  name the offsets in repaired-ranges                   the damage; holes are repaired
    3  copy the .log, remove indexes, replace the .log,      each .log with its damage or without, and no index that
       one segment after another                             does not fit it
    4  take the ranges out of damaged-ranges                 the repaired log

The recovery point is raised as a start after a crash may take a gap above it for the log's end. It is never lowered:
the log goes on behind a repaired end, so no offset is given twice. Before step 4, `damaged-ranges` may name bytes that
are no longer there; whoever reads it compares it with the file. The repair can be run again at any step.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace_broker.storage.batches.salvage import CHUNK_BYTES, ValidBatch
from millrace_broker.storage.checkpoints import read_offsets, write_offsets
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import (
    DAMAGED_RANGES,
    OFFSET_INDEX_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPAIRED_RANGES,
    TIME_INDEX_SUFFIX,
    parse_partition_dir,
)
from millrace_broker.storage.recovery.offline_logs import (
    ALONE,
    SegmentContext,
    SegmentReport,
    base_offset_of,
    check_segment,
    locked,
    logs_in,
    parts_of,
    segment_contexts,
    sibling,
)
from millrace_broker.storage.recovery.range_files import read_damage, read_repaired, write_damage, write_repaired
from millrace_broker.storage.segments.damage import RepairedRange, joined

DAMAGED_SUFFIX = ".damaged"
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """What was dropped from a segment, the path of the file as it was, and the offsets that are given up."""

    file: str
    original: str
    dropped_bytes: int
    lost: tuple[RepairedRange, ...] = ()


def repair(fs: FileSystem, logs: Sequence[str]) -> list[SegmentRepair]:
    """Repairs these segments, folder by folder; returns what was done. Raises StorageError."""
    with locked(fs, logs):
        by_folder: dict[str, list[str]] = defaultdict(list)
        for path in logs:
            by_folder[os.path.dirname(os.path.abspath(path))].append(path)
        return [done for folder in sorted(by_folder) for done in _repair_in(fs, folder, by_folder[folder])]


def _repair_in(fs: FileSystem, folder: str, logs: Sequence[str]) -> list[SegmentRepair]:
    contexts = segment_contexts(fs, folder)
    known = {path: contexts[os.path.abspath(path)] for path in logs}
    reports = [check_segment(fs, path, known[path]) for path in logs]
    damaged = [report for report in reports if report.findings]
    if damaged:
        _raise_recovery_point(fs, folder)
        _name_repaired(fs, folder, damaged)
    done = [_repair_damage(fs, report, known[report.file]) for report in damaged]
    _close_named(fs, folder, {base_offset_of(path) for path in known})
    return done


def repair_segment(fs: FileSystem, path: str, context: SegmentContext = ALONE) -> SegmentRepair | None:
    """Drops the damage from a segment's file, keeping a copy; returns None where nothing is damaged.

    Raises StorageError.

    Indexes that do not fit are removed too. The folder must be `locked`.
    """
    report = check_segment(fs, path, context)
    return _repair_damage(fs, report, context) if report.findings else None


def _repair_damage(fs: FileSystem, report: SegmentReport, context: SegmentContext) -> SegmentRepair:
    path, original = report.file, ""
    with storage_errors(path):
        if report.damaged_bytes:
            original = _free_name(fs, path + DAMAGED_SUFFIX)
            _copy(fs, path, original, [(0, report.size_bytes)])
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if fs.exists(sibling(path, suffix)):
                fs.unlink(sibling(path, suffix))
        fs.fsync_dir(os.path.dirname(path))
        if report.damaged_bytes:
            _copy(fs, path, path, _valid_ranges(fs, path, context))
    return SegmentRepair(file=path, original=original, dropped_bytes=report.damaged_bytes, lost=_lost([report]))


def _raise_recovery_point(fs: FileSystem, folder: str) -> None:
    topic_partition = parse_partition_dir(os.path.basename(folder))
    checkpoint = os.path.join(os.path.dirname(folder), RECOVERY_POINT_CHECKPOINT)
    if topic_partition is None or not fs.exists(checkpoint):
        return
    with storage_errors(folder):
        logs = logs_in(fs, folder)
        for path in logs:
            _sync(fs, path)
    points = read_offsets(fs, checkpoint)
    end = max(check_segment(fs, logs[-1]).next_offset, points.get(topic_partition, 0))
    write_offsets(fs, checkpoint, {**points, topic_partition: end})


def _name_repaired(fs: FileSystem, folder: str, reports: Iterable[SegmentReport]) -> None:
    with storage_errors(os.path.join(folder, REPAIRED_RANGES)):
        write_repaired(fs, folder, [*read_repaired(fs, folder), *_lost(reports)])


def _close_named(fs: FileSystem, folder: str, bases: set[int]) -> None:
    """Takes the damage of segments out of `damaged-ranges`; one that can't be read stays: a start looks again."""
    with storage_errors(os.path.join(folder, DAMAGED_RANGES)):
        try:
            named = read_damage(fs, folder)
        except CorruptRecordError:
            return
        if bases & named.keys():
            write_damage(fs, folder, {base: ranges for base, ranges in named.items() if base not in bases})


def _lost(reports: Iterable[SegmentReport]) -> tuple[RepairedRange, ...]:
    ranges = (RepairedRange(one.start_offset, one.end_offset) for report in reports for one in report.damage)
    return joined(ranges)


def _valid_ranges(fs: FileSystem, path: str, context: SegmentContext) -> list[tuple[int, int]]:
    """Returns (start, end) of each run of valid batches."""
    ranges: list[tuple[int, int]] = []
    for part in parts_of(fs, path, context):
        if isinstance(part, ValidBatch):
            start = ranges.pop()[0] if ranges and ranges[-1][1] == part.position else part.position
            ranges.append((start, part.end))
    return ranges


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


def _free_name(fs: FileSystem, path: str) -> str:
    number, name = 1, path
    while fs.exists(name):
        number += 1
        name = f"{path}.{number}"
    return name
