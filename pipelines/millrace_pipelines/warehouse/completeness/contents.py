"""The data files of a table as the audit meets them: whether they are there, and which offsets they have.

Two columns are read, a row group at a time; the bounds in a file's footer say which of its row groups can have the
offsets that are counted, so that a large table is never in memory as a whole. Of the dead letters those are left out
that a replay has made rows of.

The deep audit asks if the files have the bytes that were written. The whole file is read and its digest compared with
the commit's (`delta.files`). Where they differ, the pages that can be read are told from those whose checksum does not
match, and the rows of the latter from the columns that are left:

    row group   offset   value             finding: partition 0, offsets 240-479, column value
        0         ✓        ✓
        1         ✓        ✗  240-479

A file without a digest, of another engine or an older version, is read page by page; its pages may have no checksums.
A large table is looked at a portion at a time (`portion`): each file belongs to one, by its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.fs import FileSystem
from millrace.records.absent import intervals_of
from millrace_pipelines.arrow import Flags
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.dead_letters import MARKED_COLUMNS, completed, pending_replay
from millrace_pipelines.warehouse.delta.files import digest_of
from millrace_pipelines.warehouse.delta.log_actions import digests_of
from millrace_pipelines.warehouse.delta.rewrite import open_file
from millrace_pipelines.warehouse.delta.snapshot import AddedFile
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers, ledger_of
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import Store, dead_letters_dir
from millrace_pipelines.warehouse.tables.open import mode_of

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
    command = f"millrace warehouse reload {ledger_of(rows).topic} --table {rows.location}{of_partition}"
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


class Contents:
    """The data files of one version of a table, or those with given names, and what is wrong with them.

    Rows that another engine's deletion vector deletes are left out.
    """

    def __init__(
        self, table: Table, fs: FileSystem, names: AbstractSet[str] | None = None, *, rows: Table | None = None
    ) -> None:
        """Reads which files there are; `rows` is the table of rows where `table` is its dead letters."""
        self._reloaded = rows or table
        self._kept = table.kept_rows()
        self._filesystem = table.filesystem
        self._store: Store = store_at(table.location, fs)
        self.row_groups: list[RowGroup] = []
        self.findings: list[str] = []
        self._found: set[str] = set()
        for name, action in sorted(_said(table, names).items()):
            self._look_at(name, action)
        if names is None and self._kept:
            self.findings += self._deleted_findings()

    @property
    def rows(self) -> int:
        """Returns the number of rows in all files, without those that a deletion vector deletes."""
        return sum(group.rows for group in self.row_groups)

    def _look_at(self, name: str, action: AddedFile) -> None:
        path = self._store.path(name)
        size_bytes = self._store.size_bytes(name)
        if size_bytes is None:
            self.findings.append(f"{path}: the table names this file, but it is not there")
            return
        if action and size_bytes != action["size_bytes"]:
            self.findings.append(f"{path}: has {size_bytes} bytes, the table's log says {action['size_bytes']}")
        try:
            with pq.ParquetFile(path, filesystem=self._filesystem, page_checksum_verification=True) as file:
                metadata = file.metadata
        except (pa.ArrowException, OSError) as error:
            self._find(path, _unreadable(error))
            return
        kept = self._kept.get(name)
        rows = action.get("num_records") if kept is None else len(kept)
        if rows is not None and metadata.num_rows != rows:
            self.findings.append(f"{path}: has {metadata.num_rows} rows, the table's log says {rows}")
            if kept is not None:  # it says which rows of another file are left
                return
        self.row_groups += _row_groups(path, metadata, _folder_partition(action), kept)

    def read(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each row; where they can't be read, adds a finding and returns no rows."""
        return self._coordinates(group, group.kept)

    def read_deleted(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each row that a deletion vector deletes; adds a finding where that fails."""
        return (NONE, NONE) if group.kept is None else self._coordinates(group, ~group.kept)

    def _coordinates(self, group: RowGroup, wanted: Flags | None) -> tuple[Integers, Integers]:
        columns = [OFFSET] if group.partitions and group.partitions[0] == group.partitions[1] else [PARTITION, OFFSET]
        rows = self._columns_of(group, columns, wanted)
        if rows is None or not self.has_coordinates(group, rows, columns):
            return NONE, NONE
        offsets: Integers = rows.column(OFFSET).to_numpy()
        if len(columns) == 1 and group.partitions:
            return np.full(len(offsets), group.partitions[0], np.int64), offsets
        return rows.column(PARTITION).to_numpy().astype(np.int64), offsets

    def columns_of(self, group: RowGroup, names: Sequence[str]) -> pa.Table | None:
        """Returns those of the named columns that a row group has; adds a finding and returns None where that fails."""
        return self._columns_of(group, names, group.kept)

    def _columns_of(self, group: RowGroup, names: Sequence[str], wanted: Flags | None) -> pa.Table | None:
        try:
            with pq.ParquetFile(group.path, filesystem=self._filesystem, page_checksum_verification=True) as file:
                there = [name for name in names if name in file.schema_arrow.names]
                rows = file.read_row_group(group.index, columns=there, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            self._find(group.path, _unreadable(error))
            return None
        return rows if wanted is None else rows.filter(pa.array(wanted))

    def has_coordinates(self, group: RowGroup, rows: pa.Table, columns: Sequence[str]) -> bool:
        """Returns whether the named columns are there without nulls; adds a finding where they are not."""
        is_whole = all(name in rows.column_names and not rows.column(name).null_count for name in columns)
        if not is_whole:
            self._find(group.path, "has rows without their partition or offset")
        return is_whole

    def _deleted_findings(self) -> Iterator[str]:
        """Yields a line for each file with offsets that deletion vectors deleted, and no other file has."""
        deleted: dict[tuple[str, int], list[Integers]] = {}
        for group in self.row_groups:
            partitions, offsets = self.read_deleted(group)
            for partition in np.unique(partitions).tolist():
                deleted.setdefault((group.path, partition), []).append(offsets[partitions == partition])
        for (path, partition), parts in sorted(deleted.items()):
            offsets = self._not_there(partition, np.unique(np.concatenate(parts)))
            if len(offsets):
                yield f"{path}: {_deleted_sentence(self._reloaded, partition, offsets)}"

    def _not_there(self, partition: int, offsets: Integers) -> Integers:
        """Returns those of the given offsets of a partition that no row has."""
        for group in self.row_groups:
            if len(offsets) and group.may_have(partition, int(offsets[0]), int(offsets[-1]) + 1):
                partitions, there = self._coordinates(group, group.kept)
                offsets = np.setdiff1d(offsets, there[partitions == partition])
        return offsets

    def _find(self, path: str, what: str) -> None:
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

    def __init__(self, rows: Table, dead_letters: Table, fs: FileSystem, names: AbstractSet[str] | None = None) -> None:
        super().__init__(dead_letters, fs, names, rows=rows)
        self._dead_letters = dead_letters
        self._pending = pending_replay(rows, dead_letters)

    def read(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Returns partition and offset of each dead letter that no replay has made a row of."""
        found = self.columns_of(group, MARKED_COLUMNS)
        if found is None or not self.has_coordinates(group, found, [PARTITION, OFFSET]):
            return NONE, NONE
        dead_letters = completed(self._dead_letters, found, MARKED_COLUMNS)
        waits = dead_letters.column("replay").is_null().to_numpy()
        if self._pending is not None:
            waits &= ~self._pending.mask(dead_letters)
        partitions = dead_letters.column("partition").to_numpy().astype(np.int64)
        return partitions[waits], dead_letters.column("offset").to_numpy()[waits]


ALL_COLUMNS = "all columns"
PORTIONS = 7

Chosen = Callable[[str], bool]


class Stored(NamedTuple):
    """The numbers of files and bytes read, a line for each finding, and the number of files without a CRC-32C."""

    files: int
    bytes: int
    undigested: int
    findings: tuple[str, ...]


class Damage(NamedTuple):
    """Damaged rows of a file: their partition, least and greatest offset, each None where unknown, and the columns."""

    partition: int | None
    offsets: tuple[int, int] | None
    columns: tuple[str, ...]


def every_file(_: str) -> bool:
    """Returns True: chooses each file of a table."""
    return True


def portion(number: int) -> Chosen:
    """Returns a test that chooses one of PORTIONS parts of all files; consecutive numbers choose all parts in turn."""

    def is_of_it(name: str) -> bool:
        return zlib.crc32(name.encode()) % PORTIONS == number % PORTIONS

    return is_of_it


def audit_stored_files(location: str, chosen: Chosen = every_file, fs: FileSystem = DISK) -> Stored:
    """Reads all bytes of the chosen files of a table and of its dead letters, and returns what is wrong with them.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
    """
    rows = Table.load(location, fs)
    dead_letters = load_if_there(dead_letters_dir(rows.location), fs)
    looked_at = [_look_at(table, rows, chosen) for table in (rows, dead_letters) if table is not None]
    return Stored(
        files=sum(one.files for one in looked_at),
        bytes=sum(one.bytes for one in looked_at),
        undigested=sum(one.undigested for one in looked_at),
        findings=tuple(finding for one in looked_at for finding in one.findings),
    )


def _look_at(table: Table, rows: Table, chosen: Chosen) -> Stored:
    """Reads the chosen files of a table; `rows` is the table of rows, which findings tell how to reload."""
    digests = digests_of(table)
    actions = {unquote(str(action["path"])): action for action in table.add_actions().to_pylist()}
    names = [name for name in sorted(actions) if chosen(name)]
    found = [
        f"{said}{_way_on(rows, _whole_file(actions[name]))}"
        for name in names
        for said in _sentences(table, name, digests.get(name), actions[name])
    ]
    return Stored(
        files=len(names),
        bytes=sum(int(actions[name]["size_bytes"]) for name in names),
        undigested=sum(name not in digests for name in names),
        findings=tuple(found),
    )


def _sentences(table: Table, name: str, digest: str | None, action: AddedFile) -> Iterator[str]:
    """Yields sentences on what is wrong with a file; `digest` is its CRC-32C in the log, None where that has none."""
    path = f"{table.root}/{name}"
    try:
        with table.filesystem.open_input_stream(path) as file:
            found = digest_of(file)
    except OSError as error:
        yield f"{path}: can't be read: {' '.join(str(error).split())}; {_located(_whole_file(action))}"
        return
    if digest == found:
        return
    damages = list(damages_of(table, name, action))
    if digest is None:
        what = f"{path}: can't be read"
    else:
        what = f"{path}: its CRC-32C is {found}, and {digest} was written"
        damages = damages or [_whole_file(action)]
    for damage in damages:
        yield f"{what}; {_located(damage)}"


def damages_of(table: Table, name: str, action: AddedFile) -> Iterator[Damage]:
    """Yields, for each row group of a file, the rows that can't be read or fail the checksums of their pages."""
    try:
        with open_file(table, name) as file:
            for group in range(file.num_row_groups):
                yield from _damage_of_group(file, group, action)
    except (pa.ArrowException, OSError):
        yield _whole_file(action)


def _damage_of_group(file: pq.ParquetFile, group: int, action: AddedFile) -> Iterator[Damage]:
    damaged = tuple(name for name in file.schema_arrow.names if not _is_whole(file, group, name))
    if not damaged:
        return
    whole = _whole_file(action)
    partition, offsets = whole.partition, whole.offsets
    if OFFSET in file.schema_arrow.names and OFFSET not in damaged:
        bounds = pc.min_max(file.read_row_group(group, columns=[OFFSET], use_threads=False).column(OFFSET))
        offsets = bounds["min"].as_py(), bounds["max"].as_py()
    if PARTITION in file.schema_arrow.names and PARTITION not in damaged:
        column = file.read_row_group(group, columns=[PARTITION], use_threads=False).column(PARTITION)
        values = pc.unique(column).to_pylist()
        partition = values[0] if len(values) == 1 else None
    yield Damage(partition, offsets, damaged)


def _is_whole(file: pq.ParquetFile, group: int, column: str) -> bool:
    try:
        file.read_row_group(group, columns=[column], use_threads=False)
    except (pa.ArrowException, OSError):
        return False
    return True


def _whole_file(action: AddedFile) -> Damage:
    """Returns a damage of a whole file, with the bounds that the log has of its rows."""
    low, high = action.get(f"min.{PARTITION}"), action.get(f"max.{PARTITION}")
    partition = action.get(f"partition.{PARTITION}", low if low == high else None)
    first, last = action.get(f"min.{OFFSET}"), action.get(f"max.{OFFSET}")
    offsets = None if first is None or last is None else (int(first), int(last))
    return Damage(None if partition is None else int(partition), offsets, (ALL_COLUMNS,))


def _located(damage: Damage) -> str:
    partition = "" if damage.partition is None else f"partition {damage.partition}, "
    rows = "rows at unknown offsets" if damage.offsets is None else f"offsets {damage.offsets[0]}-{damage.offsets[1]}"
    return f"{partition}{rows}, {_named(damage.columns)}"


def _named(columns: Sequence[str]) -> str:
    if columns == (ALL_COLUMNS,):
        return ALL_COLUMNS
    return f"column{'s' if len(columns) > 1 else ''} {shown(columns)}"


def _way_on(rows: Table, file: Damage) -> str:
    """Returns the end of a finding: the command that reloads all rows of a damaged file, which it replaces unread."""
    if file.offsets is None:
        return "; load the topic into another table"
    return way_on(rows, file.partition, *file.offsets, what="the file's rows")
