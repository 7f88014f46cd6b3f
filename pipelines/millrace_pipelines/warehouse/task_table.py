"""What a task has to know of a version of a table to read and write its files, on whichever machine it runs.

It is made by the driver, pickled, and opens the table's store itself once it is asked for a file. The log is not read
again: a task costs the same however long the log is.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.errors import FolderNotSharedError
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import sees_lease
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import FieldIds
from millrace_pipelines.warehouse.table.row_ids import RowOrigin
from millrace_pipelines.warehouse.table.table import Table

ONE_FOLDER = (
    "all executors need the table's folder under the path that the driver has it by: mount it on their machines, or "
    "put the table into a bucket, s3://BUCKET/PATH (docs/warehouse.md, Where it runs)"
)


@dataclass(frozen=True)
class TaskTable:
    """A version of a table as a task knows it; attributes are as `Snapshot` has them.

    `kept` has the rows that deletion vectors leave, by file. `operation_id` names the operation that holds a lease
    while the task runs; None for one that only reads.
    """

    location: str
    version: int
    schema: pa.Schema
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    field_ids: FieldIds
    marker: str
    row_origins: Mapping[str, RowOrigin] | None
    kept: Mapping[str, Flags]
    fs: FileSystem
    operation_id: str | None = None

    @classmethod
    def of(cls, table: Table, fs: FileSystem, operation_id: str | None = None) -> Self:
        """Returns what tasks need of a table's version."""
        return cls(
            location=table.location,
            version=table.version,
            schema=table.schema,
            partition_columns=tuple(table.partition_columns),
            configuration=dict(table.configuration),
            field_ids=table.field_ids,
            marker=table.marker,
            row_origins=table.row_origins,
            kept=table.kept_rows(),
            fs=fs,
            operation_id=operation_id,
        )

    @cached_property
    def store(self) -> Store:
        """The table's files; raises FolderNotSharedError where this machine has no such folder, or another one."""
        store = store_at(self.location, self.fs)
        if self.operation_id is None:
            is_seen = not store.is_local or store.size_bytes(self.marker) is not None
        else:
            is_seen = sees_lease(self.location, self.operation_id, self.fs)
        if not is_seen:
            raise FolderNotSharedError(f"{socket.gethostname()} does not see {self.location}; {ONE_FOLDER}")
        return store

    @property
    def root(self) -> str:
        """Returns the path of the table's folder in `filesystem`."""
        return self.store.root

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Returns the pyarrow file system that has the table's files."""
        return self.store.filesystem

    def kept_rows(self) -> Mapping[str, Flags]:
        """Returns, for each file with a deletion vector, by name, a mask of the rows that it does not delete."""
        return self.kept


AnyTable: TypeAlias = Table | TaskTable
"""A version of a table whose files can be read: the driver's, or a task's."""
