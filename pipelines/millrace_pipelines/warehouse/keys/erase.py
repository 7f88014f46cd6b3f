"""Erasure of keys: the rows table, and its dead letters, rewritten without them.

Every file that has a record with one of the keys is written anew without these records; the others stay. The ledger is
untouched: the offsets count as loaded, and a later load doesn't bring them back; nor does a reload (`modes.erased`).
The old files are gone once vacuum has taken them (`vacuum --retain 0`): neither the log nor the files' statistics keep
a key. The topic is another matter: it keeps its records until a tombstone and compaction, or retention, take them.

Each table is one commit, the dead letters' first. After a crash between the two, erase again. Letters of a load, or a
backfill, that has not committed its rows yet stay, and are counted (`left`): it will say in the table's history that
they are there. Erase again after it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters.letters import is_reached
from millrace_pipelines.warehouse.dead_letters.marks import finish_replay
from millrace_pipelines.warehouse.delta.rewrite import (
    BATCH_ROWS,
    CurrentFile,
    Mask,
    Rewrite,
    Work,
    absent_offsets,
    current_files,
    open_file,
    rewrite,
    write_without,
)
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erased import ERASE, ErasedKeys
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.tables.companions import companions


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseReport:
    """What was erased: rows by table, and the files that vacuum is to take away.

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
    """Erase all records of some keys.

    Raises:
        TableNotFoundError: No table of Millrace in the directory.
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
        """(records erased from one table, its version after it)."""
        version = rewrite(location, self._fs, self._make)
        return self._erased.total(), version

    def _make(self, table: Table, operation_id: str) -> Rewrite | None:
        is_erased = self._is_erased if table.location == self._location else self._letters()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            files = current_files(table)
            has_keys = pool.map(partial(self._has_keys, table), files)
            touched = [file for file, has in zip(files, has_keys, strict=True) if has]
            works = [Work(task, file, is_erased) for task, file in enumerate(touched)]
            written = list(pool.map(partial(write_without, table, operation_id, self._fs), works))
        self._erased = sum((counts for _, counts in written), Counter())
        self.files += len(touched)
        if not touched and table.location != self._location:
            return None
        added = [file for file, _ in written if file is not None]
        return Rewrite(added=added, removed=touched, lineage=self._lineage(table))

    def _letters(self) -> Callable[[pa.Table], Mask]:
        """Which letters are erased: those that the rows' ledger has come to, for the others are not claimed yet."""
        rows = ledger_of(Table.load(self._location, self._fs))
        self._left = []

        def is_erased(letters: pa.Table) -> Mask:
            meant, reached = self._is_erased(letters), is_reached(letters, rows)
            self._left.append(int((meant & ~reached).sum()))
            return meant & reached

        return is_erased

    def _has_keys(self, table: Table, file: CurrentFile) -> bool:
        with open_file(table, file.name) as parquet:
            return any(
                bool(self._is_erased(batch).any()) for batch in parquet.iter_batches(BATCH_ROWS, columns=["key"])
            )

    def _is_erased(self, rows: Any) -> Mask:
        erased: Mask = pc.is_in(rows.column("key"), value_set=self._keys).to_numpy(zero_copy_only=False)
        return erased

    def _lineage(self, table: Table) -> dict[str, Any]:
        known = ErasedKeys.of(table.lineage())
        entries = ledger_of(table).partitions
        return {
            "kind": ERASE,
            "salt": known.salt.hex(),
            "keys": [known.hash_of(key) for key in self._keys.to_pylist() if key is not None],
            "below": {partition: entry.next_offset for partition, entry in entries.items()},
            "absent": list(absent_offsets(self._erased)),
        }
