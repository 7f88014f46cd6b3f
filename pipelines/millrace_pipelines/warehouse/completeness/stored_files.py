"""The deep audit: do the files of a table have the bytes that were written?

The whole file is read, in a task (`warehouse.tasks`), and its digest compared with the commit's (`table.files`). Where
they differ, the pages that can be read are told from those whose checksum does not
match, and the rows of the latter from the columns that are left:

    row group   offset   value             finding: partition 0, offsets 240-479, column value
        0         ✓        ✓
        1         ✓        ✗  240-479

Of a file with an index of keys (`keys.key_index`), the index is made again from the file's keys, and compared.

A file without a digest, of another engine or an older version, is read page by page; its pages may have no checksums.
A large table is looked at a portion at a time (`portion`): each file belongs to one, by its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.completeness.contents import OFFSET, PARTITION, shown, way_on
from millrace_pipelines.warehouse.formats import load_if_there, load_table
from millrace_pipelines.warehouse.keys.key_hashes import salt_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows
from millrace_pipelines.warehouse.rewrite import every_block_of, open_file
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import digest_of, index_name
from millrace_pipelines.warehouse.table.table import AddedFile, Table
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

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


def audit_stored_files(
    location: str, chosen: Chosen = every_file, fs: FileSystem = DISK, *, tasks: Tasks = THREADS
) -> Stored:
    """Reads all bytes of the chosen files of a table and of its dead letters, and returns what is wrong with them.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
    """
    rows = load_table(location, fs)
    dead_letters = load_if_there(dead_letters_dir(rows.address), fs)
    looked_at = [
        _look_at(table, rows, chosen, TaskTable.of(table, fs), tasks)
        for table in (rows, dead_letters)
        if table is not None
    ]
    return Stored(
        files=sum(one.files for one in looked_at),
        bytes=sum(one.bytes for one in looked_at),
        undigested=sum(one.undigested for one in looked_at),
        findings=tuple(finding for one in looked_at for finding in one.findings),
    )


def _look_at(table: Table, rows: Table, chosen: Chosen, task_table: TaskTable, tasks: Tasks) -> Stored:
    """Reads the chosen files of a table; `rows` is the table of rows, which findings tell how to reload."""
    digests = table.digests()
    actions = {unquote(str(action["path"])): action for action in table.add_actions().to_pylist()}
    names = [name for name in sorted(actions) if chosen(name)]
    files = [_SaidFile(name, digests.get(name), actions[name]) for name in names]
    found = zip(files, tasks.run(_Bytes(task_table), files), strict=True)
    indexed = [name for name in names if task_table.store.size_bytes(index_name(name)) is not None]
    of_indexes = tasks.run(_Index(task_table, salt_of(table.id)), indexed)
    return Stored(
        files=len(names),
        bytes=sum(int(actions[name]["size_bytes"]) for name in names),
        undigested=sum(name not in digests for name in names),
        findings=(
            *(f"{said}{_way_on(rows, _whole_file(file.action))}" for file, sentences in found for said in sentences),
            *(said for said in of_indexes if said is not None),
        ),
    )


class _SaidFile(NamedTuple):
    """A file as the log has it: its name, its CRC-32C, None where there is none, and its add action."""

    name: str
    digest: str | None
    action: AddedFile


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Reads all bytes of a file, and returns sentences on what is wrong with them."""

    table: TaskTable

    def __call__(self, file: _SaidFile) -> list[str]:
        return list(_sentences(self.table, *file))


@dataclass(frozen=True, slots=True)
class _Index:
    """Compares the index of a file with the keys in the file; returns a sentence where they differ, None else."""

    table: TaskTable
    salt: bytes

    def __call__(self, name: str) -> str | None:
        entries = EntriesOfRows(self.salt)
        try:
            for block in every_block_of(self.table, name, columns=["key"]):
                entries.add(block.column("key"))
        except (FileNotFoundError, WarehouseError):
            return None  # the file itself is a finding
        if self.table.store.read(index_name(name)) == entries.content(name):
            return None
        path = self.table.store.path(index_name(name))
        return f"{path}: does not say which rows of the file have which keys; remove it, and the next upsert makes it"


def _sentences(table: TaskTable, name: str, digest: str | None, action: AddedFile) -> Iterator[str]:
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


def damages_of(table: TaskTable, name: str, action: AddedFile) -> Iterator[Damage]:
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
