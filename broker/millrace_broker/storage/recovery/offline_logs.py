"""The logs of a broker that is stopped, for `millrace verify`: where they are, what is wrong in them, and its repair.

A partition's folder is judged as a start judges it after a clean stop (`loading`): what `damaged-ranges` names is
damage as long as it is still there, and a closed segment must end where the next one begins, unless that was repaired
or the log was compacted elsewhere. At the log's end, batches are missing below both the recovery point and the high
watermark, and damage reaches up to the recovery point.

Each segment is checked by itself: what in it is damaged, and what is missing.

A repair rewrites the segments of a folder that no broker uses (`millrace verify --repair`):

    <base offset>.log            rewritten without the damage, by way of <base offset>.log.tmp
    <base offset>.log.damaged    the file as it was, byte for byte; .damaged.2 and so on where there is one already
    <base offset>.index …        removed, and rebuilt by the next start
    repaired-ranges              names the offsets that are given up (`range_files`)
    damaged-ranges               names them no more

It gives up what is damaged or missing, and nothing else: each other batch keeps its offsets.

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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from struct import Struct

from millrace.errors import CorruptRecordError, StorageError
from millrace.fs import FileSystem, file_size, read_file
from millrace_broker.storage.batches.salvage import CHUNK_BYTES, Damage, ValidBatch, examine, segment_bounds
from millrace_broker.storage.checkpoints import read_offsets, salvaged_offsets, write_offsets
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    DAMAGED_RANGES,
    LOCK,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPAIRED_RANGES,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    parse_partition_dir,
    parse_segment_file_name,
    segment_file_name,
)
from millrace_broker.storage.recovery.offset_gaps import read_allowed
from millrace_broker.storage.recovery.range_files import Damage as NamedDamage
from millrace_broker.storage.recovery.range_files import (
    read_damage,
    read_repaired,
    write_damage,
    write_repaired,
)
from millrace_broker.storage.reports import LogFinding
from millrace_broker.storage.segments.damage import (
    ENDS_EARLY,
    DamagedRange,
    RepairedRange,
    are_still_there,
    batches_end,
    intact_bytes,
    is_repaired,
    joined,
)
from millrace_broker.storage.segments.indexes import OffsetIndex, TimeIndex

DAMAGED_SUFFIX = ".damaged"
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """The result of a check of a segment's files; `next_offset` follows the last valid batch. No findings: all well."""

    file: str
    size_bytes: int
    batches: int
    next_offset: int
    damaged_bytes: int
    damage: tuple[DamagedRange, ...]
    findings: tuple[LogFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """The expected end and known damage of a segment, by other files: a check of its `.log` compares what it finds.

    `named` is the damage in `damaged-ranges`, `end_offset` where batches and damage end. Where they end before
    `must_reach`, batches are missing.
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
        """Marks the index entry of a valid batch, if there is one, as right; `base_offset` is the segment's."""
        self._unmatched.pop((batch.last_offset - base_offset, batch.position), None)

    def findings(self) -> Iterator[LogFinding]:
        """Yields a finding for each index entry that fits no batch."""
        for entry, slot in self._unmatched.items():
            reason = f"entry {entry}: no batch at byte {entry[1]} of the log ends with that offset"
            yield LogFinding(file=self._path, position=slot * OffsetIndex.ENTRY.size, reason=reason)


def check_segment(fs: FileSystem, path: str, context: SegmentContext = ALONE) -> SegmentReport:
    """Checks every batch of a segment's `.log`, and the index entries by the batches; raises StorageError."""
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
        findings = [LogFinding(file=path, position=one.position, reason=str(one)) for one in damage]
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
    """Yields the valid batches and the damaged ranges of a segment, in order. Raises OSError."""
    fd = fs.open(path)
    try:
        yield from _Parts(fs, fd, base_offset_of(path), context)
    finally:
        fs.close(fd)


class _Parts:
    """The valid batches and damaged ranges of a segment's file, in order; read from the file as they are iterated."""

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
            yield DamagedRange(self._next_offset, end, size_bytes, size_bytes, ENDS_EARLY)

    def _between(self, start: int, end: int, until: int) -> Iterator[ValidBatch | DamagedRange]:
        """Yields batches and damaged ranges between two positions; damage up to `end` goes up to offset `until`."""
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


def _time_index_findings(fs: FileSystem, path: str) -> Iterator[LogFinding]:
    """Yields a finding for each entry of a time index whose timestamp isn't higher, or offset lower, than the last."""
    before: tuple[int, int] | None = None
    for slot, entry in enumerate(_entries(fs, path, TimeIndex.ENTRY)):
        if before is not None and (entry[0] <= before[0] or entry[1] < before[1]):
            reason = f"entry {entry} does not lie above the one before, {before}"
            yield LogFinding(file=path, position=slot * TimeIndex.ENTRY.size, reason=reason)
        before = entry


def _entries(fs: FileSystem, path: str, entry: Struct) -> Iterator[tuple[int, int]]:
    """Yields the complete entries of an index file, without the zeros behind them that a killed Kafka leaves."""
    if not fs.exists(path):
        return
    content = read_file(fs, path)
    whole = content[: len(content) // entry.size * entry.size].rstrip(b"\0")
    count = -(-len(whole) // entry.size)
    yield from entry.iter_unpack(content[: count * entry.size])


def sibling(path: str, suffix: str) -> str:
    """Returns the path of a segment's file with this suffix, beside its `.log`."""
    return os.path.join(os.path.dirname(path), segment_file_name(base_offset_of(path), suffix))


def find_segments(fs: FileSystem, path: str) -> list[str]:
    """Returns the paths of the `.log` files in `path`, a data folder or a partition's; `path` itself if it is a `.log`.

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
    """Locks the data folders of these `.log` files within the context, so that no broker opens them.

    Raises StorageError where a broker has them open.
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
    """Returns what the files in a folder (an absolute path) say of each segment, by the path of its `.log`.

    Raises StorageError.
    """
    with storage_errors(folder):
        logs, named, repaired = logs_in(fs, folder), named_damage(fs, folder), read_repaired(fs, folder)
        may_end_early = read_allowed(fs, folder) > 0 or _offset_in(fs, folder, CLEANER_OFFSET_CHECKPOINT) is not None
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
    """Checks segments, by what their folders' other files say; returns a report on each. Raises StorageError."""
    known: dict[str, SegmentContext] = {}
    for path in map(os.path.abspath, logs):
        if path not in known:
            known |= segment_contexts(fs, os.path.dirname(path))
    return [check_segment(fs, path, known[os.path.abspath(path)]) for path in logs]


def named_damage(fs: FileSystem, folder: str) -> NamedDamage:
    """Returns the damage that a folder's `damaged-ranges` names; nothing where it can't be read. Raises OSError."""
    try:
        return read_damage(fs, folder)
    except CorruptRecordError:
        return {}


def logs_in(fs: FileSystem, folder: str) -> list[str]:
    """Returns the `.log` files of a folder, sorted. Raises OSError."""
    parsed = {name: parse_segment_file_name(name) for name in sorted(fs.listdir(folder))}
    return [
        os.path.join(folder, name) for name, found in parsed.items() if found is not None and found[1] == LOG_SUFFIX
    ]


def _offset_in(fs: FileSystem, folder: str, checkpoint: str) -> int | None:
    """Returns the offset that a checkpoint of the data folder has for a partition's folder. Raises StorageError."""
    partition = parse_partition_dir(os.path.basename(folder))
    path = os.path.join(os.path.dirname(folder), checkpoint)
    return None if partition is None else salvaged_offsets(fs, path).get(partition)


def _lock(fs: FileSystem, fd: int, folder: str) -> None:
    try:
        fs.lock(fd)
    except BlockingIOError:
        raise StorageError(f"{folder}: a broker has this folder open ({LOCK}); stop it first") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """The result of a segment's repair: bytes dropped, the path of the copy of the old file, the offsets given up."""

    file: str
    original: str
    dropped_bytes: int
    lost: tuple[RepairedRange, ...] = ()


def repair(fs: FileSystem, logs: Sequence[str]) -> list[SegmentRepair]:
    """Removes damaged bytes from these `.log` files, and indexes that don't fit; returns what was dropped from each.

    Segments without findings stay as they are. Raises StorageError, also where a broker has the folder open.
    """
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
    """Removes repaired segments from `damaged-ranges`; an unreadable file stays, and the next start rewrites it."""
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
    """Returns (start position, end position) of each run of valid batches."""
    ranges: list[tuple[int, int]] = []
    for part in parts_of(fs, path, context):
        if isinstance(part, ValidBatch):
            start = ranges.pop()[0] if ranges and ranges[-1][1] == part.position else part.position
            ranges.append((start, part.end))
    return ranges


def _copy(fs: FileSystem, source: str, target: str, ranges: Iterable[tuple[int, int]]) -> None:
    """Writes the byte ranges of `source` to `target`, replacing it whole and synced; both may be the same path."""
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
