"""The rows of some offset ranges replaced by those of staged files, in one rewrite.

Files with rows in the ranges are written anew without these; the staged files come as they are, or, where they have
records of erased keys, without them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.rewrite import (
    BATCH_ROWS,
    CurrentFile,
    Mask,
    Work,
    current_files,
    open_file,
    write_without,
)
from millrace_pipelines.warehouse.delta.table import DataFile, Table
from millrace_pipelines.warehouse.keys.erased import ErasedKeys
from millrace_pipelines.warehouse.ledger.plan import OffsetRange


class Replaced(NamedTuple):
    """What a replacement adds and removes; how many rows of each partition, claimed ones, it removed and left out."""

    added: list[DataFile]
    removed: list[CurrentFile]
    removed_rows: Counter[int]
    erased_rows: Counter[int]


def replace_ranges(
    table: Table, operation_id: str, fs: FileSystem, *, ranges: Sequence[OffsetRange], claimed: Sequence[OffsetRange],
    staged: Sequence[DataFile], erased: ErasedKeys,
) -> Replaced:  # fmt: skip
    """Write what the table has instead of its rows in the ranges, of which loads claim some."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        candidates = [file for file in current_files(table) if _may_have(file, ranges)]
        has_rows = pool.map(partial(_has_rows, table, ranges), candidates)
        touched = [file for file, has in zip(candidates, has_rows, strict=True) if has]
        cleaned = staged if erased.below else ()
        works = [
            *(
                Work(task, file, partial(_inside, ranges), partial(_inside, claimed))
                for task, file in enumerate(touched)
            ),
            *(Work(len(touched) + task, file, erased.is_erased) for task, file in enumerate(cleaned)),
        ]
        written = list(pool.map(partial(write_without, table, operation_id, fs), works))
    kept, clean = written[: len(touched)], written[len(touched) :]
    return Replaced(
        added=[file for file, _ in written if file is not None] + ([] if erased.below else list(staged)),
        removed=touched,
        removed_rows=sum((counts for _, counts in kept), Counter()),
        erased_rows=sum((counts for _, counts in clean), Counter()),
    )


def _may_have(file: CurrentFile, ranges: Iterable[OffsetRange]) -> bool:
    """Whether the bounds in the log let a file have rows in the ranges."""
    return any(
        _meets(file.offsets, span.from_offset, span.until_offset - 1)
        and _meets(file.partitions, span.partition, span.partition)
        for span in ranges
    )


def _meets(bounds: tuple[int, int] | None, low: int, high: int) -> bool:
    return bounds is None or (bounds[0] <= high and bounds[1] >= low)


def _has_rows(table: Table, ranges: Sequence[OffsetRange], file: CurrentFile) -> bool:
    with open_file(table, file.name) as parquet:
        return any(
            bool(_inside(ranges, batch).any())
            for batch in parquet.iter_batches(BATCH_ROWS, columns=["partition", "offset"])
        )


def _inside(ranges: Iterable[OffsetRange], rows: Any) -> Mask:
    partitions, offsets = rows.column("partition").to_numpy(), rows.column("offset").to_numpy()
    inside = np.zeros(len(offsets), np.bool_)
    for span in ranges:
        inside |= (partitions == span.partition) & (offsets >= span.from_offset) & (offsets < span.until_offset)
    return inside
