"""Records that don't fit the declared payload: kept beside the table at `<table>__dead_letters`, each exactly once.

The dead letters are a table of their own (envelope and `error`) with a ledger of its own under the same application
ids, made at the first typed load. A load with dead letters commits them first, then the rows; each commit is a
compare-and-swap on its own ledger, and each table takes only offsets at or above its own next offset:

    crash before both        neither ledger moved: the next load does everything again
    crash between the two    the dead letters' ledger is ahead: the next load reads the range again for its rows, counts
                             its dead letters, and writes only those at or above the dead letters' next offset

So a crash neither loses nor doubles a dead letter. A load without dead letters leaves this ledger behind the table's:
the offsets between hold none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millrace_pipelines.warehouse.ledger import Ledger, LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.table import Table
from millrace_pipelines.warehouse.task import TaskResult

DEAD_LETTERS_SUFFIX = "__dead_letters"


def dead_letters_dir(table_dir: str) -> str:
    """Where a table's dead letters are."""
    return table_dir.rstrip("/") + DEAD_LETTERS_SUFFIX


def first_unwritten(ledger: Ledger) -> dict[int, int]:
    """By partition, the first offset whose dead letter is not in the dead letters' table yet."""
    return {partition: entry.next_offset for partition, entry in ledger.partitions.items()}


def commit_dead_letters(
    table: Table, results: Sequence[TaskResult], following: Mapping[int, LedgerEntry], lineage: Mapping[str, Any]
) -> int | None:
    """Commit the dead letters of a load and move their ledger; None where there are none to commit.

    Raises:
        StaleLedgerError: Another load committed dead letters first.
    """
    files = [result.dead_letters_file for result in results if result.dead_letters_file is not None]
    if not files:
        return None
    expected, transactions = swap(ledger_of(table), following)
    return table.commit(files, expected=expected, transactions=transactions, lineage=lineage)
