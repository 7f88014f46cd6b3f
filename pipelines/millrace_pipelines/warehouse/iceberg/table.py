"""An Iceberg table that is written to: commits that are made of exactly the snapshot whose ledger was compared.

    1. load the table, compare the transactions that the commit expects
    2. write a manifest of the files, and the list of all manifests, both synced
    3. ask the catalog for one commit: snapshot, `main`, properties, columns; it asserts that `main` is as it was loaded

A catalog that refuses says that another commit came first: from 1 again, on the newest version. An answer that is lost
may stand for a commit. So after any other error the table is loaded again. Has it the snapshot, the commit was made. If
not, it is asked for again: of the two requests only one can find `main` as both assert it. While that is open, nothing
counts as not committed, and no file is removed.

PyIceberg's own transactions copy all metadata for every step and read all manifests; this asks its catalogs alone.
Metadata stays small: the oldest snapshots of `main` expire with the commit, once there are more than KEPT_SNAPSHOTS, or
their summaries are larger than KEPT_BYTES. Their lineage is in files of its own before that (`table.lineage`). What
they alone name stays until Spark's procedures remove it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, CatalogError, StaleLedgerError, TableNotFoundError
from millrace_pipelines.warehouse.iceberg import catalogs
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress, parse_address
from millrace_pipelines.warehouse.iceberg.ledger_state import (
    TOTAL_RECORDS,
    LedgerState,
    ancestors,
    copied,
    said,
    state_of,
    summary_of,
)
from millrace_pipelines.warehouse.iceberg.manifests import listed_files, write_snapshot
from millrace_pipelines.warehouse.iceberg.schema import evolved, iceberg_schema, partition_spec, widens
from millrace_pipelines.warehouse.iceberg.snapshot import FORMAT_VERSION, NAME_PROPERTY, Snapshot
from millrace_pipelines.warehouse.stores.leases import confirm_leases
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile, MarkedFile, NamedFile
from millrace_pipelines.warehouse.table.lineage import Lineage, WrittenLineage, keep_lineage, kept_until
from millrace_pipelines.warehouse.table.table import NOT_PARTITIONED, NOTHING_MARKED, check_expected

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 20
KEPT_SNAPSHOTS, LEAST_SNAPSHOTS = 100, 5
KEPT_BYTES = 256 << 10
TOTALS = {
    "added-data-files": "total-data-files",
    "added-records": TOTAL_RECORDS,
    "added-files-size": "total-files-size",
}
MADE_WITH = {
    "format-version": str(FORMAT_VERSION),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
Update: TypeAlias = Mapping[str, object]
"""An update or requirement as Iceberg's REST catalogs spell it."""
NOTHING_SET: Mapping[str, str] = {}


class _Change(NamedTuple):
    """What a commit does beside the ledger: files that it adds, properties and columns that it sets, its lineage."""

    files: Sequence[DataFile]
    transactions: Mapping[str, int]
    lineage: WrittenLineage
    properties: Mapping[str, str] = NOTHING_SET
    columns: pa.Schema | None = None


class _Attempt(NamedTuple):
    """One request for a commit, in the words of Iceberg's REST catalogs, and the files that were written for it.

    `file` is one of the data files that it adds, None where it adds none.
    """

    snapshot_id: int
    request: CommitTableRequest
    written: Sequence[str]
    file: str | None


class _OvertakenError(StaleLedgerError):
    """Another commit was made first; this one may be made on the version after it."""


PATIENCE = Retrying(
    retry=retry_if_exception_type(_OvertakenError),
    stop=stop_after_attempt(COMMIT_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.02, max=2),
    reraise=True,
)


