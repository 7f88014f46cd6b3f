"""The commit of a load's dead letters, before that of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.load.task import TaskResult


def commit_dead_letters(
    table: Table, results: Sequence[TaskResult], following: Mapping[int, LedgerEntry], lineage: Mapping[str, Any]
) -> int | None:
    """Commit the dead letters of a load and move their ledger; None where there are none to commit.

    A ledger that is further already, by a load that stopped before its rows, stays there: letters below it are known.

    Raises:
        StaleLedgerError: Another load committed dead letters first.
    """
    files = [file for result in results for file in result.dead_letter_files]
    if not files:
        return None
    present = ledger_of(table)
    ahead = {
        partition: replace(entry, next_offset=max(entry.next_offset, present.next_offset(partition) or 0))
        for partition, entry in following.items()
    }
    expected, transactions = swap(present, ahead)
    return table.commit(files, expected=expected, transactions=transactions, lineage=lineage)
