"""Data files of a table: Parquet, written by a task next to the log that may one day name them.

    [<column>=<value>/]part-<load id>-<task>-<unique>.parquet
    task:   bytes ──► CRC ──► file          commit:   add.stats = {"numRecords": …, "crc32c": "0x1f2e3d4c"}

Each page has a checksum, and the whole file a digest: the CRC-32C of all its bytes, made while they are written. The
commit keeps it in the statistics of the add action, of which Delta's readers take the fields that they know, and which
checkpoints keep. Whoever reads the file later and gets another CRC has other bytes than the task had. A file that
another engine wrote has none, nor has one of an older version.

A file counts only once a commit names it; one that a crash, a failed attempt or a lost race leaves behind is garbage
that no reader sees. A finished file, and its name, are on the disk before the task answers, so a commit never names
bytes that a power cut can take away.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypedDict, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace.records.checksum import crc32c
from millrace.times import EPOCH
from millrace_pipelines.arrow import Columns, Field
from millrace_pipelines.warehouse.choices import LEVELS, LOADED, Compression
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import STAGED

ROW_GROUP_BYTES = 64 << 20
BLOCK_BYTES = 8 << 20
DICTIONARY_COLUMNS = ["topic", "partition"]
GROWING_COLUMNS = ("offset", "timestamp")
COLUMNS_WITHOUT_STATISTICS = frozenset({"key", "value", "headers", "error", "reason", "load_id", "ledger"})
FILE_PREFIX = "part-"
OFFSET = "offset"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
CHUNK_BYTES = 8 << 20
Bound: TypeAlias = int | str

FIELD_ID = "PARQUET:field_id"
ELEMENT, KEY, VALUE = "element", "key", "value"
FieldIds: TypeAlias = Mapping[tuple[str, ...], int]
"""The ids by which a format knows columns and the fields in them, by path; parts of lists and maps have names, too."""
NO_IDS: FieldIds = {}

DIGEST = "crc32c"
INDEX_FOLDER = "_keys"
INDEX_SUFFIX = ".keys"
VECTOR_PREFIX = "deletion_vector_"
VECTOR_SUFFIXES = (".bin", ".puffin")


def identified(schema: pa.Schema, ids: FieldIds) -> pa.Schema:
    """Returns a schema whose fields have these ids in Parquet's metadata; those without an id stay as they are."""
    return pa.schema([_identified(field, (field.name,), ids) for field in schema]) if ids else schema


def _identified(field: Field, path: tuple[str, ...], ids: FieldIds) -> Field:
    kind = field.type
    if pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        kind = pa.struct([_identified(one, (*path, one.name), ids) for one in inner])
    elif pa.types.is_list(kind):
        kind = pa.list_(_identified(kind.value_field.with_name(ELEMENT), (*path, ELEMENT), ids))
    elif pa.types.is_map(kind):
        key = _identified(kind.key_field.with_name(KEY), (*path, KEY), ids)
        value = _identified(kind.item_field.with_name(VALUE), (*path, VALUE), ids)
        kind = pa.map_(key, value)  # type: ignore[call-overload]  # the stub knows no fields here
    metadata = {FIELD_ID: str(ids[path])} if path in ids else None
    return pa.field(field.name, kind, field.nullable, metadata)


def file_prefix(load_id: str) -> str:
    """Returns the beginning of the names of all files that one load writes."""
    return f"{FILE_PREFIX}{load_id}-"


def operation_of(name: str) -> str:
    """Returns the id of the load or other operation that wrote a file, from its name; "" for other names."""
    operation_id, dash, _ = name.rpartition("/")[2].removeprefix(FILE_PREFIX).partition("-")
    return operation_id if dash else ""


def index_name(name: str) -> str:
    """Returns the name of the file that says which rows of a data file have a key (`keys.key_index`)."""
    return f"{INDEX_FOLDER}/{name}{INDEX_SUFFIX}"


