"""The rows of some offset ranges replaced by those of staged files, in one rewrite.

Files with rows in the ranges are written again without these rows; the staged files come as they are, or, where they
have records of erased keys, without them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.data_file import DataFile
from millrace_pipelines.warehouse.delta.offset_sets import OffsetPage
from millrace_pipelines.warehouse.delta.rewrite import CurrentFile, current_files
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erased import ErasedKeys
from millrace_pipelines.warehouse.keys.removal import (
    FindRows,
    Mask,
    Removal,
    count_gone,
    every_row,
    files_with,
    write_remainders,
)
from millrace_pipelines.warehouse.ledger.plan import OffsetRange


class Replaced(NamedTuple):
    """What a replacement adds and removes, and how many claimed rows of each partition it removed and left out.

    `erased` has the offsets of those that it left out.
    """

    added: list[DataFile]
    removed: list[CurrentFile]
    removed_rows: Counter[int]
    erased_rows: Counter[int]
    erased: list[OffsetPage]


def replace_ranges(
    table: Table, operation_id: str, fs: FileSystem, *, ranges: Sequence[OffsetRange], claimed: Sequence[OffsetRange],
    staged: Sequence[DataFile], erased: ErasedKeys,
) -> Replaced:  # fmt: skip
    """Writes what the table is to have instead of its rows in the ranges, of which loads claim those in `claimed`."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        touched = _files_inside(table, ranges, pool)
        kept = write_remainders(table, operation_id, fs, _removals(table, touched, ranges, claimed), pool)
        cleaned = staged if erased.below else ()
        erasures = [
            Removal(task, file, erased.is_erased, is_listed=True) for task, file in enumerate(cleaned, len(touched))
        ]
        clean = write_remainders(table, operation_id, fs, erasures, pool)
    return Replaced(
        added=kept.files + (clean.files if erased.below else list(staged)),
        removed=touched,
        removed_rows=kept.gone,
        erased_rows=clean.gone,
        erased=clean.listed,
    )


def count_rows(table: Table, ranges: Sequence[OffsetRange], is_counted: FindRows = every_row) -> Counter[int]:
    """Returns how many rows of each partition lie in the ranges, of those that are counted; writes nothing.

    These are those that `replace_ranges` would remove if loads claim all of the ranges.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        is_inside = partial(_inside, ranges)
        touched = _files_inside(table, ranges, pool)
        removals = [Removal(task, file, is_inside, is_counted) for task, file in enumerate(touched)]
        return count_gone(table, removals, pool)


def _files_inside(table: Table, ranges: Sequence[OffsetRange], pool: Executor) -> list[CurrentFile]:
    """Returns the files that have rows in the ranges."""
    candidates = [file for file in current_files(table) if _may_have(file, ranges)]
    whole = [file for file in candidates if _whole_of(table, file, ranges) is not None]
    others = [file for file in candidates if file not in whole]
    found = files_with(table, others, ["partition", "offset"], partial(_inside, ranges), pool)
    return sorted([*whole, *found], key=lambda file: file.name)


def _removals(
    table: Table, files: Iterable[CurrentFile], ranges: Sequence[OffsetRange], claimed: Sequence[OffsetRange]
) -> list[Removal]:
    is_gone, is_claimed = partial(_inside, ranges), partial(_inside, claimed)
    return [
        Removal(task, file, is_gone, is_claimed, _whole_of(table, file, claimed)) for task, file in enumerate(files)
    ]


def _whole_of(table: Table, file: CurrentFile, ranges: Iterable[OffsetRange]) -> int | None:
    """Returns the partition of which all rows of a file are, inside one of the ranges, as the log's bounds tell.

    None where they don't, and in a table of dead letters, of which only those count that wait for their replay.
    """
    if file.offsets is None or "replay" in table.schema.names:
        return None
    first, last = file.offsets
    for span in ranges:
        if file.partitions == (span.partition,) * 2 and span.from_offset <= first and last < span.until_offset:
            return span.partition
    return None


def _may_have(file: CurrentFile, ranges: Iterable[OffsetRange]) -> bool:
    """Returns whether the bounds in the log let a file have rows in the ranges."""
    return any(
        _meets(file.offsets, span.from_offset, span.until_offset - 1)
        and _meets(file.partitions, span.partition, span.partition)
        for span in ranges
    )


def _meets(bounds: tuple[int, int] | None, low: int, high: int) -> bool:
    return bounds is None or (bounds[0] <= high and bounds[1] >= low)


def _inside(ranges: Iterable[OffsetRange], rows: pa.Table) -> Mask:
    partitions, offsets = rows.column("partition").to_numpy(), rows.column("offset").to_numpy()
    inside = np.zeros(len(offsets), np.bool_)
    for span in ranges:
        inside |= (partitions == span.partition) & (offsets >= span.from_offset) & (offsets < span.until_offset)
    return inside