class Table(Snapshot):
    """A version of a table, the newest when it was loaded, on which commits are made."""

    def __init__(self, address: IcebergAddress, table: PyIcebergTable, fs: FileSystem, clock: Clock) -> None:
        super().__init__(address, table, fs)
        self._clock = clock

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
        clock: Clock = CLOCK,
        access: Access = Access.APPEND,
    ) -> Table:
        """Loads a table as `load_to_write` does for `access`, and creates it where there is none."""
        parsed = parse_address(address)
        try:
            return cls.load_to_write(address, fs, clock, access=access)
        except TableNotFoundError:
            _create(parsed, schema, {**MADE_WITH, NAME_PROPERTY: name, **configuration}, partition_by)
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
        """Adds files and sets the transactions in one commit, as `Table.commit` says; removes none yet.

        Raises:
            StaleLedgerError: A transaction is not at its expected version, or a column has another type now; nothing
                was committed.
            TableRefusedError: Files are to be removed, or the table has become one that Millrace does not write to.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the catalog did not answer,
                and the commit may or may not be made.
        """
        if removed or marked or not data_change:
            self.check_access(Access.REMOVE if data_change else Access.REARRANGE)
        for file in files:
            if (size_bytes := self._store.size_bytes(file.name)) != file.size_bytes:
                path = self._store.path(file.name)
                raise WarehouseError(f"{path} has {size_bytes} bytes, its task wrote {file.size_bytes}")
        return self._commit_change(_Change(files, transactions, lineage), expected)

    def configure(
        self,
        properties: Mapping[str, str],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
    ) -> int:
        """Sets table properties and transactions in one commit; raises StaleLedgerError where another came first."""
        return self._commit_change(_Change((), transactions, lineage, properties), expected)

    def add_columns(self, columns: pa.Schema, *, lineage: WrittenLineage) -> int:
        """Adds columns, or fields inside of structs, in one commit, and widens those that are there."""
        return self._commit_change(_Change((), {}, lineage, columns=columns), {})

    def widens(self, columns: pa.Schema) -> bool:
        """Returns whether Iceberg can bring the table to these columns in its metadata alone."""
        return widens(self._metadata.schema(), columns)

    def replace(
        self,
        schema: pa.Schema,  # noqa: ARG002  # refused
        files: Sequence[DataFile],  # noqa: ARG002
        *,
        expected: Mapping[str, int | None],  # noqa: ARG002
        lineage: WrittenLineage,  # noqa: ARG002
    ) -> int:
        """Refuses, as files are not replaced yet."""
        self.check_access(Access.REMOVE)
        return self.version

    def fence(self) -> int:
        """Makes an empty commit, so that none can be made any more that was written for this version or before it."""
        return self._commit_change(_Change((), {}, {"kind": "fence"}), {})

    def _commit_change(self, change: _Change, expected: Mapping[str, int | None]) -> int:
        tried: list[int] = []
        open_parents: set[int | None] = set()
        columns = self.schema
        try:
            for once in PATIENCE.copy():
                with once:
                    self._try(change, expected, columns, tried, open_parents)
        except NOT_COMMITTED as error:
            if self._metadata.current_snapshot_id in open_parents:
                raise _unknown(self.address, error) from error
            raise
        return self.version

    def _try(
        self,
        change: _Change,
        expected: Mapping[str, int | None],
        columns: pa.Schema,
        tried: list[int],
        open_parents: set[int | None],
    ) -> None:
        """Makes a commit on the version that was loaded; raises _OvertakenError where that is not the newest any more.

        Args:
            change: What to commit.
            expected: Application ids with the versions that this commit builds on.
            columns: The table's columns when the files were written.
            tried: The ids of the snapshots that were asked for; it gets this one's.
            open_parents: The snapshots on which a request may still be made whose answer is lost.
        """
        self.check_access(Access.APPEND)
        check_expected(self, expected)
        self._check_columns(change, columns)
        attempt = self._attempt(change)
        confirm_leases()
        tried.append(attempt.snapshot_id)
        if not self._is_made(attempt, open_parents, tried):
            raise _OvertakenError(f"{self.address}: others commit all the time; nothing of this load was committed")

    def _is_made(self, attempt: _Attempt, open_parents: set[int | None], tried: Sequence[int]) -> bool:
        """Asks the catalog for a commit; returns whether it is made, by this request or by one before it."""
        before, is_refused = self._metadata, False
        try:
            request = attempt.request
            made = self._table.catalog.commit_table(self._table, request.requirements, request.updates)
        except CommitFailedException:
            is_refused = True
            self._reload()
        except NoSuchTableError:
            raise StaleLedgerError(f"{self.address}: the table was dropped; nothing was committed") from None
        except Exception as error:  # noqa: BLE001  # whatever it is, the commit may be made
            logger.warning("%s: no answer to a commit, the table is loaded again: %s", self.address, error)
            open_parents.add(before.current_snapshot_id)
            self._reload()
        else:
            self._table.metadata, self._table.metadata_location = made.metadata, made.metadata_location
            self._after_commit(before)
            return True
        if self._is_there(attempt, tried):
            self._after_commit(before)
            return True
        if is_refused:
            self._remove(attempt.written)
        return False

    def _is_there(self, attempt: _Attempt, tried: Sequence[int]) -> bool:
        """Returns whether the table has a snapshot that was asked for, or a file of one that others expired since."""
        if {one.snapshot_id for one in self._metadata.snapshots} & {*tried}:
            return True
        files = listed_files(self._current, self._table.io) if attempt.file is not None else ()
        return any(self._name_of(file.path) == attempt.file for file in files)

    def _reload(self) -> None:
        """Loads the table again, with pauses where the catalog does not answer; raises WarehouseError at the end."""
        try:
            self._table = catalogs.load_patiently(self._address)
        except CatalogError as error:
            raise _unknown(self.address, error) from error

    def _check_columns(self, change: _Change, before: pa.Schema) -> None:
        now = self.schema
        changed = [one.name for one in before if one.name in now.names and now.field(one.name) != one]
        if change.files and (changed or any(one.name not in now.names for one in before)):
            names = ", ".join(changed) or "a column"
            raise StaleLedgerError(f"{self.address}: {names} got another type or name meanwhile")

    def _attempt(self, change: _Change) -> _Attempt:
        """Writes the manifests of a commit on this version, and returns the request for it."""
        metadata, state = self._metadata, self.state
        assert isinstance(metadata, TableMetadataV2)  # as `check_access` has made sure
        snapshot_id, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
        written = write_snapshot(
            change.files, metadata, self._table.io, snapshot_id=snapshot_id, sequence_number=number
        )
        following = LedgerState(number, state.version, {**state.transactions, **change.transactions}, {})
        counts = counts_after(metadata, change.files)
        schema_id, schema_updates = self._schema_updates(change.columns)
        snapshot = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": metadata.current_snapshot_id,
            "sequence-number": number,
            "timestamp-ms": max(self._clock.now_ms(), metadata.last_updated_ms),
            "manifest-list": written.manifest_list,
            "summary": {"operation": "append", **counts, **said(following, change.lineage)},
            "schema-id": schema_id,
        }
        rows = int(counts.get(TOTAL_RECORDS, "0"))
        properties = {**change.properties, **copied(following, change.lineage, snapshot=snapshot_id, rows=rows)}
        expired = expired_snapshots(metadata)
        updates = [
            *schema_updates,
            {"action": "add-snapshot", "snapshot": snapshot},
            _main_at(snapshot_id, metadata.refs.get(MAIN_BRANCH)),
            {"action": "set-properties", "updates": properties},
            *([{"action": "remove-snapshots", "snapshot-ids": expired}] if expired else []),
        ]
        request = CommitTableRequest.model_validate(
            {"identifier": _identifier(self._address), "requirements": _requirements(metadata), "updates": updates}
        )
        return _Attempt(snapshot_id, request, written.written, change.files[0].name if change.files else None)

    def _schema_updates(self, columns: pa.Schema | None) -> tuple[int, list[Update]]:
        """Returns the id of the schema after a commit, and the updates that make it the table's."""
        metadata = self._metadata
        if columns is None:
            return metadata.current_schema_id, []
        schema_id = max(one.schema_id for one in metadata.schemas) + 1
        made = evolved(metadata.schema(), columns, metadata.last_column_id)
        schema = Schema(*made.fields, schema_id=schema_id, identifier_field_ids=made.identifier_field_ids)
        return schema_id, [
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": schema_id},
        ]

    def _after_commit(self, before: TableMetadata) -> None:
        """Keeps the lineage in files, and removes metadata files that are named no more; a failure is only logged."""
        try:
            since = kept_until(self._store)
            states = [state_of(one, self.address) for one in ancestors(self._metadata)]
            fresh: dict[int, Lineage] = {
                state.version: {**state.lineage, "after": state.after}
                for state in states
                if state is not None and state.version > since
            }
            keep_lineage(self._store, self.id, fresh)
        except (OSError, WarehouseError) as error:
            logger.warning("%s: the second copy of its lineage stays behind: %s", self.address, error)
        named = {entry.metadata_file for entry in self._metadata.metadata_log}
        self._remove([one.metadata_file for one in before.metadata_log if one.metadata_file not in named])

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._table.io.delete(path)
            except OSError as error:
                logger.info("%s stays: %s", path, error)


