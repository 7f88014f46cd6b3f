"""Data files of a table: Parquet, written by a task next to the log that may one day name them.

    [<column>=<value>/]part-<load id>-<task>-<unique>.parquet

Each page has a checksum, and the whole file a digest, which the commit keeps (`delta.digest`).

A file counts only once a commit names it; one that a crash, a failed attempt or a lost race leaves behind is garbage
that no reader sees. A finished file, and its name, are on the disk before the task answers, so a commit never names
bytes that a power cut can take away.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Columns
from millrace_pipelines.warehouse.delta.compression import LEVELS, LOADED, Compression
from millrace_pipelines.warehouse.delta.data_file import DataFile, statistics_of
from millrace_pipelines.warehouse.delta.digest import DigestingSink
from millrace_pipelines.warehouse.delta.store import store_at

ROW_GROUP_BYTES = 64 << 20
DICTIONARY_COLUMNS = ["topic", "partition"]
GROWING_COLUMNS = ("offset", "timestamp")
COLUMNS_WITHOUT_STATISTICS = frozenset({"key", "value", "headers", "error", "reason", "load_id", "ledger"})
FILE_PREFIX = "part-"
OFFSET = "offset"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def file_prefix(load_id: str) -> str:
    """Returns what the names of all files of one load begin with."""
    return f"{FILE_PREFIX}{load_id}-"


def operation_of(name: str) -> str:
    """Returns the id of the load, or other operation, that wrote a file; empty where the name is not of this kind."""
    operation_id, dash, _ = name.rpartition("/")[2].removeprefix(FILE_PREFIX).partition("-")
    return operation_id if dash else ""


def remove_files_of_load(location: str, load_id: str, fs: FileSystem) -> None:
    """Removes the files of a load that is known not to be committed."""
    store = store_at(location, fs)
    for name in store.names():
        if name.rpartition("/")[2].startswith(file_prefix(load_id)):
            store.remove(name)


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Returns the folder of a table's partition, as Hive names it, with its last `/`; empty for no columns."""
    return "".join(
        f"{quote(column, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}/"
        for column, value in values.items()
    )


class DataFileWriter:
    """Writes one Parquet file in row groups of about ROW_GROUP_BYTES; makes no file where there is no row.

    As a context manager, it removes the unfinished file where an error is raised inside.

    Args:
        location: The table's.
        load_id: Names the files of one load.
        task: The number of the load's task.
        schema: The file's columns, without the table's partition columns.
        fs: The disk.
        partition_values: What the partition columns are for every row of the file.
        compression: The codec of its pages.
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
    ) -> None:
        self._store = store_at(location, fs)
        self._partition_values = dict(partition_values or {})
        file = f"{file_prefix(load_id)}{task:05d}-{uuid.uuid4()}.parquet"
        self._name = partition_folder(self._partition_values) + file
        self._schema = schema
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
            self._close()
            self._store.remove(self._name)

    def write(self, table: pa.Table) -> None:
        """Adds rows, whose columns are exactly the schema's."""
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
        """The bytes of the rows that wait in memory for their row group."""
        return self._pending_bytes

    @property
    def is_open(self) -> bool:
        """Whether the file is open, its first row group written."""
        return self._writer is not None

    def finish(self) -> DataFile | None:
        """Closes, syncs and returns the file; None where there were no rows."""
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


def write_file(location: str, load_id: str, rows: pa.Table, fs: FileSystem) -> DataFile:
    """Writes a table of rows to one file; raises ValueError where it has none."""
    with DataFileWriter(location, load_id, 0, rows.schema, fs) as writer:
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
    """Opens a writer: dictionaries where values repeat, differences where they grow, statistics where they are used.

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
