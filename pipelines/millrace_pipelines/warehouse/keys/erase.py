"""Erasure of keys: the table of rows and its dead letters are rewritten without them.

Each file that has a record with one of the keys is written again without these records; the others stay. A row that
another engine's deletion vector deletes is such a record, too: its bytes are in the file. The ledger is
untouched: the offsets count as loaded, and neither a later load nor a reload (`keys.removal`) brings them back. The old
files are gone once vacuum has removed them (`vacuum --retain 0`): neither the log nor the files' statistics keep a key.
The topic keeps its records until a tombstone and compaction, or retention, remove them.

Each table is one commit, that of the dead letters the first. After a crash between the two, erase again. Letters of a
load, or a reload, that has not committed its rows yet stay, and are counted as `left`: that load will say in the
table's history that they are there. Erase again after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Column
from millrace_pipelines.warehouse.dead_letters import companions, finish_replay, is_reached, pending_replay
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.removal import (
    ERASE,
    ErasedKeys,
    FindRows,
    Mask,
    Removal,
    absent_offsets,
    count_gone,
    every_row,
    files_with,
    no_row,
    write_remainders,
)
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of
from millrace_pipelines.warehouse.rewrite import CurrentFile, Rewrite, current_files, every_block_of, rewrite
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.lineage import keep_offsets, of_run
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseReport:
    """The result of an erasure, or of its dry run: the numbers of rows, dead letters and files that it replaced.

    `bytes` is the size of these files, and `file_rows` the number of all their rows and dead letters: the files are
    read whole, and what is not erased is written again. `left` counts dead letters of a load that has not ended: load,
    then erase again. `version` is None for a dry run.
    """

    table: str
    keys: int
    rows: int
    dead_letters: int
    files: int
    bytes: int
    file_rows: int
    version: int | None
    left: int = 0
    dry_run: bool = False


def erase(
    location: str,
    keys: Collection[bytes],
    fs: FileSystem,
    *,
    dry_run: bool = False,
    run_id: str | None = None,
    tasks: Tasks = THREADS,
) -> EraseReport:
    """Erases all records of some keys.

    Args:
        location: The table of rows.
        keys: The keys' bytes.
        fs: The disk.
        dry_run: Whether the files are read only, and nothing is changed.
        run_id: The scheduler's run that erases, which the commit names; None for an erasure by hand.
        tasks: Where the files are read and written.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        TableRefusedError: A table uses something of Delta's protocol with which no rows can be removed.
        StaleLedgerError: Others rewrote the table at every attempt.
    """
    table = load_table(location, fs)
    ledger_of(table)
    for each in (table.address, *companions(table.address, fs)):
        load_table(each, fs).check_access(Access.REMOVE)
    erasure = _Erasure(table, frozenset(keys), fs, run_id, tasks)
    act = erasure.look if dry_run else erasure.run
    companions_lose = [act(companion) for companion in companions(table.address, fs)]
    rows = act(table.address)
    files = [file for erased in (*companions_lose, rows) for file in erased.files]
    return EraseReport(
        table=location,
        keys=len(keys),
        rows=rows.records,
        dead_letters=sum(erased.records for erased in companions_lose),
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        file_rows=sum(file.rows for file in files),
        version=rows.version,
        left=erasure.left,
        dry_run=dry_run,
    )


class _Erased(NamedTuple):
    """The result of an erasure in one table: the files to replace, the records that go, and the version after it."""

    files: Sequence[CurrentFile]
    records: int
    version: int | None = None


@dataclass(frozen=True, slots=True)
class _HasKey:
    """Finds the records with one of some keys."""

    keys: Column

    def __call__(self, records: pa.Table) -> Mask:
        found: Mask = pc.is_in(records.column("key"), value_set=self.keys).to_numpy(zero_copy_only=False)
        return found


@dataclass(frozen=True, slots=True)
class _Letters:
    """Finds the dead letters with one of some keys that the ledger has reached, or (`is_reached` False) has not."""

    has_key: FindRows
    rows: Ledger
    is_reached: bool

    def __call__(self, dead_letters: pa.Table) -> Mask:
        reached = is_reached(dead_letters, self.rows)
        return self.has_key(dead_letters) & (reached if self.is_reached else ~reached)


class _Erasure:
    """An erasure, which goes through a table of rows and its dead letters.

    `left` counts the dead letters with the keys that can't be erased yet, since their load has not ended.
    """

    def __init__(self, rows: Table, keys: frozenset[bytes], fs: FileSystem, run_id: str | None, tasks: Tasks) -> None:
        self._rows = rows
        self._keys = pa.array(sorted(keys), pa.binary())
        self._has_key = _HasKey(self._keys)
        self._fs = fs
        self._run_id = run_id
        self._tasks = tasks
        self._erased = _Erased((), 0)
        self.left = 0

    def run(self, address: str) -> _Erased:
        """Erases the keys from one table; returns the replaced files, the erased records and the new version."""
        if self._has_dead_letters(address):
            finish_replay(self._rows, load_table(address, self._fs), self._fs)
        version = rewrite(address, self._fs, self._make, tasks=self._tasks)
        return self._erased._replace(version=version)

    def look(self, address: str) -> _Erased:
        """Returns the files, records and version that `run` would report for one table, and changes nothing."""
        table = load_table(address, self._fs)
        task_table = TaskTable.of(table, self._fs)
        touched = self._touched(table, task_table)
        removals = self._removals(table, touched, self._waiting(table))
        gone = count_gone(task_table, removals, self._tasks)
        self._note_left(table, gone.left)
        return _Erased(touched, gone.counts.total())

    def _make(self, table: Table, operation_id: str) -> Rewrite | None:
        task_table = TaskTable.of(table, self._fs, operation_id)
        touched = self._touched(table, task_table)
        remainder = write_remainders(task_table, operation_id, self._removals(table, touched), self._tasks)
        self._note_left(table, remainder.left)
        self._erased = _Erased(touched, remainder.gone.total())
        if not touched and self._has_dead_letters(table.address):
            return None
        erased = keep_offsets(store_at(table.location, self._fs), operation_id, remainder.listed)
        lineage = {**self._lineage(table, remainder.gone), "erased": erased}
        return Rewrite(added=remainder.files, removed=touched, lineage=lineage)

    def _has_dead_letters(self, address: str) -> bool:
        return address != self._rows.address

    def _note_left(self, table: Table, left: int) -> None:
        if self._has_dead_letters(table.address):
            self.left = left

    def _touched(self, table: Table, task_table: TaskTable) -> list[CurrentFile]:
        """Returns the files that have one of the keys, even if another engine's deletion vector deletes the row."""
        files = current_files(table)
        return files_with(task_table, files, ["key"], self._has_key, self._tasks, read=every_block_of)

    def _removals(
        self, table: Table, touched: Sequence[CurrentFile], is_counted: FindRows = every_row
    ) -> list[Removal]:
        is_gone: FindRows = self._has_key
        is_left: FindRows = no_row
        if self._has_dead_letters(table.address):
            rows = ledger_of(load_table(self._rows.address, self._fs))
            is_gone = _Letters(self._has_key, rows, is_reached=True)
            is_left = _Letters(self._has_key, rows, is_reached=False)
        return [
            Removal(task, file, is_gone, is_counted, is_listed=True, is_left=is_left)
            for task, file in enumerate(touched)
        ]

    def _waiting(self, table: Table) -> FindRows:
        """Returns a test for the records to count: all but dead letters that a stopped replay made rows of."""
        pending = pending_replay(self._rows, table) if self._has_dead_letters(table.address) else None
        return every_row if pending is None else lambda dead_letters: ~pending.mask(dead_letters)

    def _lineage(self, table: Table, gone: Mapping[int, int]) -> dict[str, object]:
        known = ErasedKeys.of(table.lineage())
        entries = ledger_of(table).partitions
        return of_run(self._run_id) | {
            "kind": ERASE,
            "salt": known.salt.hex(),
            "keys": [known.hash_of(key) for key in self._keys.to_pylist() if key is not None],
            "below": {partition: entry.next_offset for partition, entry in entries.items()},
            "absent": list(absent_offsets(gone)),
        }
