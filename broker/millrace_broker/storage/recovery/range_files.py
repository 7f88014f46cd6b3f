"""What a log's folder says of its offsets beside the segments, in files of Millrace's own (docs/formats/).

`damaged-ranges`, `repaired-ranges` and `txnindex-checksums` are lines of text that a checksum covers. A file is
replaced as a whole, durably; one without lines is removed.

    version: 0
    ...
    crc32c: 5a1cfe03        of all lines before, in hexadecimal digits

`damaged-ranges` names what is damaged in a log:

    0 180 190 14213 14999 the CRC-32C of the batch at offset 180 does not match

    line  :=  segment's base offset, first offset, offset behind the last, position, position behind the last, reason

What it names is found again by a walk over the segments, but for holes in a log that may leave out offsets: of these it
has the only note. So a file that is damaged has all segments walked, and after a loss of the file reads and `verify`
find the damage.

`repaired-ranges` names the offsets that a repair has given up (`offline_logs`):

    180 190                 first offset, offset behind the last

A hole, that is offsets that no batch has between two segments or at the log's end, is damage unless it is named here.
Inside a segment these may be left out, wherever the recovery point is. A repair writes the file before it changes a
segment, and takes the ranges out of `damaged-ranges` last. A log that is cut gives up the ranges above its new end
first, as batches may come to be there. A file that is damaged names nothing, and can be repaired again.

`txnindex-checksums` says what each `.txnindex` file was when its segment was closed; it is written with
`damaged-ranges`:

    180 68 5a1cfe03         segment's base offset, bytes, CRC-32C in hexadecimal digits

An index that is another one, or is missing, is made again when the log is opened. So is that of a segment that was
closed after the file was written, before a crash. Without the file, as in a folder of Apache Kafka, indexes are
trusted; so they are if it is damaged, as that is the damage.

Where a log may leave out offsets otherwise, the file `offset-gaps` says (`offset_gaps`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace.records.checksum import crc32c
from millrace_broker.storage.filenames import DAMAGED_RANGES, REPAIRED_RANGES, TXNINDEX_CHECKSUMS
from millrace_broker.storage.segments.damage import DamagedRange, RepairedRange, below, joined
from millrace_broker.storage.segments.indexes import FileChecksum
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)

VERSION = "version: 0"
_CRC = "crc32c: "
_NUMBERS = 5

Damage = Mapping[int, tuple[DamagedRange, ...]]
"""Damaged ranges by the base offset of their segment."""
Checksums = Mapping[int, FileChecksum]
"""What the transaction index of each segment that has one is, by the segment's base offset."""


class Noted(NamedTuple):
    """The damaged ranges and the checksums that a log's files name, by segment; None where no file has checksums."""

    damage: Damage
    checksums: Checksums | None


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """Returns the lines between version and checksum, none without a file. Raises CorruptRecordError or OSError."""
    try:
        return _checked(read_file(fs, path).decode())
    except FileNotFoundError:
        return []
    except ValueError as error:  # a UnicodeDecodeError is one, too
        raise CorruptRecordError(f"{path}: {error}") from error


def _checked(text: str) -> list[str]:
    content, _, crc = text.rpartition(_CRC)
    if crc != f"{crc32c(content.encode()):08x}\n":
        raise ValueError("the CRC-32C does not match")
    version, *lines = content.splitlines()
    if version != VERSION:
        raise ValueError(f"{version!r} where {VERSION!r} is expected")
    return lines


def write_lines(fs: FileSystem, path: str, lines: Sequence[str]) -> None:
    """Replaces the file by one with these lines, or removes it if there are none. Raises OSError.

    The removal is not synced: whoever reads the file again compares it with the segments.
    """
    if lines:
        content = "".join(f"{line}\n" for line in (VERSION, *lines))
        write_file_durably(fs, path, f"{content}{_CRC}{crc32c(content.encode()):08x}\n".encode())
    elif fs.exists(path):
        fs.unlink(path)


