"""The data files of a table as the audit meets them: whether they are there, and which offsets they have.

They are read in tasks (`warehouse.tasks`), which answer with offsets in intervals. Two columns are read, a row group at
a time; the bounds in a file's footer say which of its row groups can have the
offsets that are counted, so that a large table is never in memory as a whole. Of the dead letters those are left out
that a replay has made rows of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.fs import FileSystem
from millrace.records.absent import intervals_of
from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.dead_letters import MARKED_COLUMNS, Pending, completed, first_ledger, pending_replay
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers, ledger_of
from millrace_pipelines.warehouse.table.columns import file_columns
from millrace_pipelines.warehouse.table.lineage import OffsetPage, offsets_in, pages_of
from millrace_pipelines.warehouse.table.table import AddedFile, Table
from millrace_pipelines.warehouse.tables.open import mode_of
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

Piece = TypeVar("Piece")
Seen = TypeVar("Seen")
Integers = npt.NDArray[np.int64]
PARTITION = "partition"
OFFSET = "offset"
SAID = ("path", "size_bytes", "num_records", f"partition.{PARTITION}")
NONE: Integers = np.zeros(0, np.int64)


def way_on(rows: Table, partition: int | None, first: int, last: int, what: str = "them") -> str:
    """Returns the end of a finding: the command that reloads offsets `first` to `last`; None is for every partition.

    A table of newest records is reloaded up to its end. One with rows of former ledgers can't be reloaded: the topic is
    to be loaded into another table.
    """
    if former_ledgers(rows):
        return "; load the topic into another table"
    of_partition = "" if partition is None else f" --partition {partition}"
    until = "" if mode_of(rows) is Mode.UPSERT else f" --until-offset {last + 1}"
    command = f"millrace warehouse reload {ledger_of(rows).topic} --table {rows.address}{of_partition}"
    return f"; `{command} --from-offset {first}{until}` reads {what} again"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a data file.

    Attributes:
        path: The file.
        index: The group's number in it.
        rows: How many rows it has, without those that a deletion vector deletes.
        partitions: The rows' least and greatest partition; None where unknown.
        offsets: The rows' least and greatest offset; None where unknown.
        kept: For each row, whether no deletion vector deletes it; None where none is deleted.
    """

    path: str
    index: int
    rows: int
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None
    kept: Flags | None = field(default=None, compare=False)

    def may_have(self, partition: int, from_offset: int, until_offset: int) -> bool:
        """Returns whether the row group's bounds allow it to have one of these offsets."""
        low, high = self.partitions or (partition, partition)
        first, last = self.offsets or (from_offset, from_offset)
        return low <= partition <= high and first < until_offset and last >= from_offset


Look: TypeAlias = "Callable[[Reader, RowGroup], Seen]"
"""Looks at a row group in a task; it is pickled, and so is what it returns."""


