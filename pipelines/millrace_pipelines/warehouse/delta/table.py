"""A Delta table, the one door to delta-rs.

    …/part-….parquet                        data files, written and synced by the tasks
    _delta_log/<20-digit version>.json      one commit: files, transactions (the ledger), lineage
    _delta_log/….checkpoint.parquet         every 20 commits

A commit is a compare-and-swap on the versions of its application transactions: the values are checked on a loaded
table, and the commit is made on that same object, so delta-rs refuses it if a later version of the table moved any
of them (Delta itself accepts an older transaction version without a word). delta-rs refuses more than it must, such as
an append beside a compaction: then the commit is made again on the newest version, if that still has the expected
transactions and all files that are to be removed.

delta-rs syncs nothing: the log's files and folder are synced here, after the data files were, before a commit counts
as made. A crash leaves either the whole commit or none of it; data files without a commit are garbage that no reader
sees.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.exceptions import TableNotFoundError as DeltaTableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.data_file import DataFile as DataFile  # noqa: PLC0414  part of this door
from millrace_pipelines.warehouse.delta.data_file import RemovedFile as RemovedFile  # noqa: PLC0414
from millrace_pipelines.warehouse.delta.repair import remove_torn_end
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY, Store, store_at
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableNotFoundError

LINEAGE_KEY = "millrace.lineage"
CHECKPOINT_INTERVAL = 20
REWRITES_APP_ID = "millrace/rewrites"
COMMIT_ATTEMPTS = 10
HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
HISTORY_ATTEMPTS = 100


class Table:
    """One version of a table; `commit` is made against exactly this version's transactions."""

    def __init__(self, store: Store, delta: DeltaTable) -> None:
        self._store = store
        self._delta = delta
        self._transactions: dict[tuple[int, str], int | None] = {}

    @classmethod
    def load(cls, location: str, fs: FileSystem) -> Table:
        """The newest version; TableNotFoundError where there is none, WarehouseError where it can't be read."""
        store = store_at(location, fs)
        try:
            return cls(store, DeltaTable(store.location, storage_options=store.storage_options))
        except DeltaTableNotFoundError:
            raise TableNotFoundError(f"{location}: no Delta table here") from None
        except (DeltaError, OSError) as error:
            raise WarehouseError(f"{location}: not a table that can be read: {error}") from error

    @classmethod
    def load_or_create(
        cls,
        location: str,
        fs: FileSystem,
        *,
        schema: pa.Schema,
        name: str,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
    ) -> Table:
        """The table, made if it is not there; where two make it at once, one of them does and both load it."""
        store = store_at(location, fs)
        if not _is_there(store):
            store.make()
            _create(store, schema, name, configuration, partition_by)
            store.sync_made()
        return cls.load_to_write(location, fs)

    @classmethod
    def load_to_write(cls, location: str, fs: FileSystem) -> Table:
        """The newest version, synced, for a commit to build on; without what a power cut left of one told to nobody.

        Raises as `load`.
        """
        store = store_at(location, fs)
        try:
            table = cls.load(location, fs)
        except TableNotFoundError:
            raise
        except WarehouseError:
            if not store.is_local or not remove_torn_end(store.location, fs):
                raise
            table = cls.load(location, fs)
        store.sync_commit(table.version)
        return table

    @property
    def location(self) -> str:
        """An absolute path, or `s3://…`."""
        return self._store.location

    @property
    def directory(self) -> str:
        """The same."""
        return self._store.location

    @property
    def root(self) -> str:
        """The table's folder, for `filesystem`."""
        return self._store.root

    @property
    def version(self) -> int:
        """Number of the newest commit that this object knows."""
        return self._delta.version()

    @property
    def id(self) -> str:
        """The table's own id, given when it was made."""
        return str(self._delta.metadata().id)

    @property
    def name(self) -> str | None:
        """The table's name in its metadata."""
        return self._delta.metadata().name

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._delta.metadata().configuration

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        schema: Any = self._delta.schema()
        return pa.schema(schema)

    @property
    def partition_columns(self) -> list[str]:
        """The columns that are folders."""
        return self._delta.metadata().partition_columns

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Where pyarrow finds `files`."""
        return self._store.filesystem

    def dataset(self) -> ds.Dataset:
        """The rows of this version, for pyarrow and whatever reads its datasets."""
        dataset: ds.Dataset = self._delta.to_pyarrow_dataset()
        return dataset

    def transaction_version(self, app_id: str) -> int | None:
        """The version of an application's last transaction, None before its first; of each version asked for once."""
        asked = self.version, app_id
        if asked not in self._transactions:
            self._transactions[asked] = self._delta.transaction_version(app_id)
        return self._transactions[asked]

    def refresh(self) -> None:
        """Go on to the newest version."""
        self._delta.update_incremental()

    def count_rewrites(self) -> tuple[dict[str, int | None], dict[str, int]]:
        """(version that a commit which removes files builds on, version that it sets).

        delta-rs lets a commit remove files that another one only compacted meanwhile, and the rows of both would stay;
        so no two commits that remove files are made on the same version.
        """
        count = self.transaction_version(REWRITES_APP_ID)
        return {REWRITES_APP_ID: count}, {REWRITES_APP_ID: (count or 0) + 1}

    def files(self) -> list[str]:
        """Paths of the data files of this version, for `filesystem`."""
        return [self._store.path(name) for name in self.file_names()]

    def file_names(self) -> list[str]:
        """Names of the data files of this version, below the table's folder: as in `DataFile` and `RemovedFile`."""
        return sorted(unquote(str(path)) for path in self.add_actions().column("path").to_pylist())

    def add_actions(self) -> pa.Table:
        """The files of this version with sizes, partition values and statistics, as delta-rs flattens them."""
        actions: Any = self._delta.get_add_actions(flatten=True)
        return pa.table(actions)

    def partition_values(self) -> dict[str, dict[str, str | None]]:
        """Returns the values of the partition columns as Delta writes them, by file name."""
        names = self.partition_columns
        actions = self.add_actions().select(["path", *(f"partition.{name}" for name in names)]).to_pylist()
        return {
            unquote(str(action["path"])): {name: _partition_text(action[f"partition.{name}"]) for name in names}
            for action in actions
        }

    def unneeded_files(self, retention_hours: int) -> list[str]:
        """Names of files that this version doesn't name: removed, or written, at least so long ago."""
        return sorted(self._delta.vacuum(retention_hours, dry_run=True, enforce_retention_duration=False, full=True))

    def create_checkpoint(self) -> None:
        """Write this version whole into one synced file, from which readers start."""
        self._delta.create_checkpoint()
        self._store.sync_commit(self.version)

    def checkpoint_version(self) -> int | None:
        """The version of the last checkpoint, None before the first."""
        if self._store.size_bytes(f"{LOG_DIRECTORY}/_last_checkpoint") is None:
            return None
        with self.filesystem.open_input_file(self._store.path(f"{LOG_DIRECTORY}/_last_checkpoint")) as file:
            return int(json.loads(file.read())["version"])

    def sync_log(self) -> None:
        """Sync what the log has since the last checkpoint, whoever wrote it."""
        for version in range(self.checkpoint_version() or 0, self.version + 1):
            self._store.sync_commit(version)

    def lineage(self) -> list[dict[str, Any]]:
        """What each commit up to this version said of itself, oldest first, with the `version` that it made."""
        commits = [commit for commit in reversed(self._history()) if LINEAGE_KEY in commit]
        return [self._lineage_of(commit) | {"version": commit["version"]} for commit in commits]

    def _lineage_of(self, commit: Mapping[str, Any]) -> dict[str, Any]:
        try:
            lineage = json.loads(commit[LINEAGE_KEY])
        except ValueError:
            lineage = None
        if not isinstance(lineage, dict):
            raise WarehouseError(f"{self.location}: {LINEAGE_KEY} of version {commit['version']} is no JSON object")
        return lineage

    def _history(self) -> list[dict[str, Any]]:
        """Newest first. delta-rs's has commits that came later too, and then counts versions from the wrong one."""
        for _ in range(HISTORY_ATTEMPTS):
            newest = self._newest()
            history = newest.history()
            if self._newest().version() == newest.version():
                return [commit for commit in history if commit["version"] <= self.version]
        raise WarehouseError(f"{self.location}: commits come faster than its history can be read")

    def _newest(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self._store.storage_options)

    def commit(
        self,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: Mapping[str, Any],
        removed: Sequence[RemovedFile] = (),
        data_change: bool = True,
    ) -> int:
        """Add and remove files and set the transactions in one commit; returns the version that it made.

        Args:
            files: Synced files below the table's folder.
            expected: Application ids with the versions that this commit builds on.
            transactions: Application ids with their new versions.
            lineage: What this commit did, kept in the log as JSON.
            removed: Files of this version that the table has no longer.
            data_change: False where the added files hold the rows of the removed ones, as after a compaction.

        Raises:
            StaleLedgerError: A transaction is not at its expected version, a file to remove is gone, or a column has
                another type now than the files were written for; nothing was committed.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the log can't be written.
        """
        self._check_files(files)
        if removed:
            counted, counts = self.count_rewrites()
            expected, transactions = {**expected, **counted}, {**transactions, **counts}
        now_ms, columns = time.time_ns() // 1_000_000, self.schema
        actions: list[AddAction | RemoveAction] = [
            *(file.remove_action(now_ms, data_change=data_change) for file in removed),
            *(file.add_action(now_ms, data_change=data_change) for file in files),
        ]

        def write() -> None:
            self._delta.create_write_transaction(
                actions,
                mode="append",
                schema=self._delta.schema(),
                partition_by=self.partition_columns,
                commit_properties=_properties(transactions, lineage),
                post_commithook_properties=HOOKS,
            )

        for _ in range(COMMIT_ATTEMPTS):
            self.check_expected(expected)
            self._check_removed(removed)
            try:
                return self._committed(write)
            except StaleLedgerError:
                self._delta.update_incremental()
                if files and files[0].name in self.file_names():
                    return self.version
                self._check_columns(columns)
        raise StaleLedgerError(f"{self.location}: others commit all the time; nothing of this load was committed")

    def configure(
        self,
        properties: Mapping[str, str],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: Mapping[str, Any],
    ) -> int:
        """Set properties and transactions in one commit; StaleLedgerError where another came first."""
        self.check_expected(expected)

        def write() -> None:
            self._delta.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,
                commit_properties=_properties(transactions, lineage),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

    def add_columns(self, columns: pa.Schema, *, lineage: Mapping[str, Any]) -> int:
        """Add columns, and fields inside of structs, in one commit; StaleLedgerError where another came first."""

        def write() -> None:
            self._delta.alter.add_columns(
                Schema.from_arrow(columns).fields,
                commit_properties=_properties({}, lineage),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

    def replace(
        self,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        lineage: Mapping[str, Any],
    ) -> int:
        """Put the files in place of all others, under another schema, in one commit.

        Args:
            schema: The table's columns from now on.
            files: Synced files that hold the table's rows.
            expected: Application ids with versions; no other commit may move them meanwhile.
            lineage: What this commit did.

        Raises:
            StaleLedgerError: Another commit came first; nothing was committed.
        """
        self._check_files(files)
        self.check_expected(expected)
        now_ms = time.time_ns() // 1_000_000
        _, counts = self.count_rewrites()
        transactions = counts | {app_id: version for app_id, version in expected.items() if version is not None}

        def write() -> None:
            self._delta.create_write_transaction(
                [file.add_action(now_ms) for file in files],
                mode="overwrite",
                schema=schema,
                partition_by=self.partition_columns,
                commit_properties=_properties(transactions, lineage),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

    def _committed(self, write: Any) -> int:
        before = self.version
        with _commit_errors(self.location):
            write()
        self._delta.update_incremental()
        for version in range(before + 1, self.version + 1):
            self._store.sync_commit(version)
        return self.version

    def check_expected(self, expected: Mapping[str, int | None]) -> None:
        """Raise StaleLedgerError unless every application's transaction is at its expected version."""
        for app_id, version in expected.items():
            if (actual := self.transaction_version(app_id)) != version:
                raise StaleLedgerError(
                    f"{self.location}: another load committed first: {app_id} is at {actual}, not at {version}"
                )

    def _check_removed(self, removed: Sequence[RemovedFile]) -> None:
        if removed and (gone := {file.name for file in removed} - set(self.file_names())):
            raise StaleLedgerError(f"{self.location}: {', '.join(sorted(gone))} is not in the table any more")

    def _check_columns(self, before: pa.Schema) -> None:
        now = self.schema
        changed = [column.name for column in before if column.name in now.names and now.field(column.name) != column]
        if changed:
            raise StaleLedgerError(f"{self.location}: {', '.join(changed)} got another type meanwhile")

    def _check_files(self, files: Sequence[DataFile]) -> None:
        for file in files:
            size_bytes = self._store.size_bytes(file.name)
            if size_bytes != file.size_bytes:
                path = self._store.path(file.name)
                raise WarehouseError(f"{path} has {size_bytes} bytes, its task wrote {file.size_bytes}")


def _properties(transactions: Mapping[str, int], lineage: Mapping[str, Any]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={LINEAGE_KEY: json.dumps(lineage)},
        app_transactions=[Transaction(app_id, version) for app_id, version in transactions.items()],
    )


@contextmanager
def _commit_errors(location: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise StaleLedgerError(f"{location}: another load committed first: {error}") from error
    except (DeltaError, OSError) as error:
        raise WarehouseError(f"{location}: the commit may or may not be made: {error}") from error


def _is_there(store: Store) -> bool:
    return DeltaTable.is_deltatable(store.location, store.storage_options)


def _create(
    store: Store, schema: pa.Schema, name: str, configuration: Mapping[str, str], partition_by: Sequence[str]
) -> None:
    """Commit version 0, or nothing where another did: with a retry, delta-rs would create again as version 1."""
    try:
        DeltaTable.create(
            store.location,
            schema,
            mode="error",
            partition_by=list(partition_by),
            name=name,
            description=name,
            configuration={"delta.checkpointInterval": str(CHECKPOINT_INTERVAL), **configuration},
            storage_options=store.storage_options,
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        if not _is_there(store):
            raise WarehouseError(f"{store.location}: the table can't be made: {error}") from error


def _partition_text(value: Any) -> str | None:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)
