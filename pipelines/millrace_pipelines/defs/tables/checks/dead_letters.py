"""The check of dead letters: their share of the newest load and of the whole table."""

from __future__ import annotations

from typing import NamedTuple

import dagster as dg

from millrace.fs import FileSystem
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, number
from millrace_pipelines.defs.tables.metadata import rows_of, waiting_letters
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.load.history import newest_load

MAX_SHARE = 0.01


class LetterCounts(NamedTuple):
    """Rows and dead letters of the newest load; rows of the table, and dead letters that no replay made rows of."""

    load_rows: int
    load_letters: int
    rows: int
    waiting: int


def count_letters(table: Table, fs: FileSystem) -> LetterCounts:
    """Counts by the tables' logs; raises WarehouseError where one can't be read."""
    load = newest_load(table)
    return LetterCounts(
        load_rows=0 if load is None else load.rows,
        load_letters=0 if load is None else load.dead_letters,
        rows=rows_of(table),
        waiting=waiting_letters(load_if_there(dead_letters_dir(table.location), fs)),
    )


def dead_letters(
    counts: LetterCounts, *, max_share: float = MAX_SHARE, asset_key: dg.AssetKey | None = None
) -> dg.AssetCheckResult:
    """Returns a warning where the newest load, or the table, has a larger share of dead letters than is allowed."""
    of_load = share(counts.load_letters, counts.load_rows)
    of_table = share(counts.waiting, counts.rows)
    return check_result(
        Check.DEAD_LETTERS,
        passed=max(of_load, of_table) <= max_share,
        says=f"{counts.load_letters} of the {counts.load_rows + counts.load_letters} records of the newest load are "
        f"dead letters ({of_load:.2%}), and {counts.waiting} of all {counts.rows + counts.waiting} ({of_table:.2%}); "
        f"up to {max_share:.2%} is allowed.",
        metadata={
            "dead letters of the load": number(counts.load_letters),
            "records of the load": number(counts.load_rows + counts.load_letters),
            "dead letters that wait": number(counts.waiting),
            "rows": number(counts.rows),
            "share of the load": dg.MetadataValue.float(of_load),
            "share of the table": dg.MetadataValue.float(of_table),
        },
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )


def share(letters: int, rows: int) -> float:
    """Returns the share of dead letters among dead letters and rows; 0 where there are none."""
    return letters / (letters + rows) if letters else 0.0
