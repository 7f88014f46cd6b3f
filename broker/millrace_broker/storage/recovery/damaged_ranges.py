"""`damaged-ranges`: a file that names what is damaged in a log (docs/formats/data-directory.md). Millrace's own.

    version: 0
    0 180 190 14213 14999 the CRC-32C of the batch at offset 180 does not match
    crc32c: 5a1cfe03                                                                of all lines before

    line  :=  segment's base offset, first offset, offset behind the last, position, position behind the last, reason

It is replaced as a whole, durably. Nothing in it is the only copy: what it names is found again by a walk over the
segments. So a file that is damaged has them all walked, and after a loss of the file reads and `verify` find the
damage.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace_broker.storage.filenames import DAMAGED_RANGES
from millrace_broker.storage.recovery.range_file import read_lines, write_lines
from millrace_broker.storage.segments.damage import DamagedRange
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)

_NUMBERS = 5

Damage = Mapping[int, tuple[DamagedRange, ...]]
"""Damaged ranges by the base offset of their segment."""


def read_damage(fs: FileSystem, directory: str) -> Damage:
    """Returns what the file names, nothing without a file. Raises CorruptRecordError or OSError."""
    path = os.path.join(directory, DAMAGED_RANGES)
    try:
        return _parse(read_lines(fs, path))
    except ValueError as error:
        raise CorruptRecordError(f"{path}: {error}") from error


def name_damage(fs: FileSystem, directory: str, segments: Iterable[LogSegment], named: Damage) -> Damage:
    """Writes the damage of a log's segments into the file, unless it is what is named there. Raises OSError."""
    damage = {segment.base_offset: segment.damage for segment in segments if segment.damage}
    if damage != named:
        write_damage(fs, directory, damage)
    return damage


def write_damage(fs: FileSystem, directory: str, damage: Damage) -> None:
    """Replaces the file, or removes it where nothing is damaged. Raises OSError."""
    lines = [_line(base, one) for base, ranges in sorted(damage.items()) for one in ranges]
    write_lines(fs, os.path.join(directory, DAMAGED_RANGES), lines)


def _line(base_offset: int, damaged: DamagedRange) -> str:
    *numbers, reason = damaged
    return " ".join(map(str, (base_offset, *numbers, " ".join(reason.split()))))


def _parse(lines: Iterable[str]) -> Damage:
    found: dict[int, tuple[DamagedRange, ...]] = {}
    for line in lines:
        *numbers, reason = line.split(" ", _NUMBERS)
        base_offset, start, end, position, end_position = map(int, numbers)
        found[base_offset] = (*found.get(base_offset, ()), DamagedRange(start, end, position, end_position, reason))
    return found