def indexed_name(name: str) -> str | None:
    """Returns the name of the data file of which a file is the index of keys; None for any other file."""
    name = name.partition(STAGED)[0]  # it may still wait for its name
    if name.startswith(f"{INDEX_FOLDER}/") and name.endswith(INDEX_SUFFIX):
        return name.removeprefix(f"{INDEX_FOLDER}/").removesuffix(INDEX_SUFFIX)
    return None


def vector_name(number: uuid.UUID, suffix: str) -> str:
    """Returns the name of a file with a deletion vector, which ends as its table's format has it."""
    return f"{VECTOR_PREFIX}{number}{suffix}"


def is_vector(name: str) -> bool:
    """Returns whether a file has deletion vectors, by its name."""
    base = name.rpartition("/")[2]
    return base.startswith(VECTOR_PREFIX) and base.endswith(VECTOR_SUFFIXES)


def remove_files_of_load(location: str, load_id: str, fs: FileSystem, *, but: Collection[str] = frozenset()) -> None:
    """Removes the files that a load wrote and that are known not to be committed, and their indexes of keys.

    Those in `but` are committed, and stay.
    """
    store = store_at(location, fs)
    for name in store.names():
        is_of_load = name.rpartition("/")[2].startswith(file_prefix(load_id))
        if is_of_load and (indexed_name(name) or name) not in but:
            store.remove(name)


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Returns the folder of partition values in Hive's form, such as `day=2024-01-31/`; "" without partitions."""
    return "".join(
        f"{quote(column, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}/"
        for column, value in values.items()
    )


class DataFileWriter:
    """Writes one Parquet file in row groups of about ROW_GROUP_BYTES; makes no file where there is no row.

    As a context manager, it removes the unfinished file where an error is raised inside.

    Args:
        location: The table's location.
        load_id: Names the files of one load.
        task: The number of the load's task.
        schema: The file's columns, without the table's partition columns.
        fs: The disk.
        partition_values: The values of the partition columns, which all rows of the file share.
        compression: The codec of its pages.
        field_ids: What its columns are known by, which the file's footer then says.
    """

    def __init__(
        self,
        location: str,
        load_id: str,
        task: int,
        schema: pa.Schema,
        fs: FileSystem,
        *,
        partition_values: Mapping[str, str | None] | None = None,
        compression: Compression = LOADED,
        field_ids: FieldIds = NO_IDS,
    ) -> None:
        self._store = store_at(location, fs)
        self._partition_values = dict(partition_values or {})
        file = f"{file_prefix(load_id)}{task:05d}-{uuid.uuid4()}.parquet"
        self._name = partition_folder(self._partition_values) + file
        self._schema = identified(schema, field_ids)
        self._compression = compression
        self._open = ExitStack()
        self._sink: DigestingSink | None = None
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._offsets: list[tuple[int, int]] = []
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._writer is not None:
            with suppress(WarehouseError, OSError):  # the first error says what is wrong; what is left is garbage
                self._close()
                self._store.remove(self._name)

    def write(self, table: pa.Table) -> None:
        """Adds rows, which have exactly the columns of `schema`."""
        if table.num_rows == 0:
            return
        if OFFSET in table.column_names:
            self._offsets.append(_bounds(table.column(OFFSET)))
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        self.rows += table.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    @property
    def pending_bytes(self) -> int:
        """Returns the bytes of the rows that wait in memory for their row group."""
        return self._pending_bytes

    @property
    def is_open(self) -> bool:
        """Returns whether a first row group has been written, and with it the file was opened."""
        return self._writer is not None

    def finish(self) -> DataFile | None:
        """Closes and syncs the file, and returns it; None where there were no rows."""
        if self._pending:
            self._write_row_group()
        if self._writer is None:
            return None
        self._close()
        self._store.sync(self._name)
        return DataFile(
            name=self._name,
            size_bytes=self._store.size_bytes(self._name) or 0,
            rows=self.rows,
            min_offset=min((low for low, _ in self._offsets), default=0),
            max_offset=max((high for _, high in self._offsets), default=0),
            partition_values=self._partition_values,
            statistics=statistics_of(self._footers[0], self._schema),
            digest=None if self._sink is None else self._sink.digest,
        )

    def _write_row_group(self) -> None:
        if self._writer is None:
            self._sink = DigestingSink(self._open.enter_context(self._store.output(self._name)))
            self._writer = _open_writer(
                pa.PythonFile(self._sink, mode="w"), self._schema, self._compression, self._footers
            )
        group = pa.concat_tables(self._pending)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_bytes = [], 0

    def _close(self) -> None:
        with self._open:
            if self._writer is not None:
                self._writer.close()


