"""Copy-on-write: one commit replaces files of a table by others (erasure, upsert, reload, compaction).

    lease ─ load the table ─ write what stays and what comes ─ commit: added, removed, rewrites + 1 ─ lease ends

    app id               version
    millrace/rewrites    how many commits have removed files

The compare-and-swap on that count keeps two rewrites from removing the same file: delta-rs lets a second one pass where
the first only compacted, and its rows would be there twice. A load that appends neither counts nor is disturbed: it
removes nothing, and a rewrite takes nothing from it.

A crash leaves the table as it was or with the whole rewrite. A rewrite that lost its race removes its files, and is
made again on the version after.

The files are written by tasks (`warehouse.tasks`), which get the version as a `TaskTable`. Where a piece was worked on
more than once, the commit names the files of one attempt, and those of the others are removed after it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.choices import Compression, settled_compression
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_table, load_to_write
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.columns import as_schema, file_columns, under_present_names
from millrace_pipelines.warehouse.table.files import (
    NO_IDS,
    DataFile,
    DataFileWriter,
    FieldIds,
    MarkedFile,
    NamedFile,
    remove_files_of_load,
    row_blocks,
)
from millrace_pipelines.warehouse.table.lineage import WrittenLineage
from millrace_pipelines.warehouse.table.row_ids import ROW_ID_COLUMNS, ROW_ID_FIELDS, with_row_ids
from millrace_pipelines.warehouse.table.table import AddedFile, Table, count_rewrites
from millrace_pipelines.warehouse.task_table import AnyTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

REWRITE_ATTEMPTS = 5
BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentFile(NamedFile):
    """A data file of a version, with its rows' least and greatest offset and partition, None if not in the log.

    `has_vector` says whether a deletion vector deletes some of the rows in it, which `rows` leaves out.
    """

    size_bytes: int
    rows: int
    offsets: tuple[int, int] | None
    partitions: tuple[int, int] | None
    has_vector: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The files that one commit removes, and the files that it adds instead.

    Those among the removed ones that are in `marked` stay, with a vector that deletes some of their rows.
    """

    added: Sequence[DataFile]
    removed: Sequence[CurrentFile]
    lineage: WrittenLineage
    marked: Mapping[str, MarkedFile] = field(default_factory=dict)
    data_change: bool = True
    expected: Mapping[str, int | None] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)


Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

ReadBlocks: TypeAlias = Callable[..., Iterator[pa.RecordBatch]]
"""Reads one of a table's files: `blocks_of` or `every_block_of`."""

MakeRewrite = Callable[[Table, str], Rewrite | None]
"""Writes the files of a rewrite under an operation id, and returns the rewrite; None where nothing is to be done."""


