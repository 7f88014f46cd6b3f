"""Upsert by key: the table has the newest record of each key, and none where that is a tombstone.

    staged files    what the load's tasks wrote: every record of the run, as an append would commit it
    coordinates     the newest coordinates of each key among them
    contest         a task for each file of the table: its index of keys says which rows meet one of the coordinates,
                    these rows are compared, and if some are replaced, the file is written without these, or marked
    newest          a task for each staged file: its newest records that are no tombstones are written
    commit          written files added, touched ones removed, the ledger and the count of rewrites moved: all at once

The rows keep topic, partition, offset and timestamp, so that a key never moves back to an older offset, whatever races
or is repeated, and the audit can reason about them. Memory is bounded by the run (`--max-records-per-run`), not by the
table: the driver has the coordinates of the run's records, a task the newest of each key, and a block of rows.

Where the table asks for deletion vectors (`Table.row_marker`), a file stays where at least half of its rows
do, and a vector deletes the others, so that the cost is the change's. Compaction writes the file without these rows.

A record without a key can't be in such a table: it stops the load, or is left out and counted in the history.
A crash leaves the table as it was, or with the whole run; staged files are garbage then.

"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Flags, binaries, combined
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.warehouse.choices import loaded_compression
from millrace_pipelines.warehouse.errors import KeylessRecordsError
from millrace_pipelines.warehouse.keys.coordinates import (
    COORDINATE_SCHEMA,
    ENVELOPE,
    Numbers,
    coordinates_of,
    key_conflicts,
    newest_of_each_key,
)
from millrace_pipelines.warehouse.keys.key_hashes import hashes_of, salt_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows
from millrace_pipelines.warehouse.keys.lookup import AskedKeys, keep_index, rows_with_keys
from millrace_pipelines.warehouse.rewrite import (
    CurrentFile,
    Rewrite,
    blocks_of,
    current_files,
    rewrite,
    rows_to_move,
    writer,
)
from millrace_pipelines.warehouse.table.files import DataFile, MarkedFile
from millrace_pipelines.warehouse.table.lineage import WrittenLineage
from millrace_pipelines.warehouse.table.table import MarkRows, Table, check_expected
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

MOST_DELETED = 2  # at most one row of so many is deleted by a vector

Bits = np.typing.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertCounts:
    """The keys of one load by what became of them: `inserted` keys are new in the table, `deleted` ones are gone.

    `stale` keys have a newer row in the table; `keyless` counts records without a key, which were left out.
    """

    inserted: int
    updated: int
    deleted: int
    stale: int
    keyless: int


@dataclass(slots=True)
class Upsert:
    """Merges the files that a load's tasks wrote into a table by key, in one commit with the load's transactions."""

    staged: Sequence[DataFile]
    fs: FileSystem
    expected: Mapping[str, int | None]
    transactions: Mapping[str, int]
    lineage: WrittenLineage
    accept_keyless: bool = False
    tasks: Tasks = THREADS
    _counts: UpsertCounts | None = field(default=None, init=False)

    def commit(self, address: str) -> tuple[int, UpsertCounts]:
        """Merges the load's files into the newest version and commits; starts again where another rewrite comes first.

        The staged files, which no commit names, are the caller's to remove.

        Raises:
            StaleLedgerError: Another load committed first; nothing was committed.
            KeylessRecordsError: A record has no key, and that is not accepted.
        """
        version = rewrite(address, self.fs, self._merge, tasks=self.tasks)
        assert version is not None and self._counts is not None  # noqa: PT018  a merge always makes a commit
        return version, self._counts

    def _merge(self, table: Table, operation_id: str) -> Rewrite:
        staged = _Staged.read(table, self.staged, accept_keyless=self.accept_keyless)
        check_expected(table, self.expected)
        output = _Output(TaskTable.of(table, self.fs, operation_id), operation_id, staged.asked.salt)
        files = current_files(table)
        removed, added, marked = [], [], {}
        contest = _Contest(output, staged.coordinates, staged.asked, mark=table.row_marker)
        for file, met in zip(files, self.tasks.run(contest, enumerate(files)), strict=True):
            staged.note(met)
            if met.replaced:
                removed.append(file)
                added.append(met.rest)
            if met.marked is not None:
                marked[file.name] = met.marked
        news = enumerate(zip(self.staged, staged.wanted(), strict=True), len(files))
        added += self.tasks.run(_Newest(output), news)
        self._counts = staged.counts()
        return Rewrite(
            added=[file for file in added if file is not None],
            removed=removed,
            marked=marked,
            lineage={**self.lineage, "upsert": asdict(self._counts)},
            expected=self.expected,
            transactions=self.transactions,
        )


@dataclass(frozen=True, slots=True)
class _Output:
    """Writes rows of the table's or the load's files to new files of one upsert, each with its index of keys."""

    table: TaskTable
    operation_id: str
    salt: bytes

    def write(self, task: int, file: CurrentFile | DataFile, numbers: Numbers) -> DataFile | None:
        """Writes some rows of one file, given by rising row number without deleted rows; None where there are none."""
        table, first_row = self.table, 0
        compression = loaded_compression(table.configuration)
        entries = EntriesOfRows(self.salt)
        with writer(table, self.operation_id, task, table.fs, file, compression=compression) as output:
            for rows in rows_to_move(table, file.name):
                low, high = np.searchsorted(numbers, [first_row, first_row + rows.num_rows])
                chosen = rows.take(numbers[low:high] - first_row)
                output.write(chosen)
                entries.add(chosen.column("key"))
                first_row += rows.num_rows
            written = output.finish()
        if written is not None:
            keep_index(table.store, written.name, entries)
        return written


class _Met(NamedTuple):
    """The result of a contest for a file: how many of its rows are replaced, and the file with the others, if any.

    Where a vector deletes these rows, the file stays, and `marked` says how the log names it. `newer` and `older`
    number the coordinates that replace a row of it, and those that are older than a row of it.
    """

    replaced: int
    rest: DataFile | None
    marked: MarkedFile | None
    newer: Numbers
    older: Numbers


@dataclass(frozen=True, slots=True)
class _Contest:
    """Compares the keys of a file with the newest of a load, and writes it without the rows that newer ones replace."""

    output: _Output
    coordinates: pa.Table
    asked: AskedKeys
    mark: MarkRows | None

    def __call__(self, piece: tuple[int, CurrentFile]) -> _Met:
        task, file = piece
        found = rows_with_keys(self.output.table, file.name, self.asked)
        outcome = key_conflicts(found.coordinates, self.coordinates.take(found.asked))
        beaten = found.numbers[outcome.replaced_rows]
        newer, older = found.asked[outcome.newer_coordinates], found.asked[outcome.older_coordinates]
        if not len(beaten):
            return _Met(0, None, None, newer, older)
        kept = self.output.table.kept_rows().get(file.name)
        stays = np.ones(found.rows, np.bool_) if kept is None else kept.copy()
        stays[beaten] = False
        if self.mark is not None and stays.sum() * MOST_DELETED >= found.rows:
            return _Met(len(beaten), None, self.mark(self.output.table.store, file.name, stays), newer, older)
        rest = self.output.write(task, file, np.flatnonzero(stays if kept is None else stays[kept]))
        return _Met(len(beaten), rest, None, newer, older)


@dataclass(frozen=True, slots=True)
class _Newest:
    """Writes those rows of a load's file that go into the table, which are given as bits."""

    output: _Output

    def __call__(self, piece: tuple[int, tuple[DataFile, Bits]]) -> DataFile | None:
        task, (file, wanted) = piece
        numbers = np.flatnonzero(np.unpackbits(wanted, count=file.rows))
        return self.output.write(task, file, numbers)