def write_file(location: str, load_id: str, rows: pa.Table, fs: FileSystem, field_ids: FieldIds = NO_IDS) -> DataFile:
    """Writes rows to one Parquet file and returns it; raises ValueError where there is no row."""
    with DataFileWriter(location, load_id, 0, rows.schema, fs, field_ids=field_ids) as writer:
        writer.write(rows)
        file = writer.finish()
    if file is None:
        raise ValueError("no rows to write")
    return file


def _bounds(column: Columns) -> tuple[int, int]:
    bounds = pc.min_max(column)
    return bounds["min"].as_py(), bounds["max"].as_py()


def _open_writer(
    sink: pa.NativeFile, schema: pa.Schema, compression: Compression, footers: list[pq.FileMetaData]
) -> pq.ParquetWriter:
    """Opens a Parquet writer: dictionaries for values that repeat, deltas for those that grow, statistics as needed.

    Each page has a checksum, which tells where in a damaged file the damage is.
    """
    return pq.ParquetWriter(
        sink,
        schema,
        compression=str(compression),  # type: ignore[arg-type]  # one of Parquet's codecs
        compression_level=LEVELS.get(compression),
        use_dictionary=DICTIONARY_COLUMNS,  # type: ignore[arg-type]  # the stub knows no names
        column_encoding={name: "DELTA_BINARY_PACKED" for name in GROWING_COLUMNS if name in schema.names},
        write_statistics=[name for name in schema.names if name not in COLUMNS_WITHOUT_STATISTICS],
        metadata_collector=footers,
        write_page_checksum=True,
    )


class DigestingSink(io.RawIOBase):
    """A file that passes on what is written to it, and computes the CRC-32C of all these bytes."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink
        self._crc = 0

    @property
    def digest(self) -> str:
        """Returns the CRC-32C of what has been written so far, as `digest_text` writes it."""
        return digest_text(self._crc)

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any) -> int:
        """Writes all of the data and returns its length."""
        self._crc = crc32c(data, self._crc)
        self._sink.write(data)
        return len(memoryview(data).cast("B"))

    def tell(self) -> int:
        """Returns how many bytes have been written."""
        return int(self._sink.tell())


def digest_text(crc: int) -> str:
    """Returns a CRC-32C as the text in a file's statistics, such as `0x1a2b3c4d`."""
    return f"{crc:#010x}"


def digest_of(file: pa.NativeFile) -> str:
    """Returns the CRC-32C, as `digest_text` writes it, of a file's bytes from the present position on."""
    crc = 0
    while chunk := file.read(CHUNK_BYTES):
        crc = crc32c(chunk, crc)
    return digest_text(crc)


class Statistics(TypedDict, total=False):
    """Delta's statistics of a file's columns, by their names."""

    minValues: dict[str, Bound]
    maxValues: dict[str, Bound]
    nullCount: dict[str, int]


class GroupStatistics(Protocol):
    """The statistics of a column of numbers or times in one row group, as PyArrow reads them from Parquet's footer."""

    has_null_count: bool
    null_count: int
    has_min_max: bool
    num_values: int
    min_raw: int
    max_raw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file that was written: its rows, least and greatest offset, and `digest`, the CRC-32C of its bytes."""

    name: str
    size_bytes: int
    rows: int
    min_offset: int
    max_offset: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A data file by its name in the log. A commit that removes it leaves it on the disk until a vacuum."""

    name: str
    size_bytes: int | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)


