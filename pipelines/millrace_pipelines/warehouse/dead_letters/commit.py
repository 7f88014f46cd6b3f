"""The commit of a load's dead letters, before that of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millrace_pipelines.warehouse.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.table import Table

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.task import TaskResult


def commit_dead_letters(
    table: Table, results: Sequence[TaskResult], following: Mapping[int, LedgerEntry], lineage: Mapping[str, Any]
) -> int | None:
    """Commit the dead letters of a load and move their ledger; None where there are none to commit.

    Raises:
        StaleLedgerError: Another load committed dead letters first.
    """
    files = [file for result in results for file in result.dead_letter_files]
    if not files:
        return None
    expected, transactions = swap(ledger_of(table), following)
    return table.commit(files, expected=expected, transactions=transactions, lineage=lineage)