@retry(
    retry=retry_if_exception(lambda error: isinstance(error, _OvertakenError)),
    stop=stop_after_attempt(REWRITE_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
def rewrite(
    address: str, fs: FileSystem, make: MakeRewrite, access: Access = Access.REMOVE, *, tasks: Tasks = THREADS
) -> int | None:
    """Lets `make` rewrite files of the newest version, and commits that; returns the new version, None for no rewrite.

    `tasks` are those in which it writes.

    Raises:
        StaleLedgerError: Others rewrote the table first, at every attempt.
        TableRefusedError: The table uses something of Delta's protocol that the access can't obey.
    """
    table = load_to_write(address, fs, access=access)
    operation_id, location = uuid.uuid4().hex, table.location
    with lease(location, operation_id, fs):
        with files_removed_on(BaseException, [location], operation_id, fs), _overtaken_by_vacuum(table, fs):
            made = make(table, operation_id)
        if made is None:
            return None
        with files_removed_on(NOT_COMMITTED, [location], operation_id, fs):
            version = commit_rewrite(table, made)
        if tasks.may_repeat:
            remove_files_of_load(location, operation_id, fs, but={file.name for file in made.added})
        return version


def commit_rewrite(table: Table, made: Rewrite) -> int:
    """Commits a rewrite on exactly this version; raises StaleLedgerError where another commit came first."""
    counted, counts = count_rewrites(table)
    try:
        return table.commit(
            made.added,
            removed=made.removed,
            marked=made.marked,
            expected={**made.expected, **counted},
            transactions={**made.transactions, **counts},
            lineage=made.lineage,
            data_change=made.data_change,
        )
    except StaleLedgerError as error:
        if all(table.transaction_version(app_id) == version for app_id, version in made.expected.items()):
            raise _OvertakenError(str(error)) from error
        raise


@contextmanager
def _overtaken_by_vacuum(table: Table, fs: FileSystem) -> Iterator[None]:
    """Raises _OvertakenError for a file that is gone: a rewrite since then removed it, and vacuum deleted it."""
    try:
        yield
    except FileNotFoundError as error:
        if load_table(table.address, fs).version == table.version:
            raise
        raise _OvertakenError(f"{table.address}: another rewrite came first: {error}") from error


class _OvertakenError(StaleLedgerError):
    """Another rewrite was committed first and the ledger is unchanged: a repetition on the new version may pass."""


@contextmanager
def files_removed_on(kind: Errors, locations: Iterable[str], operation_id: str, fs: FileSystem) -> Iterator[None]:
    """Removes an operation's files from these tables on an error of `kind`, after which none can be committed."""
    try:
        yield
    except kind:
        for location in locations:
            remove_files_of_load(location, operation_id, fs)
        raise


def current_files(table: Table) -> list[CurrentFile]:
    """Returns the data files of this version by name, with their size, rows and bounds from the log."""
    values = table.partition_values()
    files = [_current_file(table, action, values) for action in table.add_actions().to_pylist()]
    return sorted(files, key=lambda file: file.name)


def _current_file(table: Table, action: AddedFile, values: Mapping[str, Mapping[str, str | None]]) -> CurrentFile:
    name = unquote(action["path"])
    return CurrentFile(
        name=name,
        size_bytes=action["size_bytes"],
        rows=_rows_in(table, name) if action["num_records"] is None else action["num_records"],
        offsets=_bounds(action, "offset"),
        partitions=_bounds(action, "partition"),
        partition_values=values[name],
        has_vector=name in table.kept_rows(),
    )


def _rows_in(table: Table, name: str) -> int:
    """Returns how many rows a file has, read from it, for a log without statistics."""
    with open_file(table, name) as file:
        return file.metadata.num_rows


def _bounds(action: AddedFile, column: str) -> tuple[int, int] | None:
    low, high = action.get(f"min.{column}"), action.get(f"max.{column}")
    return None if low is None or high is None else (low, high)


def file_schema(table: AnyTable) -> pa.Schema:
    """Returns the columns in a table's data files: all but the partition columns, whose values are folders."""
    folders = set(table.partition_columns)
    return pa.schema([column for column in table.schema if column.name not in folders])


def open_file(table: AnyTable, name: str) -> pq.ParquetFile:
    """Opens one of a table's files, named by a version or not; reads verify the checksum of each page."""
    return pq.ParquetFile(f"{table.root}/{name}", filesystem=table.filesystem, page_checksum_verification=True)


def blocks_of(
    table: AnyTable, name: str, most_rows: int = BATCH_ROWS, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table's file in blocks, with those of the named columns that the file has; all by default.

    Rows that a deletion vector deletes are left out.

    Raises:
        FileNotFoundError: There is no such file.
        WarehouseError: The file can't be read, or a page's bytes are not those that were written.
    """
    kept, first = table.kept_rows().get(name), 0
    for batch in every_block_of(table, name, most_rows, columns):
        yield batch if kept is None else batch.filter(pa.array(kept[first : first + batch.num_rows]))
        first += batch.num_rows


def every_block_of(
    table: AnyTable,
    name: str,
    most_rows: int = BATCH_ROWS,
    columns: Collection[str] | None = None,
    more_ids: FieldIds = NO_IDS,
) -> Iterator[pa.RecordBatch]:
    """Yields what `blocks_of` yields, and the rows that a deletion vector deletes, too.

    `more_ids` are of columns that the table does not show.
    """
    with reading(table, name) as file:
        present = file_columns(file.schema_arrow, {**table.field_ids, **more_ids}, columns)
        for batch in row_blocks(file, most_rows, [column.name for column in present.values()]):
            yield under_present_names(batch, present)


@contextmanager
def reading(table: AnyTable, name: str) -> Iterator[pq.ParquetFile]:
    """Opens one of a table's files, as `open_file` does, to be read while the context lasts.

    Raises:
        FileNotFoundError: There is no such file.
        WarehouseError: The file can't be read, or a page's bytes are not those that were written.
    """
    try:
        with open_file(table, name) as file:
            yield file
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        way_on = "`millrace warehouse audit --deep` names the rows, and how to mend them"
        raise WarehouseError(f"{table.root}/{name}: can't be read: {reason}; {way_on}") from error


def read_rows(table: AnyTable, name: str, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
    """Yields a file's rows in blocks under the table's present columns; null in those that the file lacks.

    With `columns` it yields only these, where the table's files have them.
    """
    schema = pa.schema([column for column in file_schema(table) if columns is None or column.name in columns])
    for batch in blocks_of(table, name, columns=schema.names):
        yield as_schema(pa.Table.from_batches([batch]), schema)


def rows_to_move(table: AnyTable, name: str) -> Iterator[pa.Table]:
    """Yields what `read_rows` does, with the ids of the rows where the table gives rows ids, for `writer` to write."""
    if table.row_origins is None:
        yield from read_rows(table, name)
        return
    schema, origin = pa.schema([*file_schema(table), *ROW_ID_COLUMNS]), table.row_origins.get(name)
    kept, first = table.kept_rows().get(name), 0
    for batch in every_block_of(table, name, columns=schema.names, more_ids=ROW_ID_FIELDS):
        rows = with_row_ids(as_schema(pa.Table.from_batches([batch]), schema), origin, first)
        yield rows if kept is None else rows.filter(pa.array(kept[first : first + batch.num_rows]))
        first += batch.num_rows


def writer(
    table: AnyTable,
    operation_id: str,
    task: int,
    fs: FileSystem,
    like: CurrentFile | DataFile,
    *,
    compression: Compression | None = None,
) -> DataFileWriter:
    """Returns a writer of rows that `rows_to_move` has read.

    The file gets the partition values of `like`, and is by default compressed as other rewrites are.
    """
    has_ids = table.row_origins is not None
    return DataFileWriter(
        table.location,
        operation_id,
        task,
        pa.schema([*file_schema(table), *(ROW_ID_COLUMNS if has_ids else ())]),
        fs,
        partition_values=like.partition_values,
        compression=compression or settled_compression(table.configuration),
        field_ids={**table.field_ids, **ROW_ID_FIELDS} if has_ids else table.field_ids,
    )
