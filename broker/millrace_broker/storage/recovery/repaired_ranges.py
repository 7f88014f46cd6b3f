"""`repaired-ranges`: a file that names the offsets that a repair has given up in a log (`repair`). Millrace's own.

    version: 0
    180 190             first offset, offset behind the last
    crc32c: 5a1cfe03    of all lines before

How a start tells a repaired gap from a hole: a hole, that is offsets that no batch has between two segments or at the
log's end, is damage unless they are named here. Inside a segment they may be left out, wherever the recovery point is.

A repair writes the file before it changes a segment, and takes the ranges out of `damaged-ranges` last. So for a hole,
where there is nothing to change, this file decides.

A log that is cut gives up the ranges above its new end first, as batches may come to be there. A file that is damaged
names nothing: what it has named is damage again, and can be repaired again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace_broker.storage.filenames import REPAIRED_RANGES
from millrace_broker.storage.recovery.range_file import read_lines, write_lines
from millrace_broker.storage.segments.repaired import RepairedRange, below, joined

logger = logging.getLogger(__name__)


def read_repaired(fs: FileSystem, directory: str) -> tuple[RepairedRange, ...]:
    """Returns what the file names, nothing without a file, and where it is damaged. Raises OSError."""
    path = os.path.join(directory, REPAIRED_RANGES)
    try:
        return joined(_parse(line) for line in read_lines(fs, path))
    except (CorruptRecordError, ValueError) as error:
        logger.warning("%s names nothing, as it is damaged: %s", path, error)
        return ()


def write_repaired(fs: FileSystem, directory: str, repaired: Iterable[RepairedRange]) -> None:
    """Replaces the file by the ranges, durably, unless it names them. Raises OSError."""
    ranges = joined(repaired)
    if ranges != read_repaired(fs, directory):
        write_lines(fs, os.path.join(directory, REPAIRED_RANGES), [" ".join(map(str, one)) for one in ranges])


def cut_repaired(fs: FileSystem, directory: str, end_offset: int) -> None:
    """Gives up the ranges of a log that is about to be cut at an offset. Raises OSError.

    Where none is left, the file's name is gone for good before the first batch that comes to be there counts as synced.
    """
    repaired = read_repaired(fs, directory)
    if repaired:
        write_repaired(fs, directory, below(repaired, end_offset))


def _parse(line: str) -> RepairedRange:
    start_offset, end_offset = map(int, line.split())
    return RepairedRange(start_offset, end_offset)
