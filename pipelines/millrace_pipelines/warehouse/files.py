"""Data files of a table: Parquet, written by a task next to the log that may one day name them.

    part-<load id>-<task>-<attempt>.parquet

A file counts only once a commit names it; one that a crash, a failed attempt or a lost race leaves behind is garbage
that no reader sees. A finished file, and its name, are on the disk before the task answers, so a commit never names
bytes that a power cut can take away.
"""

from __future__ import annotations

import os
import uuid
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.table import DataFile

ROW_GROUP_BYTES = 64 << 20
COMPRESSION: Any = "zstd"
COMPRESSION_LEVEL = 1
DICTIONARY_COLUMNS: Any = ["topic", "partition"]
COLUMNS_WITHOUT_STATISTICS = frozenset({"key", "value", "headers", "error"})
FILE_PREFIX = "part-"


def file_prefix(load_id: str) -> str:
    """What the names of all files of one load begin with."""
    return f"{FILE_PREFIX}{load_id}-"


def remove_files_of_load(directory: str, load_id: str, fs: FileSystem) -> None:
    """Take away the files of a load that is known not to be committed."""
    if fs.exists(directory):
        for name in fs.listdir(directory):
            if name.startswith(file_prefix(load_id)):
                fs.unlink(os.path.join(directory, name))


class DataFileWriter:
    """Writes one Parquet file in row groups of about ROW_GROUP_BYTES; makes no file where no row comes.

    As a context manager: an error inside takes the unfinished file away.
    """

    def __init__(self, directory: str, load_id: str, task: int, schema: pa.Schema, fs: FileSystem) -> None:
        self._directory = directory
        self._name = f"{file_prefix(load_id)}{task:05d}-{uuid.uuid4()}.parquet"
        self._path = os.path.join(directory, self._name)
        self._schema = schema
        self._fs = fs
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._offsets: list[tuple[int, int]] = []
        self._timestamps: list[tuple[int, int]] = []
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._writer is not None:
            self._writer.close()
            self._fs.unlink(self._path)

    def write(self, table: pa.Table) -> None:
        """Add rows, whose columns are exactly the schema's."""
        if table.num_rows == 0:
            return
        self._note_bounds(table)
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        self.rows += table.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> DataFile | None:
        """Close and sync the file; None where there were no rows."""
        if self._pending:
            self._write_row_group()
        if self._writer is None:
            return None
        self._writer.close()
        size_bytes = self._sync()
        return DataFile(
            name=self._name,
            size_bytes=size_bytes,
            rows=self.rows,
            min_offset=min(low for low, _ in self._offsets),
            max_offset=max(high for _, high in self._offsets),
            min_timestamp_ms=min((low for low, _ in self._timestamps), default=None),
            max_timestamp_ms=max((high for _, high in self._timestamps), default=None),
        )

    def _note_bounds(self, table: pa.Table) -> None:
        self._offsets.append(_bounds(table.column("offset")))
        timestamps = table.column("timestamp").drop_null()
        if len(timestamps):
            low, high = _bounds(timestamps.cast(pa.int64()))
            self._timestamps.append((low // 1000, high // 1000))

    def _write_row_group(self) -> None:
        if self._writer is None:
            self._writer = _open_writer(self._path, self._schema)
        group = pa.concat_tables(self._pending)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_bytes = [], 0

    def _sync(self) -> int:
        fd = self._fs.open(self._path)
        try:
            self._fs.fsync(fd)
            size_bytes = self._fs.size(fd)
        finally:
            self._fs.close(fd)
        self._fs.fsync_dir(self._directory)
        return size_bytes


def _bounds(column: Any) -> tuple[int, int]:
    bounds: Any = pc.min_max(column).as_py()
    return bounds["min"], bounds["max"]


def _open_writer(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Dictionaries only where values repeat by nature; statistics only where a reader can use them."""
    return pq.ParquetWriter(
        path,
        schema,
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=DICTIONARY_COLUMNS,
        write_statistics=[name for name in schema.names if name not in COLUMNS_WITHOUT_STATISTICS],
    )
