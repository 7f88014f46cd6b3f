"""An Iceberg table that is written to: what loads and rewrites ask of it, each as one commit (`commits`).

Columns that Iceberg can't widen in its metadata are replaced, with all files, by columns of the same names with ids of
their own: no reader then takes the bytes of an older file for the wider type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.errors import CatalogError, TableNotFoundError
from millrace_pipelines.warehouse.iceberg import catalogs
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress, parse_address
from millrace_pipelines.warehouse.iceberg.commits import Committing
from millrace_pipelines.warehouse.iceberg.garbage import (
    HOUR_MS,
    LEAST_HOURS,
    ended_snapshots,
    is_collected,
    without_snapshots,
)
from millrace_pipelines.warehouse.iceberg.manifest_files import VECTORS_FROM
from millrace_pipelines.warehouse.iceberg.requests import Change
from millrace_pipelines.warehouse.iceberg.schema import (
    evolved,
    iceberg_schema,
    ids_of,
    partition_spec,
    replaced,
    widens,
)
from millrace_pipelines.warehouse.iceberg.snapshot import MERGE_MODE, MERGE_ON_READ, NAME_PROPERTY
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile, FieldIds, MarkedFile, NamedFile
from millrace_pipelines.warehouse.table.lineage import WrittenLineage
from millrace_pipelines.warehouse.table.table import NOT_PARTITIONED, NOTHING_MARKED, check_expected, count_rewrites

MADE_WITH = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
WITH_VECTORS = {
    "format-version": str(VECTORS_FROM),
    "write.delete.mode": MERGE_ON_READ,
    "write.update.mode": MERGE_ON_READ,
    MERGE_MODE: MERGE_ON_READ,
}


class Table(Committing):
    """A version of a table, the newest when it was loaded, on which commits are made."""

    @classmethod
    def load(cls, address: str, fs: FileSystem, clock: Clock = CLOCK) -> Table:
        """Loads the newest version.

        Raises:
            TableNotFoundError: There is no table.
            CatalogError: The catalog can't be asked.
        """
        parsed = parse_address(address)
        return cls(parsed, catalogs.load(parsed), fs, clock)

    @classmethod
    def load_to_write(
        cls, address: str, fs: FileSystem, clock: Clock = CLOCK, *, access: Access = Access.APPEND
    ) -> Table:
        """Loads the newest version, as `load` does, for a commit to build on.

        Raises:
            TableRefusedError: The access is not given.
            UnsafeStoreError: Its catalog does not keep two commits apart.
            LedgerError: Its ledger and its rows don't belong together.
        """
        table = cls.load(address, fs, clock)
        table.check_access(access)
        catalogs.check_commits(parse_address(address))
        table.check_ledger_copy()
        return table

    @classmethod
    def load_or_create(
        cls,
        address: str,
        fs: FileSystem,
        *,
        schema: pa.Schema,
        name: str,
        configuration: Mapping[str, str],
        partition_by: Mapping[str, str] = NOT_PARTITIONED,
        deletion_vectors: bool = False,
        clock: Clock = CLOCK,
        access: Access = Access.APPEND,
    ) -> Table:
        """Loads a table as `load_to_write` does for `access`, and creates it where there is none."""
        parsed = parse_address(address)
        try:
            return cls.load_to_write(address, fs, clock, access=access)
        except TableNotFoundError:
            made_with = MADE_WITH | (WITH_VECTORS if deletion_vectors else {})
            _create(parsed, schema, {**made_with, NAME_PROPERTY: name, **configuration}, partition_by)
        return cls.load_to_write(address, fs, clock, access=access)

    def commit(
        self,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
        removed: Sequence[NamedFile] = (),
        marked: Mapping[str, MarkedFile] = NOTHING_MARKED,
        data_change: bool = True,
    ) -> int:
        """Adds and removes files and sets the transactions in one commit; returns the version that it made.

        Args:
            files: Synced files below the table's location.
            expected: Application ids with the versions that this commit builds on.
            transactions: Application ids with their new versions.
            lineage: What this commit did.
            removed: Files of this version that the table has no longer, or has with other rows deleted.
            marked: By name, those among them that the table has again, with a deletion vector.
            data_change: False where the added files hold the rows of the removed ones, as after a compaction.

        Raises:
            StaleLedgerError: A transaction is not at its expected version, a file to remove is gone or has other rows,
                or a column has another type now; nothing was committed.
            TableRefusedError: The table has become one that Millrace does not write to; nothing was committed.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the catalog did not answer,
                and the commit may or may not be made.
        """
        self._check_files(files)
        if removed:
            counted, counts = count_rewrites(self)
            expected, transactions = {**expected, **counted}, {**transactions, **counts}
        change = Change(files, transactions, lineage, removed, marked, data_change)
        return self._commit_change(change, expected)

    def configure(
        self,
        properties: Mapping[str, str],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
    ) -> int:
        """Sets table properties and transactions in one commit; raises StaleLedgerError where another came first."""
        return self._commit_change(Change((), transactions, lineage, properties=properties), expected)

    def add_columns(self, columns: pa.Schema, *, lineage: WrittenLineage) -> int:
        """Adds columns, or fields inside of structs, in one commit, and widens those that are there."""
        return self._commit_change(Change((), {}, lineage, evolve=partial(evolved, columns)), {})

    def expire(self, since_ms: int, *, dry_run: bool) -> None:
        """Expires snapshots that ended before a time, as far as nothing keeps them (`garbage`).

        Where that is so short ago that a request for a commit may still be on its way, `main` moves first, so that it
        is refused.
        """
        is_fenced = is_collected(self._metadata) and since_ms > self._clock.now_ms() - LEAST_HOURS * HOUR_MS
        if dry_run:
            ended = ended_snapshots(self._metadata, since_ms, is_fenced=is_fenced)
            self._table.metadata = without_snapshots(self._metadata, ended)
            return
        if is_fenced:
            self.fence()
        self._expire(lambda: ended_snapshots(self._metadata, since_ms, is_fenced=False))

    def widens(self, columns: pa.Schema) -> bool:
        """Returns whether Iceberg can bring the table to these columns in its metadata alone."""
        return widens(self._metadata.schema(), columns)

    def ids_for(self, columns: pa.Schema) -> FieldIds:
        """Returns what the columns are known by once `replace` has brought the table to them."""
        return ids_of(replaced(columns, self._metadata.schema(), self._metadata.last_column_id))

    def replace(
        self,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        lineage: WrittenLineage,
    ) -> int:
        """Replaces all files by the given ones, under another schema, in one commit.

        Raises:
            StaleLedgerError: Another commit came first; nothing was committed.
        """
        self._check_files(files)
        check_expected(self, expected)
        counted, counts = count_rewrites(self)
        removed = [NamedFile(name=name) for name in self.file_names()]
        change = Change(files, counts, lineage, removed, evolve=partial(replaced, schema))
        return self._commit_change(change, {**expected, **counted}, only_here=True)

    def fence(self) -> int:
        """Makes an empty commit, so that none can be made any more that was written for this version or before it."""
        return self._commit_change(Change((), {}, {"kind": "fence"}), {})

    def _check_files(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if (size_bytes := self._store.size_bytes(file.name)) != file.size_bytes:
                path = self._store.path(file.name)
                raise WarehouseError(f"{path} has {size_bytes} bytes, its task wrote {file.size_bytes}")


def _create(
    address: IcebergAddress, schema: pa.Schema, properties: Mapping[str, str], partition_by: Mapping[str, str]
) -> None:
    """Creates a table; does nothing where another process has.

    A column that is derived from itself is one of the table's, in its files, and no partition.
    """
    partition_by = {name: source for name, source in partition_by.items() if name != source}
    columns = iceberg_schema(pa.schema([one for one in schema if one.name not in partition_by]))
    catalogs.make_namespace(address)
    try:
        catalogs.catalog_of(address).create_table(
            address.parts,
            columns,
            partition_spec=partition_spec(columns, schema, partition_by),
            properties=dict(properties),
        )
    except TableAlreadyExistsError:
        return
    except WarehouseError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, the table may be there
        try:
            catalogs.load(address)
        except TableNotFoundError:
            raise CatalogError(f"{address}: the table can't be made: {' '.join(str(error).split())}") from error