class UnreadableError(Exception):
    """A file, or a part of it, can't be read as the audit needs it; it crosses from a task to the driver as a value."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path = path
        self.what = what


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what an audit compares from the row groups of a table's files, in a task."""

    table: TaskTable

    def read(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each row; raises UnreadableError where they can't be read."""
        return self._coordinates(group, group.kept)

    def read_deleted(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each row that a deletion vector deletes; raises UnreadableError."""
        return (NONE, NONE) if group.kept is None else self._coordinates(group, ~group.kept)

    def _coordinates(self, group: RowGroup, wanted: Flags | None) -> tuple[Integers, Integers]:
        columns = [OFFSET] if group.partitions and group.partitions[0] == group.partitions[1] else [PARTITION, OFFSET]
        rows = self._columns_of(group, columns, wanted)
        _check_coordinates(group, rows, columns)
        offsets: Integers = rows.column(OFFSET).to_numpy()
        if len(columns) == 1 and group.partitions:
            return np.full(len(offsets), group.partitions[0], np.int64), offsets
        return rows.column(PARTITION).to_numpy().astype(np.int64), offsets

    def columns_of(self, group: RowGroup, names: Sequence[str]) -> pa.Table:
        """Returns those of the named columns that a row group has; raises UnreadableError where that fails."""
        return self._columns_of(group, names, group.kept)

    def _columns_of(self, group: RowGroup, names: Sequence[str], wanted: Flags | None) -> pa.Table:
        try:
            with pq.ParquetFile(group.path, filesystem=self.table.filesystem, page_checksum_verification=True) as file:
                there = file_columns(file.schema_arrow, self.table.field_ids, names)
                named = [there[name].name for name in names if name in there]
                rows = file.read_row_group(group.index, columns=named, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise UnreadableError(group.path, _unreadable(error)) from error
        rows = rows.select(named).rename_columns([name for name in names if name in there])
        return rows if wanted is None else rows.filter(pa.array(wanted))

    def footer(self, name: str, action: AddedFile) -> Footer:
        """Returns the row groups of a file, and what of it is not as the log says; raises UnreadableError."""
        path, findings = self.table.store.path(name), []
        size_bytes = self.table.store.size_bytes(name)
        if size_bytes is None:
            return Footer((), (f"{path}: the table names this file, but it is not there",))
        if action and size_bytes != action["size_bytes"]:
            findings.append(f"{path}: has {size_bytes} bytes, the table's log says {action['size_bytes']}")
        try:
            with pq.ParquetFile(path, filesystem=self.table.filesystem, page_checksum_verification=True) as file:
                metadata = file.metadata
        except (pa.ArrowException, OSError) as error:
            return Footer((), (*findings, f"{path}: {_unreadable(error)}"), is_unreadable=True)
        kept = self.table.kept_rows().get(name)
        rows = action.get("num_records") if kept is None else len(kept)
        if rows is not None and metadata.num_rows != rows:
            findings.append(f"{path}: has {metadata.num_rows} rows, the table's log says {rows}")
            if kept is not None:  # it says which rows of another file are left
                return Footer((), tuple(findings))
        return Footer(tuple(_row_groups(path, metadata, _folder_partition(action), kept)), tuple(findings))


class Footer(NamedTuple):
    """The row groups that a file's footer names, and findings: how file and log differ, or that it can't be read."""

    row_groups: Sequence[RowGroup]
    findings: Sequence[str]
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class LetterReader(Reader):
    """Reads dead letters, without those that a replay has made rows of, marked as such or (`pending`) not yet."""

    first_ledger: str
    pending: Pending | None

    def read(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each dead letter that no replay has made a row of."""
        found = self.columns_of(group, MARKED_COLUMNS)
        _check_coordinates(group, found, [PARTITION, OFFSET])
        dead_letters = completed(self.first_ledger, found, MARKED_COLUMNS)
        waits = dead_letters.column("replay").is_null().to_numpy()
        if self.pending is not None:
            waits &= ~self.pending.mask(dead_letters)
        partitions = dead_letters.column("partition").to_numpy().astype(np.int64)
        return partitions[waits], dead_letters.column("offset").to_numpy()[waits]


@dataclass(frozen=True, slots=True)
class _Footers:
    reader: Reader

    def __call__(self, said: tuple[str, AddedFile]) -> Footer:
        return self.reader.footer(*said)


@dataclass(frozen=True, slots=True)
class _OfFile(Generic[Seen]):
    """Looks at row groups of one file; returns what is seen in each, and why others can't be read."""

    reader: Reader
    look: Look[Seen]

    def __call__(self, groups: Sequence[RowGroup]) -> tuple[list[Seen], list[tuple[str, str]]]:
        seen, unreadable = [], []
        for group in groups:
            try:
                seen.append(self.look(self.reader, group))
            except UnreadableError as error:
                unreadable.append((error.path, error.what))
        return seen, unreadable


class Contents:
    """The data files of one version of a table, or those with given names, and what is wrong with them.

    Rows that a deletion vector deletes are left out. Those are findings, unless the table's own upserts delete so.
    Files are read in tasks, each of which has one file at a time, and of it a row group.
    """

    def __init__(
        self,
        table: Table,
        fs: FileSystem,
        names: AbstractSet[str] | None = None,
        *,
        rows: Table | None = None,
        reader: Callable[[TaskTable], Reader] = Reader,
        tasks: Tasks = THREADS,
    ) -> None:
        """Reads which files there are; `rows` is the table of rows where `table` is its dead letters."""
        self._reloaded = rows or table
        self._tasks = tasks
        self.reader = reader(TaskTable.of(table, fs))
        self.row_groups: list[RowGroup] = []
        self.findings: list[str] = []
        self._found: set[str] = set()
        said = sorted(_said(table, names).items())
        for (name, _), footer in zip(said, tasks.run(_Footers(self.reader), said), strict=True):
            self.row_groups += footer.row_groups
            self.findings += footer.findings
            if footer.is_unreadable:
                self._found.add(self.reader.table.store.path(name))
        is_own = table.row_marker is not None and mode_of(self._reloaded) is Mode.UPSERT
        if names is None and table.kept_rows() and not is_own:
            self.findings += self._deleted_findings()

    @property
    def rows(self) -> int:
        """Returns the number of rows in all files, without those that a deletion vector deletes."""
        return sum(group.rows for group in self.row_groups)

    def look(self, look: Look[Seen], groups: Iterable[RowGroup]) -> Iterator[Seen]:
        """Yields what is seen in each of the row groups, in tasks; adds a finding for one that can't be read."""
        files = [list(some) for _, some in groupby(groups, attrgetter("path"))]
        for seen, unreadable in self._tasks.run(_OfFile(self.reader, look), files):
            for path, what in unreadable:
                self.find(path, what)
            yield from seen

    def passes(self, work: Callable[[Piece], Seen], pieces: Iterable[Piece]) -> Iterator[Seen]:
        """Yields the results of work that reads the whole table for each piece, such as a part of its keys."""
        return self._tasks.run(work, pieces)

    def _deleted_findings(self) -> Iterator[str]:
        """Yields a line for each file with offsets that deletion vectors deleted, and no other file has."""
        deleted: dict[tuple[str, int], list[Integers]] = {}
        for path, pages in self.look(_deleted_pages, [group for group in self.row_groups if group.kept is not None]):
            for page in pages:
                deleted.setdefault((path, page.partition), []).append(offsets_in(page.intervals()))
        wanted: dict[int, Integers] = {}
        for (_, partition), parts in deleted.items():
            wanted[partition] = np.union1d(wanted.get(partition, NONE), np.concatenate(parts))
        there = self._there(wanted)
        for (path, partition), parts in sorted(deleted.items()):
            offsets = np.setdiff1d(np.concatenate(parts), there.get(partition, NONE))
            if len(offsets):
                yield f"{path}: {_deleted_sentence(self._reloaded, partition, offsets)}"

    def _there(self, wanted: Mapping[int, Integers]) -> dict[int, Integers]:
        """Returns, by partition, those of the wanted offsets, in rising order, that a row has."""
        there: dict[int, Integers] = {}
        bounds = {partition: (int(offsets[0]), int(offsets[-1]) + 1) for partition, offsets in wanted.items()}
        groups = [group for group in self.row_groups if any(group.may_have(one, *span) for one, span in bounds.items())]
        for pages in self.look(partial(_met_pages, wanted), groups):
            for page in pages:
                met = offsets_in(page.intervals())
                there[page.partition] = np.union1d(there.get(page.partition, NONE), met)
        return there

    def find(self, path: str, what: str) -> None:
        """Adds a finding on a file, the first that it can't be read."""
        if path not in self._found:
            self._found.add(path)
            self.findings.append(f"{path}: {what}")


def _said(table: Table, names: AbstractSet[str] | None) -> dict[str, AddedFile]:
    """Returns, by file name, the columns of the log's add actions that an audit compares; `names` chooses files."""
    actions = table.add_actions()
    actions = actions.select([name for name in SAID if name in actions.column_names])
    if names is not None:
        paths = actions.column("path").to_pylist()
        indices = [index for index, path in enumerate(paths) if unquote(str(path)) in names]
        actions = actions.take(pa.array(indices, pa.int64()))
    return {unquote(str(action["path"])): action for action in actions.to_pylist()}


def _check_coordinates(group: RowGroup, rows: pa.Table, columns: Sequence[str]) -> None:
    """Raises UnreadableError unless the named columns are there without nulls."""
    if not all(name in rows.column_names and not rows.column(name).null_count for name in columns):
        raise UnreadableError(group.path, "has rows without their partition or offset")


def _deleted_pages(reader: Reader, group: RowGroup) -> tuple[str, list[OffsetPage]]:
    """Returns a row group's file, and the offsets of its rows that a deletion vector deletes."""
    return group.path, list(pages_of(*reader.read_deleted(group)))


def _met_pages(wanted: Mapping[int, Integers], reader: Reader, group: RowGroup) -> list[OffsetPage]:
    """Returns those of the wanted offsets, by partition, that a row group has."""
    partitions, offsets = reader.read(group)
    is_wanted = np.zeros(len(offsets), np.bool_)
    for partition, some in wanted.items():
        is_wanted |= (partitions == partition) & np.isin(offsets, some)
    return list(pages_of(partitions[is_wanted], offsets[is_wanted]))


def _unreadable(error: Exception) -> str:
    return f"can't be read: {' '.join(str(error).split())}"


def _folder_partition(action: AddedFile) -> int | None:
    """Returns the partition in a file's folder, where the table has a folder for each; None for other tables."""
    value = action.get(f"partition.{PARTITION}")
    return None if value is None else int(value)


def _row_groups(
    path: str, metadata: pq.FileMetaData, folder_partition: int | None, kept: Flags | None
) -> Iterator[RowGroup]:
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    first = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        partitions = _bounds(group, columns.get(PARTITION)) if folder_partition is None else (folder_partition,) * 2
        mine = None if kept is None else kept[first : first + group.num_rows]
        rows = group.num_rows if mine is None else int(mine.sum())
        yield RowGroup(path, index, rows, partitions, _bounds(group, columns.get(OFFSET)), mine)
        first += group.num_rows


def _bounds(group: pq.RowGroupMetaData, column: int | None) -> tuple[int, int] | None:
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    least, greatest = statistics.min, statistics.max
    return None if least is None or greatest is None else (int(least), int(greatest))


def _deleted_sentence(rows: Table, partition: int, offsets: Integers) -> str:
    """Returns the sentence that names deleted offsets, given in rising order, and the command that reloads them."""
    spans = intervals_of(offsets).tolist()
    ranges = [f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in spans]
    again = way_on(rows, partition, int(offsets[0]), int(offsets[-1]), what="these records")
    return (
        f"partition {partition}, offsets {shown(ranges)}: deleted by another engine's deletion vector{again}; keys "
        "that `millrace warehouse erase` has erased stay erased"
    )


def shown(offsets: Sequence[object] | Integers, limit: int = 5) -> str:
    """Returns the first `limit` offsets as text, for a finding's line."""
    return ", ".join(str(offset) for offset in offsets[:limit]) + (", …" if len(offsets) > limit else "")


class DeadLetterContents(Contents):
    """The data files of a table of dead letters, without those dead letters that a replay has made rows of."""

    def __init__(
        self,
        rows: Table,
        dead_letters: Table,
        fs: FileSystem,
        names: AbstractSet[str] | None = None,
        *,
        tasks: Tasks = THREADS,
    ) -> None:
        reader = partial(
            LetterReader, first_ledger=first_ledger(dead_letters), pending=pending_replay(rows, dead_letters)
        )
        super().__init__(dead_letters, fs, names, rows=rows, reader=reader, tasks=tasks)
