"""One version of an Iceberg table, as it is read: columns, files, properties, the ledger and the lineage.

A version is the sequence number of the current snapshot of `main`, 0 before the first. Iceberg has no application
transactions, so that a snapshot's summary has them (`ledger_state`). Data files are named by their path below the
table's location, as for all formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.types import PrimitiveType

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.iceberg import garbage
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress
from millrace_pipelines.warehouse.iceberg.deleted_rows import KeptRows, find_kept_rows
from millrace_pipelines.warehouse.iceberg.deletion_vectors import Paths, mark_rows, path_below
from millrace_pipelines.warehouse.iceberg.file_io import address_in_stores
from millrace_pipelines.warehouse.iceberg.ledger_state import (
    COPY,
    LedgerState,
    ancestors,
    newest_state,
    state_of,
    summary_of,
    version_of,
)
from millrace_pipelines.warehouse.iceberg.manifest_files import VECTORS_FROM
from millrace_pipelines.warehouse.iceberg.manifests import (
    ListedFile,
    bounds_of,
    listed_deletes,
    listed_files,
    manifests_of,
    partition_texts,
)
from millrace_pipelines.warehouse.iceberg.schema import arrow_schema, ids_of
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.columns import as_schema, file_columns, is_as_now, under_present_names
from millrace_pipelines.warehouse.table.files import FieldIds, digest_text
from millrace_pipelines.warehouse.table.lineage import Lineage, kept_lineage
from millrace_pipelines.warehouse.table.row_ids import RowOrigin
from millrace_pipelines.warehouse.table.table import Commit, MarkRows

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # it imports pandas, which only readers of rows need

NAME_PROPERTY = "comment"
FORMAT_VERSIONS = (2, VECTORS_FROM)
MERGE_MODE, MERGE_ON_READ = "write.merge.mode", "merge-on-read"
ENCRYPTED = "encryption.key-id"
ABANDONED = "rolled back"


class Snapshot:
    """A version of a table; reading it never sees a later commit."""

    def __init__(self, address: IcebergAddress, table: PyIcebergTable, fs: FileSystem, clock: Clock) -> None:
        self._address = address
        self._fs = fs
        self._clock = clock
        self._table = table
        self._store = store_at(address_in_stores(table.metadata.location), fs)
        self._state: tuple[str, LedgerState] | None = None
        self._kept: tuple[str, KeptRows] | None = None

    @property
    def _metadata(self) -> TableMetadata:
        return self._table.metadata

    @property
    def _current(self) -> IcebergSnapshot | None:
        return self._metadata.current_snapshot()

    @property
    def state(self) -> LedgerState:
        """Returns what the newest commit of Millrace's says; raises LedgerError where that is lost."""
        if self._state is None or self._state[0] != self._table.metadata_location:
            self._state = self._table.metadata_location, newest_state(self._metadata, self.address)
        return self._state[1]

    @property
    def address(self) -> str:
        """Returns the table's address."""
        return str(self._address)

    @property
    def location(self) -> str:
        """Returns where the table's files are."""
        return self._store.location

    @property
    def root(self) -> str:
        """Returns the path of that place in `filesystem`."""
        return self._store.root

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Returns the pyarrow file system that has the table's files."""
        return self._store.filesystem

    @property
    def store(self) -> Store:
        """Returns the store with the table's files."""
        return self._store

    @property
    def version(self) -> int:
        """Returns the current snapshot's sequence number, 0 before the first."""
        return 0 if self._current is None else version_of(self._current)

    @property
    def snapshot_id(self) -> int | None:
        """Returns the current snapshot's id, None before the first."""
        return self._metadata.current_snapshot_id

    @property
    def id(self) -> str:
        """Returns the table's own id, given when it was made."""
        return str(self._metadata.table_uuid)

    @property
    def name(self) -> str | None:
        """Returns the name that the table was made with."""
        return self._metadata.properties.get(NAME_PROPERTY)

    @property
    def configuration(self) -> Mapping[str, str]:
        """Returns the table's properties, without the copy of the ledger."""
        return {name: value for name, value in self._metadata.properties.items() if name != COPY}

    @property
    def schema(self) -> pa.Schema:
        """Returns the table's columns."""
        return arrow_schema(self._metadata.schema())

    @property
    def field_ids(self) -> FieldIds:
        """Returns the ids of the columns and of the fields inside of them."""
        return ids_of(self._metadata.schema())

    @property
    def partition_columns(self) -> list[str]:
        """Returns the names of the partition's fields, which are no columns: their values follow from one."""
        return [field.name for field in self._metadata.spec().fields]

    @property
    def marker(self) -> str:
        """Returns the name of this version's metadata file."""
        return self._name_of(self._table.metadata_location)

    @property
    def row_origins(self) -> Mapping[str, RowOrigin] | None:
        """Returns, by file name, from what the ids of its rows follow; None before format version 3."""
        if self._metadata.format_version < VECTORS_FROM:
            return None
        return {
            name: RowOrigin(file.first_row_id, file.sequence_number)
            for name, file in self._listed()
            if file.first_row_id is not None
        }

    @property
    def row_marker(self) -> MarkRows | None:
        """Returns what deletes rows of a file by a vector; None where the table does not ask for vectors."""
        merges = self._metadata.properties.get(MERGE_MODE)
        takes = self._metadata.format_version == VECTORS_FROM and merges == MERGE_ON_READ
        if not takes:
            return None
        location = self._metadata.location
        others = {name: file.path for name, file in self._listed() if file.path != path_below(location, name)}
        return partial(mark_rows, Paths(location, others))

    def check_access(self, access: Access) -> None:
        """Raises TableRefusedError for what is not done with such a table."""
        if access is Access.READ:
            return
        if (reason := next(self._reasons(access), None)) is not None:
            raise TableRefusedError(f"{self.address} {reason}. Way on: load into another table. Nothing was changed")

    def _reasons(self, access: Access) -> Iterator[str]:
        """Yields why the table takes no rows of Millrace's."""
        metadata = self._metadata
        if metadata.format_version not in FORMAT_VERSIONS:
            yield f"has Iceberg's format version {metadata.format_version}, and Millrace writes to versions 2 and 3"
        if ENCRYPTED in metadata.properties:
            yield "is encrypted, and Millrace's files are not"
        used = {metadata.default_spec_id}
        if access is not Access.APPEND:
            used |= {one.partition_spec_id for one in manifests_of(self._current, self._table.io)}
        for spec in (metadata.specs()[one] for one in sorted(used)):
            if not all(isinstance(field.transform, (DayTransform, HourTransform)) for field in spec.fields):
                yield f"is partitioned by {spec}, and Millrace writes partitions by day and hour only"

    def check_ledger_copy(self) -> None:
        """Raises LedgerError where rows and ledger don't belong together."""
        _ = self.state

    def transaction_version(self, app_id: str) -> int | None:
        """Returns the version of an application id's last transaction; None where there was none."""
        return self.state.transactions.get(app_id)

    def _name_of(self, path: str) -> str:
        """Returns a file's name below the table's location; the whole path of one that is elsewhere."""
        place = address_in_stores(path)
        return place.removeprefix(f"{self.location}/")

    def _listed(self) -> list[tuple[str, ListedFile]]:
        """Returns the data files by name; raises TableRefusedError for one that is not below the table's location."""
        named = [(self._name_of(file.path), file) for file in listed_files(self._current, self._table.io)]
        for name, _ in named:
            if name.startswith("/") or "://" in name:
                raise TableRefusedError(
                    f"{self.address} names files outside of its folder, such as {name}, as `add_files` does; "
                    "make a copy of the table, or use the table that has the files; nothing was changed"
                )
        return sorted(named)

    def file_names(self) -> list[str]:
        """Returns the names of the data files of this version."""
        return [name for name, _ in self._listed()]

    def files(self) -> list[str]:
        """Returns the paths in `filesystem` of the data files of this version."""
        return [self._store.path(name) for name in self.file_names()]

    def _spec(self, file: ListedFile) -> PartitionSpec:
        return self._metadata.specs()[file.spec_id]

    def partition_values(self) -> dict[str, dict[str, str | None]]:
        """Returns the values of the partitions as texts, by file name."""
        return {name: partition_texts(file, self._spec(file)) for name, file in self._listed()}

    def add_actions(self) -> pa.Table:
        """Returns a row for each data file, as `Table.add_actions` says."""
        listed, times = self._listed(), {one.snapshot_id: one.timestamp_ms for one in self._metadata.snapshots}
        files, kept = [file for _, file in listed], self.kept_rows()
        columns: dict[str, list[Any]] = {
            "path": [quote(name) for name, _ in listed],
            "size_bytes": [file.size_bytes for file in files],
            "modification_time": [times.get(file.snapshot_id, 0) for file in files],
            "num_records": [kept.rows_of(name) if name in kept else file.rows for name, file in listed],
        }
        for field in self._metadata.schema().fields:
            if isinstance(field.field_type, PrimitiveType) and any(field.field_id in file.nulls for file in files):
                bounds = [bounds_of(file, field.field_id, field.field_type) for file in files]
                columns[f"null_count.{field.name}"] = [file.nulls.get(field.field_id) for file in files]
                columns[f"min.{field.name}"] = [None if one is None else one[0] for one in bounds]
                columns[f"max.{field.name}"] = [None if one is None else one[1] for one in bounds]
        texts = [partition_texts(file, self._spec(file)) for file in files]
        columns |= {f"partition.{name}": [one.get(name) for one in texts] for name in self.partition_columns}
        return pa.table(columns)

    def kept_rows(self) -> KeptRows:
        """Returns, for each file of which rows are deleted beside it, by name, a mask of those that are left.

        Raises TableRefusedError where another engine deleted some by equality.
        """
        if self._kept is None or self._kept[0] != self._table.metadata_location:
            deletes = list(listed_deletes(self._current, self._table.io))
            kept = find_kept_rows(
                deletes, dict(self._listed()) if deletes else {}, self._table.io,
                where=self.address, name_of=self._name_of, location=self.location, fs=self._fs,
            )  # fmt: skip
            self._kept = self._table.metadata_location, kept
        return self._kept[1]

    def digests(self) -> dict[str, str]:
        """Returns the CRC-32C, as text, of this version's files by name, where Millrace wrote them."""
        return {name: digest_text(file.crc) for name, file in self._listed() if file.crc is not None}

    def dataset(self) -> ds.Dataset:
        """Returns the rows of this version as a pyarrow dataset; those of some files are in memory.

        These are files of which rows are deleted, or in which a column has another name than now.
        """
        import pyarrow.dataset as ds  # noqa: PLC0415

        form, kept, whole = ds.ParquetFileFormat(), self.kept_rows(), list[ds.Fragment]()
        left: list[pa.Table] = []
        may_mislead = self._is_renamed()
        for name in self.file_names():
            fragment = form.make_fragment(self._store.path(name), filesystem=self.filesystem)
            if name in kept or (may_mislead and not is_as_now(fragment.physical_schema, self.field_ids)):
                rows = self._under_present_names(fragment.to_table(use_threads=False))
                left.append(rows.filter(pa.array(kept[name])) if name in kept else rows)
            else:
                whole.append(fragment)
        files = ds.FileSystemDataset(whole, self.schema, form, self.filesystem)
        return ds.dataset([files, ds.dataset(pa.concat_tables(left))]) if left else files

    def _under_present_names(self, rows: pa.Table) -> pa.Table:
        present = file_columns(rows.schema, self.field_ids)
        batches = [under_present_names(batch, present) for batch in rows.to_batches()]
        return as_schema(pa.Table.from_batches(batches), self.schema) if batches else self.schema.empty_table()

    def _is_renamed(self) -> bool:
        """Returns whether a field has had another name, or a name another field, so that older files mislead."""
        named = {(path, number) for one in self._metadata.schemas for path, number in ids_of(one).items()}
        return len({path for path, _ in named}) < len(named) or len({number for _, number in named}) < len(named)

    def lineage(self) -> list[Lineage]:
        """Returns the lineage of each commit of Millrace's up to this version, oldest first, with its `version`."""
        states = [state_of(one, self.address) for one in ancestors(self._metadata)]
        known: dict[int, Lineage] = {**kept_lineage(self._store, self.id)}
        for state in (self.state, *states):
            if state is not None and state.version:
                known[state.version] = {**state.lineage, "after": state.after}
        found: list[Lineage] = []
        version = self.state.version
        while version in known:
            lineage = known[version]
            found.append({**lineage, "version": version})
            version = lineage.get("after", 0)
        return found[::-1]

    def commit_of(self, version: int) -> Commit | None:
        """Returns the commit that made a version; None where its snapshot is expired.

        One that a rollback abandoned did nothing.
        """
        line = ancestors(self._metadata)
        for snapshot in line:
            if version_of(snapshot) == version:
                return self._commit(snapshot)
        if line and version_of(line[-1]) < version < version_of(line[0]):
            return Commit(version, 0, ABANDONED, {}, {}, None, (), 0)
        return None

    def commits_after(self, version: int, limit: int) -> list[Commit]:
        """Returns the commits after a version up to this one, oldest first, at most `limit`, that are not expired."""
        line = [one for one in reversed(ancestors(self._metadata)) if version_of(one) > version]
        return [self._commit(one) for one in line[:limit]]

    def _commit(self, snapshot: IcebergSnapshot) -> Commit:
        state = state_of(snapshot, self.address)
        added = list(self._added(snapshot))
        return Commit(
            version=version_of(snapshot),
            time_ms=snapshot.timestamp_ms,
            operation="" if snapshot.summary is None else str(snapshot.summary.operation.value),
            lineage={} if state is None else state.lineage,
            transactions={} if state is None else state.transactions,
            restored_to=None,
            file_names=tuple(self._name_of(file.path) for file in added),
            bytes=sum(file.size_bytes for file in added),
        )

    def _added(self, snapshot: IcebergSnapshot) -> Iterator[ListedFile]:
        if summary_of(snapshot).get("added-data-files", "0") != "0":
            files = listed_files(snapshot, self._table.io)
            yield from (file for file in files if file.snapshot_id == snapshot.snapshot_id)

    def checkpoint_version(self) -> int:
        """Returns this version: a snapshot is read by itself."""
        return self.version

    def create_checkpoint(self) -> None:
        """Refuses: there is none."""
        raise TableRefusedError(
            f"{self.address}: an Iceberg table has no checkpoints: each snapshot is read by itself. Nothing was changed"
        )

    def sync_log(self) -> None:
        """Does nothing: what a catalog names is synced."""

    def unneeded_files(self, retention_hours: int) -> list[str]:
        """Returns the names of files to which no snapshot leads, and that are old enough (`garbage`)."""
        if not garbage.is_collected(self._metadata):
            return []
        needed, now_ms = self._needed(), self._clock.now_ms()
        return garbage.unneeded(self._stored(), needed, now_ms=now_ms, retention_hours=retention_hours)

    def files_of_versions(self, since_ms: int) -> set[str]:
        """Returns the names of the files of all snapshots, and of the one that was current at a time."""
        name = garbage.list_before(self._stored(), since_ms)
        path = f"{self._metadata.location.rstrip('/')}/{name}"
        before = () if name is None else garbage.paths_in_list(path, self._table.io)
        return self._needed() | garbage.names_below(before, self.location)

    def _stored(self) -> list[garbage.StoredFile]:
        return garbage.stored_files(self._store)

    def _needed(self) -> set[str]:
        paths = garbage.needed_paths(self._metadata, self._table.metadata_location, self._table.io)
        return garbage.names_below(paths, self.location)
