"""The two commits by which the files that tasks wrote enter the tables; a load and a reload make them differently.

    dead letters    first, so that a crash between the two leaves no row without the letters of its range
    rows            with the ledger, and with the lineage that says what was read

A load appends (`append.Append`), a reload replaces (`replacement.Replacement`); where a table has one row for each key,
both give the rows to an upsert.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.files import remove_files_of_load
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.counts import UpsertCounts
from millrace_pipelines.warehouse.keys.upsert import Upsert


class Committed(NamedTuple):
    """What a commit of rows did: the table's version after it, and what became of keys or of earlier rows."""

    version: int
    upserted: UpsertCounts | None = None
    removed_rows: int = 0


class Commit(Protocol):
    """Brings what the tasks wrote into the tables."""

    @property
    def has_dead_letters(self) -> bool:
        """Whether the tasks wrote dead letters."""
        ...

    def commit_dead_letters(self, dead_letters: Table) -> None:
        """Commits the dead letters, if there are any; raises StaleLedgerError where another operation was first."""
        ...

    def commit_rows(self) -> Committed:
        """Commits the rows; raises StaleLedgerError where another operation was first."""
        ...


def commit_upsert(upsert: Upsert, table: Table, load_id: str, fs: FileSystem) -> Committed:
    """Commits an upsert, which writes its own files, and removes the files of the load that it read in any case."""
    try:
        return Committed(*upsert.commit(table.location))
    finally:
        remove_files_of_load(table.location, load_id, fs)
