"""Upsert by key: the table has the newest record of each key, and none where that is a tombstone.

    staged files    what the load's tasks wrote: every record of the run, as an append would commit it
    coordinates     the newest coordinates of each key among them
    contest         a task for each file of the table: its keys are compared with the coordinates, and if newer ones
                    replace some of its rows, it is written without these
    newest          a task for each staged file: its newest records that are no tombstones are written
    commit          written files added, touched ones removed, the ledger and the count of rewrites moved: all at once

The rows keep topic, partition, offset and timestamp, so that a key never moves back to an older offset, whatever races
or is repeated, and the audit can reason about them. Memory is bounded by the run (`--max-records-per-run`), not by the
table: the driver has the coordinates of the run's records, a task the newest of each key, and a block of rows.

A record without a key can't be in such a table: it stops the load, or is left out and counted in the history.
A crash leaves the table as it was, or with the whole run; staged files are garbage then.

The coordinates of a record are (key, partition, offset, timestamp). Within a partition the higher offset is newer,
whatever the timestamps say, for that is the order of the log. A key that is in two partitions (because the topic got
more of them, or a producer chose) has no such order: of its newest records in each partition the one with the later
timestamp is newer, and of equal timestamps the one in the higher partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Field, Flags, combined, filled
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.warehouse.choices import loaded_compression
from millrace_pipelines.warehouse.delta.files import DataFile
from millrace_pipelines.warehouse.delta.lineage import WrittenLineage
from millrace_pipelines.warehouse.delta.rewrite import (
    CurrentFile,
    Rewrite,
    blocks_of,
    current_files,
    read_rows,
    rewrite,
    writer,
)
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.delta.task_table import TaskTable
from millrace_pipelines.warehouse.errors import KeylessRecordsError
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

Order: TypeAlias = list[tuple[str, Literal["ascending"]]]
Aggregates: TypeAlias = Sequence[tuple[str, Literal["min", "max"]]]

COORDINATE_FIELDS: list[Field] = [
    pa.field("key", pa.binary()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
]
COORDINATE_SCHEMA = pa.schema(COORDINATE_FIELDS)
BEFORE_ALL_TIMES = -1
BLOCK_ROWS = 1 << 20
ENVELOPE = ["key", "partition", "offset", "timestamp"]

Numbers = np.typing.NDArray[np.int64]
Bits = np.typing.NDArray[np.uint8]
NO_NUMBERS: Numbers = np.zeros(0, np.int64)


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


def coordinates_of(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Returns key, partition, offset and timestamp of rows; a missing timestamp becomes the earliest one."""
    timestamps = filled(rows.column("timestamp").cast(pa.int64()), BEFORE_ALL_TIMES)
    columns = [rows.column(name) for name in ("key", "partition", "offset")]
    return pa.Table.from_arrays([*columns, timestamps], schema=COORDINATE_SCHEMA)


def newest_of_each_key(coordinates: pa.Table) -> np.typing.NDArray[np.int64]:
    """Returns the row numbers, ascending, of the newest record of each key; no key may be null."""
    if coordinates.num_rows == 0:
        return np.zeros(0, np.int64)
    by_offset = _Ranks(coordinates, [("offset", "ascending")])
    keys = by_offset.grouped(["key"], [("partition", "min"), ("partition", "max")])
    if pc.all(pc.equal(keys.column("partition_min"), keys.column("partition_max"))).as_py():
        return np.sort(by_offset.last(keys))
    newest = by_offset.last(by_offset.grouped(["key", "partition"]))
    by_time = _Ranks(coordinates.take(newest), [("timestamp", "ascending"), ("partition", "ascending")])
    return np.sort(newest[by_time.last(by_time.grouped(["key"]))])


class KeyConflicts(NamedTuple):
    """Row numbers: of table rows that newer records replace, of these records, and of records that are older."""

    replaced_rows: np.typing.NDArray[np.int64]
    newer_coordinates: np.typing.NDArray[np.int64]
    older_coordinates: np.typing.NDArray[np.int64]


def key_conflicts(rows: pa.Table, coordinates: pa.Table) -> KeyConflicts:
    """Compares the rows of a table with the newest records of a load, key by key, and returns which are newer.

    A row with the offset of the load's record is replaced: that record was read again.
    """
    met = pc.index_in(combined(rows.column("key")), value_set=combined(coordinates.column("key")))
    numbers = np.flatnonzero(met.is_valid().to_numpy(zero_copy_only=False))
    opponents = met.drop_null().to_numpy().astype(np.int64)
    mine = {name: rows.column(name).to_numpy()[numbers] for name in ("partition", "offset", "timestamp")}
    theirs = {name: coordinates.column(name).to_numpy()[opponents] for name in ("partition", "offset", "timestamp")}
    later = (theirs["timestamp"] > mine["timestamp"]) | (
        (theirs["timestamp"] == mine["timestamp"]) & (theirs["partition"] > mine["partition"])
    )
    beaten = np.where(theirs["partition"] == mine["partition"], theirs["offset"] >= mine["offset"], later)
    return KeyConflicts(numbers[beaten], opponents[beaten], opponents[~beaten])


