"""Erasure of keys: the table of rows and its dead letters are rewritten without them.

Each file that has a record with one of the keys is written again without these records; the others stay. The ledger is
untouched: the offsets count as loaded, and neither a later load nor a reload (`keys.erased`) brings them back. The old
files are gone once vacuum has removed them (`vacuum --retain 0`): neither the log nor the files' statistics keep a key.
The topic keeps its records until a tombstone and compaction, or retention, remove them.

Each table is one commit, that of the dead letters the first. After a crash between the two, erase again. Letters of a
load, or a backfill, that has not committed its rows yet stay, and are counted as `left`: that load will say in the
table's history that they are there. Erase again after it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters.letters import is_reached
from millrace_pipelines.warehouse.dead_letters.marks import finish_replay
from millrace_pipelines.warehouse.delta.rewrite import Rewrite, current_files, rewrite
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erased import ERASE, ErasedKeys
from millrace_pipelines.warehouse.keys.removal import (
    FindRows,
    Mask,
    Removal,
    absent_offsets,
    files_with,
    write_remainders,
)
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.tables.companions import companions


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseReport:
    """What was erased: rows and dead letters, and the number of replaced files, which vacuum is to remove.

    `left` counts dead letters of a load that has not ended: load, then erase again.
    """

    table: str
    keys: int
    rows: int
    dead_letters: int
    files: int
    version: int | None
    left: int = 0


def erase(location: str, keys: Collection[bytes], fs: FileSystem) -> EraseReport:
    """Erases all records of some keys.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        StaleLedgerError: Others rewrote the table at every attempt.
    """
    table = Table.load(location, fs)
    ledger_of(table)
    erasure = _Erasure(table.location, frozenset(keys), fs)
    dead_letters = 0
    for companion in companions(table.location, fs):
        finish_replay(table, Table.load(companion, fs), fs)
        dead_letters += erasure.run(companion)[0]
    rows, version = erasure.run(table.location)
    return EraseReport(
        table=location,
        keys=len(keys),
        rows=rows,
        dead_letters=dead_letters,
        files=erasure.files,
        version=version,
        left=erasure.left,
    )


class _Erasure:
    """One erasure, table after table."""

    def __init__(self, location: str, keys: frozenset[bytes], fs: FileSystem) -> None:
        self._location = location
        self._keys = pa.array(sorted(keys), pa.binary())
        self._fs = fs
        self._erased: Counter[int] = Counter()
        self._left: list[int] = []
        self.files = 0

    @property
    def left(self) -> int:
        """Letters that could not be erased yet."""
        return sum(self._left)

    def run(self, location: str) -> tuple[int, int | None]:
        """Erases from one table; returns the number of records erased, and the table's version after it."""
        version = rewrite(location, self._fs, self._make)
        return self._erased.total(), version

    def _make(self, table: Table, operation_id: str) -> Rewrite | None:
        is_erased = self._is_erased if table.location == self._location else self._letters()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            touched = files_with(table, current_files(table), ["key"], self._is_erased, pool)
            removals = [Removal(task, file, is_erased) for task, file in enumerate(touched)]
            remainder = write_remainders(table, operation_id, self._fs, removals, pool)
        self._erased = remainder.gone
        self.files += len(touched)
        if not touched and table.location != self._location:
            return None
        return Rewrite(added=remainder.files, removed=touched, lineage=self._lineage(table))

    def _letters(self) -> FindRows:
        """Returns a test for letters to erase: those that the rows' ledger has reached, for no load claims others."""
        rows = ledger_of(Table.load(self._location, self._fs))
        self._left = []

        def is_erased(letters: pa.Table) -> Mask:
            meant, reached = self._is_erased(letters), is_reached(letters, rows)
            self._left.append(int((meant & ~reached).sum()))
            return meant & reached

        return is_erased

    def _is_erased(self, rows: pa.Table) -> Mask:
        erased: Mask = pc.is_in(rows.column("key"), value_set=self._keys).to_numpy(zero_copy_only=False)
        return erased

    def _lineage(self, table: Table) -> dict[str, object]:
        known = ErasedKeys.of(table.lineage())
        entries = ledger_of(table).partitions
        return {
            "kind": ERASE,
            "salt": known.salt.hex(),
            "keys": [known.hash_of(key) for key in self._keys.to_pylist() if key is not None],
            "below": {partition: entry.next_offset for partition, entry in entries.items()},
            "absent": list(absent_offsets(self._erased)),
        }
