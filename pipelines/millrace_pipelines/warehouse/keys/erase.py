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

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters import companions, finish_replay, is_reached, pending_replay
from millrace_pipelines.warehouse.delta.lineage import keep_offsets, of_run
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.delta.rewrite import CurrentFile, Rewrite, current_files, every_block_of, rewrite
from millrace_pipelines.warehouse.delta.table import Table
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
    write_remainders,
)
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.stores.addresses import store_at


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
    location: str, keys: Collection[bytes], fs: FileSystem, *, dry_run: bool = False, run_id: str | None = None
) -> EraseReport:
    """Erases all records of some keys.

    Args:
        location: The table of rows.
        keys: The keys' bytes.
        fs: The disk.
        dry_run: Whether the files are read only, and nothing is changed.
        run_id: The scheduler's run that erases, which the commit names; None for an erasure by hand.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        TableRefusedError: A table uses something of Delta's protocol with which no rows can be removed.
        StaleLedgerError: Others rewrote the table at every attempt.
    """
    table = Table.load(location, fs)
    ledger_of(table)
    for each in (table.location, *companions(table.location, fs)):
        Table.load(each, fs).check_access(Access.REMOVE)
    erasure = _Erasure(table, frozenset(keys), fs, run_id)
    act = erasure.look if dry_run else erasure.run
    companions_lose = [act(companion) for companion in companions(table.location, fs)]
    rows = act(table.location)
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


class _Erasure:
    """An erasure, which goes through a table of rows and its dead letters."""

    def __init__(self, rows: Table, keys: frozenset[bytes], fs: FileSystem, run_id: str | None) -> None:
        self._rows = rows
        self._keys = pa.array(sorted(keys), pa.binary())
        self._fs = fs
        self._run_id = run_id
        self._erased = _Erased((), 0)
        self._left: list[int] = []

    @property
    def left(self) -> int:
        """Returns how many dead letters with the keys can't be erased yet, since their load has not ended."""
        return sum(self._left)

    def run(self, location: str) -> _Erased:
        """Erases the keys from one table; returns the replaced files, the erased records and the new version."""
        if self._has_dead_letters(location):
            finish_replay(self._rows, Table.load(location, self._fs), self._fs)
        version = rewrite(location, self._fs, self._make)
        return self._erased._replace(version=version)

    def look(self, location: str) -> _Erased:
        """Returns the files, records and version that `run` would report for one table, and changes nothing."""
        table = Table.load(location, self._fs)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            touched = self._touched(table, pool)
            removals = self._removals(table, touched, self._waiting(table))
            return _Erased(touched, count_gone(table, removals, pool).total())

    def _make(self, table: Table, operation_id: str) -> Rewrite | None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            touched = self._touched(table, pool)
            removals = self._removals(table, touched)
            remainder = write_remainders(table, operation_id, self._fs, removals, pool)
        self._erased = _Erased(touched, remainder.gone.total())
        if not touched and self._has_dead_letters(table.location):
            return None
        erased = keep_offsets(store_at(table.location, self._fs), operation_id, remainder.listed)
        lineage = {**self._lineage(table, remainder.gone), "erased": erased}
        return Rewrite(added=remainder.files, removed=touched, lineage=lineage)

    def _has_dead_letters(self, location: str) -> bool:
        return location != self._rows.location

    def _touched(self, table: Table, pool: Executor) -> list[CurrentFile]:
        """Returns the files that have one of the keys, even if another engine's deletion vector deletes the row."""
        return files_with(table, current_files(table), ["key"], self._is_erased, pool, read=every_block_of)

    def _removals(
        self, table: Table, touched: Sequence[CurrentFile], is_counted: FindRows = every_row
    ) -> list[Removal]:
        is_erased = self._dead_letters() if self._has_dead_letters(table.location) else self._is_erased
        return [Removal(task, file, is_erased, is_counted, is_listed=True) for task, file in enumerate(touched)]

    def _waiting(self, table: Table) -> FindRows:
        """Returns a test for the records to count: all but dead letters that a stopped replay made rows of."""
        pending = pending_replay(self._rows, table) if self._has_dead_letters(table.location) else None
        return every_row if pending is None else lambda dead_letters: ~pending.mask(dead_letters)

    def _dead_letters(self) -> FindRows:
        """Returns a test for the dead letters to erase: those with the keys, below the offsets of the ledger."""
        rows = ledger_of(Table.load(self._rows.location, self._fs))
        self._left = []

        def is_erased(dead_letters: pa.Table) -> Mask:
            meant, reached = self._is_erased(dead_letters), is_reached(dead_letters, rows)
            self._left.append(int((meant & ~reached).sum()))
            return meant & reached

        return is_erased

    def _is_erased(self, rows: pa.Table) -> Mask:
        erased: Mask = pc.is_in(rows.column("key"), value_set=self._keys).to_numpy(zero_copy_only=False)
        return erased

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