def _unknown(address: str, error: Exception | None) -> WarehouseError:
    why = "" if error is None else f": {error}"
    return WarehouseError(
        f"{address}: the catalog did not answer whether the commit is made{why}. The next load finds out, and files of "
        "this one stay until then"
    )


def _identifier(address: IcebergAddress) -> Update:
    return {"namespace": address.namespace, "name": address.parts[-1]}


def _requirements(metadata: TableMetadata) -> list[Update]:
    """Returns what has to be as it was loaded for a commit to be made."""
    return [
        {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
        {"type": "assert-ref-snapshot-id", "ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id},
        {"type": "assert-current-schema-id", "current-schema-id": metadata.current_schema_id},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata.last_column_id},
    ]


def _main_at(snapshot_id: int, main: SnapshotRef | None) -> Update:
    """Returns the update that moves `main`, whose settings stay."""
    settings = {} if main is None else {
        "max-ref-age-ms": main.max_ref_age_ms,
        "max-snapshot-age-ms": main.max_snapshot_age_ms,
        "min-snapshots-to-keep": main.min_snapshots_to_keep,
    }  # fmt: skip
    moved = {"action": "set-snapshot-ref", "ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": snapshot_id}
    return moved | {name: value for name, value in settings.items() if value is not None}


def counts_after(metadata: TableMetadata, files: Sequence[DataFile]) -> dict[str, str]:
    """Returns what a snapshot's summary says of its files, and of all together where the one before it says that."""
    current = metadata.current_snapshot()
    before = {} if current is None else summary_of(current)
    added = {
        "added-data-files": len(files),
        "added-records": sum(file.rows for file in files),
        "added-files-size": sum(file.size_bytes for file in files),
    }
    totals = {
        total: int(before.get(total, "0")) + added[name]
        for name, total in TOTALS.items()
        if current is None or total in before
    }
    others = {name: before[name] for name in ("total-delete-files", "total-position-deletes") if name in before}
    said_of_files = {name: number for name, number in added.items() if files}
    return {name: str(number) for name, number in (said_of_files | totals).items()} | others


def expired_snapshots(metadata: TableMetadata) -> list[int]:
    """Returns the oldest snapshots of `main` that a commit expires, to keep the metadata small."""
    if metadata.properties.get("gc.enabled", "true").lower() == "false":
        return []
    least = max(LEAST_SNAPSHOTS, int(metadata.properties.get("history.expire.min-snapshots-to-keep", "1")))
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    kept_bytes, expired = 0, []
    for number, snapshot in enumerate(ancestors(metadata), start=2):
        kept_bytes += sum(len(value) for value in summary_of(snapshot).values())
        is_beyond = number > max(KEPT_SNAPSHOTS, least) or (number > least and kept_bytes > KEPT_BYTES)
        if is_beyond and snapshot.snapshot_id not in named:
            expired.append(snapshot.snapshot_id)
    return expired


def _create(
    address: IcebergAddress, schema: pa.Schema, properties: Mapping[str, str], partition_by: Mapping[str, str]
) -> None:
    """Creates a table; does nothing where another process has."""
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