class _Staged:
    """The newest record of each key of a load, and which of them are tombstones, stale, or of a key in the table.

    They are in the order of their keys' hashes, in which the indexes of files are searched.
    """

    def __init__(
        self,
        coordinates: pa.Table,
        tombstones: Flags,
        rows: Sequence[int],
        numbers: Numbers,
        *,
        keyless: int,
        salt: bytes,
    ) -> None:
        newest = newest_of_each_key(coordinates)
        hashes = hashes_of(binaries(combined(coordinates.column("key").take(newest))), salt)
        order = np.argsort(hashes)
        newest = newest[order]
        self.asked = AskedKeys(hashes[order], salt)
        self.coordinates = coordinates.take(newest)
        self._numbers = numbers[newest]
        self._is_tombstone = tombstones[newest]
        self._is_stale = np.zeros(len(newest), np.bool_)
        self._is_known = np.zeros(len(newest), np.bool_)
        self._rows = rows
        self._keyless = keyless

    @classmethod
    def read(cls, table: Table, files: Sequence[DataFile], *, accept_keyless: bool) -> _Staged:
        """Reads key, partition, offset and time of all records; raises KeylessRecordsError for an unwanted null key."""
        coordinates, tombstones = [COORDINATE_SCHEMA.empty_table()], [np.zeros(0, np.bool_)]
        for file in files:
            for batch in blocks_of(table, file.name, columns=[*ENVELOPE, "value"]):
                coordinates.append(coordinates_of(batch))
                tombstones.append(batch.column("value").is_null().to_numpy(zero_copy_only=False))
        everything = pa.concat_tables(coordinates)
        has_key = everything.column("key").is_valid().to_numpy()
        keyless = everything.filter(pa.array(~has_key))
        if keyless.num_rows and not accept_keyless:
            raise KeylessRecordsError(_keyless_message(keyless), Accept.KEYLESS_RECORDS)
        numbers = np.flatnonzero(has_key)
        rows = [file.rows for file in files]
        is_tombstone = np.concatenate(tombstones)[numbers]
        with_key = everything.filter(pa.array(has_key))
        return cls(with_key, is_tombstone, rows, numbers, keyless=keyless.num_rows, salt=salt_of(table.id))

    def note(self, met: _Met) -> None:
        """Takes from the contest for one file which coordinates have a row in the table, and which are stale."""
        self._is_known[met.newer] = True
        self._is_stale[met.older] = True

    def wanted(self) -> Iterator[Bits]:
        """Yields, for each file of the load, a bit for each row: whether it goes into the table."""
        wanted = np.zeros(sum(self._rows), np.bool_)
        wanted[self._numbers[~self._is_stale & ~self._is_tombstone]] = True
        for end, rows in zip(np.cumsum(self._rows), self._rows, strict=True):
            yield np.packbits(wanted[end - rows : end])

    def counts(self) -> UpsertCounts:
        """Returns how many keys were inserted, updated, deleted or stale."""
        written = ~self._is_stale & ~self._is_tombstone
        return UpsertCounts(
            inserted=int((written & ~self._is_known).sum()),
            updated=int((written & self._is_known).sum()),
            deleted=int((self._is_tombstone & self._is_known).sum()),
            stale=int(self._is_stale.sum()),
            keyless=self._keyless,
        )


def _keyless_message(coordinates: pa.Table) -> str:
    [first] = coordinates.slice(0, 1).to_pylist()
    return (
        f"{coordinates.num_rows} records have no key, the first in partition {first['partition']} at offset "
        f"{first['offset']}: an upsert needs one; "
        f"{Accept.KEYLESS_RECORDS.flag} leaves them out and says so in the table's history"
    )