class _Ranks:
    """Records' coordinates, each with its rank in a given order."""

    def __init__(self, coordinates: pa.Table, order: Order) -> None:
        self._ordered = pc.sort_indices(coordinates, sort_keys=order).to_numpy()
        ranks = np.empty(coordinates.num_rows, np.int64)
        ranks[self._ordered] = np.arange(coordinates.num_rows)
        self._ranked = coordinates.append_column("rank", pa.array(ranks))

    def grouped(self, by: list[str], aggregates: Aggregates = ()) -> pa.Table:
        """Returns a row for each group, with the greatest rank in it."""
        return self._ranked.group_by(by, use_threads=False).aggregate([("rank", "max"), *aggregates])

    def last(self, groups: pa.Table) -> np.typing.NDArray[np.int64]:
        """Returns, for each group of `grouped`, the row number of the coordinates with its greatest rank."""
        numbers: np.typing.NDArray[np.int64] = self._ordered[groups.column("rank_max").to_numpy()].astype(np.int64)
        return numbers


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

    def commit(self, location: str) -> tuple[int, UpsertCounts]:
        """Merges the load's files into the newest version and commits; starts again where another rewrite comes first.

        The staged files, which no commit names, are the caller's to remove.

        Raises:
            StaleLedgerError: Another load committed first; nothing was committed.
            KeylessRecordsError: A record has no key, and that is not accepted.
        """
        version = rewrite(location, self.fs, self._merge, tasks=self.tasks)
        assert version is not None and self._counts is not None  # noqa: PT018  a merge always makes a commit
        return version, self._counts

    def _merge(self, table: Table, operation_id: str) -> Rewrite:
        staged = _Staged.read(table, self.staged, accept_keyless=self.accept_keyless)
        table.check_expected(self.expected)
        task_table, files = TaskTable.of(table, self.fs, operation_id), current_files(table)
        removed, added = [], []
        contest = _Contest(task_table, operation_id, staged.coordinates)
        for file, met in zip(files, self.tasks.run(contest, enumerate(files)), strict=True):
            staged.note(met)
            if met.replaced:
                removed.append(file)
                added.append(met.rest)
        news = enumerate(zip(self.staged, staged.wanted(), strict=True), len(files))
        added += self.tasks.run(_Newest(task_table, operation_id), news)
        self._counts = staged.counts()
        return Rewrite(
            added=[file for file in added if file is not None],
            removed=removed,
            lineage={**self.lineage, "upsert": asdict(self._counts)},
            expected=self.expected,
            transactions=self.transactions,
        )


class _Met(NamedTuple):
    """The result of a contest for a file: how many of its rows are replaced, and the file with the others, if any.

    `newer` and `older` number the coordinates that replace a row of it, and those that are older than a row of it.
    """

    replaced: int
    rest: DataFile | None
    newer: Numbers
    older: Numbers


@dataclass(frozen=True, slots=True)
class _Contest:
    """Compares the keys of a file with the newest of a load, and writes it without the rows that newer ones replace."""

    table: TaskTable
    operation_id: str
    coordinates: pa.Table

    def __call__(self, piece: tuple[int, CurrentFile]) -> _Met:
        task, file = piece
        replaced, newer, older = [NO_NUMBERS], [NO_NUMBERS], [NO_NUMBERS]
        first_row = 0
        for batch in blocks_of(self.table, file.name, BLOCK_ROWS, ENVELOPE):
            outcome = key_conflicts(coordinates_of(batch), self.coordinates)
            replaced.append(outcome.replaced_rows + first_row)
            newer.append(outcome.newer_coordinates)
            older.append(outcome.older_coordinates)
            first_row += batch.num_rows
        beaten = np.concatenate(replaced)
        rest = _write(self.table, self.operation_id, task, file, _all_but(beaten, first_row)) if len(beaten) else None
        return _Met(len(beaten), rest, np.concatenate(newer), np.concatenate(older))


@dataclass(frozen=True, slots=True)
class _Newest:
    """Writes those rows of a load's file that go into the table, which are given as bits."""

    table: TaskTable
    operation_id: str

    def __call__(self, piece: tuple[int, tuple[DataFile, Bits]]) -> DataFile | None:
        task, (file, wanted) = piece
        numbers = np.flatnonzero(np.unpackbits(wanted, count=file.rows))
        return _write(self.table, self.operation_id, task, file, numbers)


class _Staged:
    """The newest record of each key of a load, and which of them are tombstones, stale, or of a key in the table."""

    def __init__(
        self, coordinates: pa.Table, tombstones: Flags, rows: Sequence[int], numbers: Numbers, keyless: int
    ) -> None:
        newest = newest_of_each_key(coordinates)
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
        return cls(everything.filter(pa.array(has_key)), is_tombstone, rows, numbers, keyless.num_rows)

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


def _write(
    table: TaskTable, operation_id: str, task: int, file: CurrentFile | DataFile, numbers: Numbers
) -> DataFile | None:
    """Writes some rows of one file, given by ascending row number, to a new file; None where there are none."""
    first_row = 0
    compression = loaded_compression(table.configuration)
    with writer(table, operation_id, task, table.fs, file, compression=compression) as output:
        for rows in read_rows(table, file.name):
            low, high = np.searchsorted(numbers, [first_row, first_row + rows.num_rows])
            output.write(rows.take(numbers[low:high] - first_row))
            first_row += rows.num_rows
        return output.finish()


def _all_but(numbers: Numbers, rows: int) -> Numbers:
    kept = np.ones(rows, np.bool_)
    kept[numbers] = False
    return np.flatnonzero(kept)


def _keyless_message(coordinates: pa.Table) -> str:
    [first] = coordinates.slice(0, 1).to_pylist()
    return (
        f"{coordinates.num_rows} records have no key, the first in partition {first['partition']} at offset "
        f"{first['offset']}: an upsert needs one; "
        f"{Accept.KEYLESS_RECORDS.flag} leaves them out and says so in the table's history"
    )