def read_damage(fs: FileSystem, directory: str) -> Damage:
    """Returns a log's damaged ranges by segment base offset, {} without a file; raises CorruptRecordError, OSError."""
    path = os.path.join(directory, DAMAGED_RANGES)
    try:
        return _damage_of(read_lines(fs, path))
    except ValueError as error:
        raise CorruptRecordError(f"{path}: {error}") from error


def note(fs: FileSystem, directory: str, segments: Iterable[LogSegment], noted: Noted) -> Noted:
    """Writes the segments' damage and checksums to their files, unless they are noted; returns both. Raises OSError."""
    segments = list(segments)
    damage = {segment.base_offset: segment.damage for segment in segments if segment.damage}
    if damage != noted.damage:
        write_damage(fs, directory, damage)
    found = {one.base_offset: one.transaction_index.checksum for one in segments if one.is_sealed}
    checksums = {base: checksum for base, checksum in found.items() if checksum is not None}
    if checksums != (noted.checksums or {}):
        lines = [f"{base} {one.size_bytes} {one.crc:08x}" for base, one in sorted(checksums.items())]
        write_lines(fs, os.path.join(directory, TXNINDEX_CHECKSUMS), lines)
    return Noted(damage, checksums)


def read_checksums(fs: FileSystem, directory: str) -> Checksums | None:
    """Returns what `txnindex-checksums` says; None where it is missing or damaged. Raises OSError."""
    path = os.path.join(directory, TXNINDEX_CHECKSUMS)
    try:
        found = [line.split() for line in read_lines(fs, path)]
        return {int(base): FileChecksum(int(size), int(crc, 16)) for base, size, crc in found} or None
    except (CorruptRecordError, ValueError) as error:
        logger.warning("%s is damaged, and the transaction indexes are trusted: %s", path, error)
        return None


def write_damage(fs: FileSystem, directory: str, damage: Damage) -> None:
    """Replaces `damaged-ranges`, or removes it if nothing is damaged. Raises OSError."""
    named = [(base, *one) for base, ranges in sorted(damage.items()) for one in ranges]
    lines = [" ".join([*map(str, numbers), *str(reason).split()]) for *numbers, reason in named]
    write_lines(fs, os.path.join(directory, DAMAGED_RANGES), lines)


def _damage_of(lines: Iterable[str]) -> Damage:
    found: dict[int, tuple[DamagedRange, ...]] = {}
    for line in lines:
        *numbers, reason = line.split(" ", _NUMBERS)
        base_offset, start, end, position, end_position = map(int, numbers)
        found[base_offset] = (*found.get(base_offset, ()), DamagedRange(start, end, position, end_position, reason))
    return found


def read_repaired(fs: FileSystem, directory: str) -> tuple[RepairedRange, ...]:
    """Returns the ranges in `repaired-ranges`, none if the file is missing or damaged. Raises OSError."""
    path = os.path.join(directory, REPAIRED_RANGES)
    try:
        return joined(RepairedRange(int(start), int(end)) for start, end in map(str.split, read_lines(fs, path)))
    except (CorruptRecordError, ValueError) as error:
        logger.warning("%s names nothing, as it is damaged: %s", path, error)
        return ()


def write_repaired(fs: FileSystem, directory: str, repaired: Iterable[RepairedRange]) -> None:
    """Writes the ranges to `repaired-ranges`, synced, unless it has them already. Raises OSError."""
    ranges = joined(repaired)
    if ranges != read_repaired(fs, directory):
        write_lines(fs, os.path.join(directory, REPAIRED_RANGES), [" ".join(map(str, one)) for one in ranges])


def cut_repaired(fs: FileSystem, directory: str, end_offset: int) -> None:
    """Takes the offsets above `end_offset` out of `repaired-ranges`, before a log is cut there. Raises OSError.

    If no range is left, the file's removal is synced before the first new batch there counts as synced.
    """
    repaired = read_repaired(fs, directory)
    if repaired:
        write_repaired(fs, directory, below(repaired, end_offset))
