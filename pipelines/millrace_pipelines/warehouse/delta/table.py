"""A Delta table that is written to; with `snapshot`, which reads it, the one door to delta-rs.

    …/part-….parquet                        data files, written and synced by the tasks
    _delta_log/<20-digit version>.json      one commit: files, transactions (the ledger), lineage
    _delta_log/….checkpoint.parquet         every 20 commits

A commit is a compare-and-swap on the versions of its application transactions: the values are checked on a loaded
table, and the commit is made on that same object, so delta-rs refuses it if a later version of the table moved any
of them (Delta itself accepts an older transaction version without an error). delta-rs refuses more than it must, such
as an append beside a compaction: then the commit is made again on the newest version, if that still has the expected
transactions and all files that are to be removed. Transactions that the log has lost come from their second copy
(`LedgerCopy`), and the next commit writes them again. Where files have or get deletion vectors, the same commit
is made without delta-rs (`commits`).

delta-rs syncs nothing: the log's files and folder are synced here, after the data files and before a commit counts as
made. A crash leaves either the whole commit or none of it; data files without a commit are garbage that no reader sees.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.exceptions import TableNotFoundError as DeltaTableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.delta.commits import (
    LEDGER_FILE,
    LedgerCopy,
    check_copy,
    commit_errors,
    commit_name,
    commits_after,
    keep_copy,
    put_commit,
    read_commit,
    read_copy,
    remove_torn_end,
    transactions_at,
)
from millrace_pipelines.warehouse.delta.deletion_vectors import mark_rows
from millrace_pipelines.warehouse.delta.file_actions import add_action, remove_action
from millrace_pipelines.warehouse.delta.log_actions import (
    LoggedFile,
    digests_of,
    files_of_versions,
    logged_files,
    refused_by_log,
)
from millrace_pipelines.warehouse.delta.protocol import VECTORS_PROPERTY
from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableNotFoundError, TableRefusedError
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import confirm_leases
from millrace_pipelines.warehouse.stores.refusals import one_line, refusal, refusals
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import NO_IDS, DataFile, FieldIds, MarkedFile, NamedFile
from millrace_pipelines.warehouse.table.lineage import LINEAGE_KEY, WrittenLineage, keep_lineage
from millrace_pipelines.warehouse.table.table import (
    NOT_PARTITIONED,
    NOTHING_MARKED,
    Commit,
    MarkRows,
    check_expected,
    count_rewrites,
)

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 20
COMMIT_ATTEMPTS = 10
HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)


class Table(Snapshot):
    """A version of a table, the newest when it was loaded, on which commits are made."""

    def __init__(self, store: Store, fs: FileSystem, delta: DeltaTable, clock: Clock, copy: LedgerCopy | None) -> None:
        super().__init__(store, fs, delta)
        self._clock = clock
        self._copy = copy
        self._lost: tuple[int, dict[str, int]] = -1, {}

    @classmethod
    def load(cls, location: str, fs: FileSystem, clock: Clock = CLOCK) -> Table:
        """Loads the newest version.

        Raises:
            TableNotFoundError: There is no table.
            TableRefusedError: It uses something of Delta's protocol with which it can't be read.
            WarehouseError: It can't be read.
        """
        store = store_at(location, fs)
        copy = read_copy(store)  # before the log, so that it is never ahead of it
        try:
            delta = DeltaTable(store.location, storage_options=store.storage_options)
        except DeltaTableNotFoundError:
            raise TableNotFoundError(f"{location}: no Delta table here") from None
        except (DeltaError, OSError) as error:
            if (denied := refusal(store.location, str(error))) is not None:
                raise denied from error
            if (refused := refused_by_log(store)) is not None:
                raise TableRefusedError(refused) from error
            raise WarehouseError(f"{location}: not a table that can be read: {one_line(str(error))}") from error
        table = cls(store, fs, delta, clock, copy)
        table.check_access(Access.READ)
        return table

    @classmethod
    def load_or_create(
        cls,
        location: str,
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
        """Loads a table as `load_to_write` does for `access`, and creates it where there is none.

        Where two processes create it at the same time, one of them does and both load it.
        """
        store = store_at(location, fs)
        if not _is_there(store):
            store.make()
            store.remove_durably([LEDGER_FILE])  # of a table that was here before
            properties = {**configuration, VECTORS_PROPERTY: "true"} if deletion_vectors else configuration
            _create(store, schema, name, properties, partition_by)
            store.sync_made()
        return cls.load_to_write(location, fs, clock, access=access)

    @classmethod
    def load_to_write(
        cls, location: str, fs: FileSystem, clock: Clock = CLOCK, *, access: Access = Access.APPEND
    ) -> Table:
        """Loads the newest version, as `load` does, for a commit to build on, and syncs its log to the disk.

        A torn end of the log is removed: it is what a power cut left of a commit that nobody was told of.

        Raises:
            TableRefusedError: The table uses something of Delta's protocol that the access can't obey.
            LedgerError: Its ledger and its rows don't belong together.
        """
        store = store_at(location, fs)
        try:
            table = cls.load(location, fs, clock)
        except (TableNotFoundError, TableRefusedError):
            raise
        except WarehouseError:
            if not store.is_local or not remove_torn_end(store.location, fs):
                raise
            table = cls.load(location, fs, clock)
        table.check_access(access)
        table.check_ledger_copy()
        store.sync_commit(table.version)
        return table

    @property
    def field_ids(self) -> FieldIds:
        """Returns none: Delta's columns are known by their names."""
        return NO_IDS

    @property
    def marker(self) -> str:
        """Returns the name of this version's commit in the log."""
        return commit_name(self.version)

    def widens(self, columns: pa.Schema) -> bool:  # noqa: ARG002  # no columns can be widened
        """Returns False: few readers know Delta's table feature for widened columns, so that files are rewritten."""
        return False

    def ids_for(self, columns: pa.Schema) -> FieldIds:  # noqa: ARG002  # names are enough
        """Returns none, as `field_ids` does."""
        return NO_IDS

    @property
    def row_marker(self) -> MarkRows | None:
        """Returns what deletes rows of a file by a vector; None where the table does not ask for vectors."""
        return mark_rows if self.takes_vectors else None

    def digests(self) -> dict[str, str]:
        """Returns the CRC-32C, as text, of this version's files by name, where the log has one."""
        return digests_of(self)

    def commit_of(self, version: int) -> Commit | None:
        """Returns the commit that made a version; None where the log has its file no longer."""
        return read_commit(self, version)

    def commits_after(self, version: int, limit: int) -> list[Commit]:
        """Returns the commits after a version up to this one, oldest first, at most `limit`, that the log has."""
        return commits_after(self, version, limit)

    def files_of_versions(self, since_ms: int) -> set[str]:
        """Returns the names of files that versions since a time need, without the data files of this version."""
        return files_of_versions(self, since_ms)

    def transaction_version(self, app_id: str) -> int | None:
        """Returns the version of an application id's last transaction; None where there was none.

        Raises:
            LedgerError: The log has lost the transaction, and the ledger's second copy does not tell its version.
        """
        version = self.transaction_in_log(app_id)
        return self._lost_transactions().get(app_id) if version is None else version

    def check_ledger_copy(self) -> None:
        """Raises LedgerError where the ledger's second copy shows that rows and ledger don't belong together."""
        if self._copy is not None:
            check_copy(self._copy, self, self._store)

    def _lost_transactions(self) -> dict[str, int]:
        """Returns the transactions, with versions, that the ledger's second copy has and the log has lost."""
        if self._lost[0] != self.version:
            said = {} if self._copy is None else transactions_at(self._copy, self)
            missing = {app_id: version for app_id, version in said.items() if self.transaction_in_log(app_id) is None}
            self._lost = self.version, missing
        return self._lost[1]

    def _properties(
        self, transactions: Mapping[str, int], lineage: WrittenLineage, *, removes: bool = False
    ) -> CommitProperties:
        """Returns a commit's transactions and lineage; with `removes`, delta-rs may not move it to a later version.

        On a later version delta-rs would remove a file that another engine has compacted or purged meanwhile, so that
        its rows were there twice. Nor may it in a bucket, where the later version may be the fence of those who took
        the commit's operation for dead (`stores.timed_leases`).
        """
        set_now = self._lost_transactions() | dict(transactions)
        now_ms = self._clock.now_ms()
        return CommitProperties(
            custom_metadata={LINEAGE_KEY: json.dumps(lineage)},
            app_transactions=[Transaction(app_id, version, now_ms) for app_id, version in set_now.items()],
            max_commit_retries=None if self._store.is_local and not removes else 0,
        )

    def create_checkpoint(self) -> None:
        """Writes a checkpoint of this version, one synced file from which readers start."""
        self.check_access(Access.REARRANGE)
        self._delta.create_checkpoint()
        self._store.sync_commit(self.version)

    def sync_log(self) -> None:
        """Syncs the commits since the last checkpoint, those of other processes, too."""
        for version in range(self.checkpoint_version() or 0, self.version + 1):
            self._store.sync_commit(version)

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
            files: Synced files below the table's folder.
            expected: Application ids with the versions that this commit builds on.
            transactions: Application ids with their new versions.
            lineage: What this commit did, kept in the log as JSON.
            removed: Files of this version that the table has no longer, or has with other rows deleted.
            marked: By name, those among them that the table has again, with a deletion vector.
            data_change: False where the added files hold the rows of the removed ones, as after a compaction.

        Raises:
            StaleLedgerError: A transaction is not at its expected version, a file to remove is gone, or a column has
                another type now than the files were written for; nothing was committed.
            TableRefusedError: The table, perhaps by a commit that came between, uses something of Delta's protocol that
                this can't obey; nothing was committed.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the log can't be written.
        """
        self._check_files(files)
        access = Access.APPEND if not removed else Access.REMOVE if data_change else Access.REARRANGE
        if removed:
            counted, counts = count_rewrites(self)
            expected, transactions = {**expected, **counted}, {**transactions, **counts}
        now_ms, columns, logged = self._clock.now_ms(), self.schema, self._with_vectors(removed, marked)
        actions: list[AddAction | RemoveAction] = [
            *(remove_action(file, now_ms, data_change=data_change) for file in removed),
            *(add_action(file, now_ms, data_change=data_change) for file in files),
        ]

        def write() -> None:
            properties = self._properties(transactions, lineage, removes=bool(removed))
            self._write_commit(actions, logged, marked, properties)

        for _ in range(COMMIT_ATTEMPTS):
            self.check_access(access)
            check_expected(self, expected)
            self._check_removed(removed)
            try:
                return self._committed(write)
            except StaleLedgerError:
                self._delta.update_incremental()
                if files and files[0].name in self.file_names():
                    return self.version
                self._check_columns(columns)
                self._check_removed(removed)
                self._check_vectors(removed, marked, logged)
        raise StaleLedgerError(f"{self.location}: others commit all the time; nothing of this load was committed")

    def _write_commit(
        self,
        actions: list[AddAction | RemoveAction],
        logged: Mapping[str, LoggedFile],
        marked: Mapping[str, MarkedFile],
        properties: CommitProperties,
    ) -> None:
        """Writes a commit by delta-rs; by `put_commit`, with the checkpoints, where files have or get vectors."""
        if logged:
            time_ms, partition_by = self._clock.now_ms(), self.partition_columns
            put_commit(
                self._store, self.version + 1, actions,
                logged=logged, marked=marked, partition_by=partition_by, properties=properties, time_ms=time_ms,
            )  # fmt: skip
            self._delta.update_incremental()
            if self.version % CHECKPOINT_INTERVAL == 0:
                self._delta.create_checkpoint()
            return
        self._delta.create_write_transaction(
            actions,
            mode="append",
            schema=self._delta.schema(),
            partition_by=self.partition_columns,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )

    def fence(self) -> int:
        """Makes an empty commit, so that none can be made any more that was written for this version or before it."""
        return self.commit([], expected={}, transactions={}, lineage={"kind": "fence"})

    def configure(
        self,
        properties: Mapping[str, str],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
    ) -> int:
        """Sets table properties and transactions in one commit; raises StaleLedgerError where another came first."""
        self.check_access(Access.APPEND)
        check_expected(self, expected)

        def write() -> None:
            self._delta.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,
                commit_properties=self._properties(transactions, lineage),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

    def add_columns(self, columns: pa.Schema, *, lineage: WrittenLineage) -> int:
        """Adds columns, or fields inside of structs, in one commit.

        Raises StaleLedgerError where another came first.
        """
        self.check_access(Access.APPEND)

        def write() -> None:
            self._delta.alter.add_columns(
                Schema.from_arrow(columns).fields,
                commit_properties=self._properties({}, lineage),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

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
        self.check_access(Access.REMOVE)
        check_expected(self, expected)
        now_ms = self._clock.now_ms()
        _, counts = count_rewrites(self)
        transactions = counts | {app_id: version for app_id, version in expected.items() if version is not None}

        def write() -> None:
            self._delta.create_write_transaction(
                [add_action(file, now_ms) for file in files],
                mode="overwrite",
                schema=schema,
                partition_by=self.partition_columns,
                commit_properties=self._properties(transactions, lineage, removes=True),
                post_commithook_properties=HOOKS,
            )

        return self._committed(write)

    def _committed(self, write: Callable[[], None]) -> int:
        before = self.version
        confirm_leases()
        with commit_errors(self.location):
            write()
        self._delta.update_incremental()
        for version in range(before + 1, self.version + 1):
            self._store.sync_commit(version)
        self._keep_ledger_copy()
        return self.version

    def _keep_ledger_copy(self) -> None:
        """Writes the commits' lineage and the ledger's second copy to files; a failure is only logged."""
        try:
            since = self._copy.version + 1 if self._copy is not None and self._copy.table_id == self.id else 0
            commits = (read_commit(self, version) for version in range(since, self.version + 1))
            lineage = {commit.version: commit.lineage for commit in commits if commit is not None and commit.lineage}
            keep_lineage(self._store, self.id, lineage)
            keep_copy(self, self._store)
        except (OSError, WarehouseError) as error:
            logger.warning("%s: the second copy of the ledger stays behind: %s", self.location, error)
        self._copy = read_copy(self._store) or self._copy

    def _check_removed(self, removed: Sequence[NamedFile]) -> None:
        if removed and (gone := {file.name for file in removed} - set(self.file_names())):
            raise StaleLedgerError(f"{self.location}: {', '.join(sorted(gone))} is not in the table any more")

    def _with_vectors(self, removed: Sequence[NamedFile], marked: Mapping[str, MarkedFile]) -> Mapping[str, LoggedFile]:
        """Returns what the log has of files to remove, by name; empty where none of them has, or gets, a vector."""
        names = {file.name for file in removed}
        return logged_files(self, names) if marked or names & self.kept_rows().keys() else {}

    def _check_vectors(
        self, removed: Sequence[NamedFile], marked: Mapping[str, MarkedFile], before: Mapping[str, LoggedFile]
    ) -> None:
        if self._with_vectors(removed, marked) != before:
            raise StaleLedgerError(f"{self.location}: another engine deleted rows of files that this replaces")

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


def _is_there(store: Store) -> bool:
    with refusals(store.location):
        return DeltaTable.is_deltatable(store.location, store.storage_options)


def _create(
    store: Store, schema: pa.Schema, name: str, configuration: Mapping[str, str], partition_by: Iterable[str]
) -> None:
    """Commits version 0; does nothing where another process has. A retry by delta-rs would add the version 1."""
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
        if (denied := refusal(store.location, str(error))) is not None:
            raise denied from error
        if not _is_there(store):
            raise WarehouseError(f"{store.location}: the table can't be made: {one_line(str(error))}") from error