class MarkedFile(NamedTuple):
    """How a commit is to name a data file of so many rows of which a deletion vector deletes some.

    `vector` describes the vector as the table's format has it.
    """

    vector: Mapping[str, Any]
    rows: int


def row_blocks(file: pq.ParquetFile, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields a file's rows in blocks, none of which spans two row groups (`blocks_of_group`)."""
    for group in range(file.num_row_groups):
        yield from blocks_of_group(file, group, most_rows, columns)


def blocks_of_group(
    file: pq.ParquetFile, group: int, most_rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one row group in blocks.

    A block has at most `most_rows`, and fewer where rows are large: about BLOCK_BYTES, by what a row of the group has
    on average in these columns.
    """
    count = _rows_of_a_block(file.metadata.row_group(group), most_rows, columns)
    yield from file.iter_batches(count, row_groups=[group], columns=None if columns is None else list(columns))


def _rows_of_a_block(group: pq.RowGroupMetaData, most_rows: int, columns: Collection[str] | None) -> int:
    chunks = map(group.column, range(group.num_columns))
    chosen = (one for one in chunks if columns is None or one.path_in_schema.partition(".")[0] in columns)
    size_bytes = sum(one.total_uncompressed_size for one in chosen)
    return max(1, min(most_rows, BLOCK_BYTES * group.num_rows // max(1, size_bytes)))


def statistics_of(metadata: pq.FileMetaData, schema: pa.Schema) -> Statistics:
    """Returns Delta's statistics for integers, dates and timestamps, from those in a Parquet file's footer.

    Texts have none: the log keeps its statistics for ever, and a bound may be an erased key. Floating-point numbers
    have none: Parquet leaves NaN out of its bounds, readers of Delta hold it largest.
    """
    statistics = Statistics(minValues={}, maxValues={}, nullCount={})
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for column in schema:
        if column.name in columns and _has_bounds(column.type):
            groups = [metadata.row_group(group).column(columns[column.name]).statistics
                      for group in range(metadata.num_row_groups)]  # fmt: skip
            _add(statistics, column, cast("Sequence[GroupStatistics | None]", groups))
    return statistics


def _has_bounds(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_temporal(kind)


def _add(statistics: Statistics, column: Field, found: Sequence[GroupStatistics | None]) -> None:
    groups = [group for group in found if group is not None and group.has_null_count]
    if not groups or len(groups) < len(found):
        return
    statistics["nullCount"][column.name] = sum(group.null_count for group in groups)
    bounded = [group for group in groups if group.has_min_max]
    if not bounded or any(not group.has_min_max and group.num_values for group in groups):
        return
    low = _shown(min(group.min_raw for group in bounded), column.type, is_upper=False)
    high = _shown(max(group.max_raw for group in bounded), column.type, is_upper=True)
    if low is not None and high is not None:
        statistics["minValues"][column.name] = low
        statistics["maxValues"][column.name] = high


def _shown(raw: int, kind: pa.DataType, *, is_upper: bool) -> Bound | None:
    """Returns a footer's bound as Delta writes it; None for types without bounds, and times beyond the calendar."""
    if pa.types.is_timestamp(kind):
        return _moment(raw, is_upper=is_upper)
    if pa.types.is_date(kind):
        return _day(raw)
    return int(raw) if pa.types.is_integer(kind) else None


def _moment(microseconds: int, *, is_upper: bool) -> str | None:
    """Returns a time as Delta writes it, in milliseconds: a lower bound rounded down, an upper one rounded up."""
    milliseconds = -(-microseconds // 1000) if is_upper else microseconds // 1000
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(days: int) -> str | None:
    try:
        return (EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None
