"""A Delta table, the one door to delta-rs.

    DIR/part-….parquet                      data files, written and synced by the tasks
    DIR/_delta_log/<20-digit version>.json  one commit: files, transactions (the ledger), lineage
    DIR/_delta_log/….checkpoint.parquet     every 20 commits

A commit is a compare-and-swap on the versions of its application transactions: the values are checked on a loaded
table, and the commit is made on that same object, so delta-rs refuses it if a later version of the table moved any
of them (Delta itself accepts an older transaction version without a word). delta-rs syncs nothing: the log's files and
folder are synced here, after the data files were, before a commit counts as made.

A crash leaves either the whole commit or none of it; data files without a commit are garbage that no reader sees.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.exceptions import TableNotFoundError as DeltaTableNotFoundError
from deltalake.transaction import AddAction

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableNotFoundError

LOG_DIRECTORY = "_delta_log"
LINEAGE_KEY = "millrace.lineage"
CHECKPOINT_INTERVAL = 20
TIMESTAMP_LIMIT_MS = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of rows; offsets are inclusive, timestamps null where no row has one."""

    name: str
    size_bytes: int
    rows: int
    min_offset: int
    max_offset: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None


class Table:
    """One version of a table; `commit` is made against exactly this version's transactions."""

    def __init__(self, directory: str, fs: FileSystem, delta: DeltaTable) -> None:
        self.directory = directory
        self._fs = fs
        self._delta = delta

    @classmethod
    def load(cls, directory: str, fs: FileSystem) -> Table:
        """The newest version; TableNotFoundError where there is none, WarehouseError where it can't be read."""
        try:
            return cls(directory, fs, DeltaTable(directory))
        except DeltaTableNotFoundError:
            raise TableNotFoundError(f"{directory}: no Delta table here") from None
        except DeltaError as error:
            raise WarehouseError(f"{directory}: not a table that can be read: {error}") from error

    @classmethod
    def load_or_create(
        cls, directory: str, fs: FileSystem, *, schema: pa.Schema, name: str, configuration: Mapping[str, str]
    ) -> Table:
        """The table, made if it is not there; where two make it at once, one of them does and both load it."""
        if not DeltaTable.is_deltatable(directory):
            fs.mkdir(directory)
            _create(directory, schema, name, configuration)
            fs.fsync_dir(os.path.dirname(os.path.abspath(directory)))
        table = cls.load(directory, fs)
        _sync_log(directory, table.version, fs)
        return table

    @property
    def version(self) -> int:
        """Number of the newest commit that this object knows."""
        return self._delta.version()

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

    def transaction_version(self, app_id: str) -> int | None:
        """The version of an application's last transaction, None before its first."""
        return self._delta.transaction_version(app_id)

    def files(self) -> list[str]:
        """Paths of the data files of this version."""
        return sorted(unquote(uri.removeprefix("file://")) for uri in self._delta.file_uris())

    def lineage(self) -> list[dict[str, Any]]:
        """What each commit said of itself, oldest first."""
        texts = [commit.get(LINEAGE_KEY) for commit in reversed(self._delta.history())]
        return [json.loads(text) for text in texts if text is not None]

    def commit(
        self,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: Mapping[str, Any],
    ) -> int:
        """Add the files and set the transactions in one commit; returns the table's new version.

        Args:
            files: Synced files inside the table's directory.
            expected: Application ids with the versions that this commit builds on.
            transactions: Application ids with their new versions.
            lineage: What this commit did, kept in the log as JSON.

        Raises:
            StaleLedgerError: A transaction is not at its expected version; nothing was committed.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the log can't be written.
        """
        self._check_expected(expected)
        self._check_files(files)
        properties = CommitProperties(
            custom_metadata={LINEAGE_KEY: json.dumps(lineage)},
            app_transactions=[Transaction(app_id, version) for app_id, version in transactions.items()],
        )
        try:
            self._delta.create_write_transaction(
                [_add_action(file, self._modified_ms(file)) for file in files],
                mode="append",
                schema=self._delta.schema(),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError as error:
            raise StaleLedgerError(f"{self.directory}: another load committed first: {error}") from error
        except DeltaError as error:
            raise WarehouseError(f"{self.directory}: the commit may or may not be made: {error}") from error
        self._delta.update_incremental()
        _sync_log(self.directory, self.version, self._fs)
        return self.version

    def _check_expected(self, expected: Mapping[str, int | None]) -> None:
        for app_id, version in expected.items():
            if (actual := self.transaction_version(app_id)) != version:
                raise StaleLedgerError(
                    f"{self.directory}: another load committed first: {app_id} is at {actual}, not at {version}"
                )

    def _check_files(self, files: Sequence[DataFile]) -> None:
        for file in files:
            path = os.path.join(self.directory, file.name)
            size_bytes = os.path.getsize(path) if os.path.exists(path) else None
            if size_bytes != file.size_bytes:
                raise WarehouseError(f"{path} has {size_bytes} bytes, its task wrote {file.size_bytes}")

    def _modified_ms(self, file: DataFile) -> int:
        return os.stat(os.path.join(self.directory, file.name)).st_mtime_ns // 1_000_000


def _sync_log(directory: str, version: int, fs: FileSystem) -> None:
    log = os.path.join(directory, LOG_DIRECTORY)
    for name in fs.listdir(log):
        if name.startswith((f"{version:020d}.", "_last_checkpoint")):
            _sync_file(os.path.join(log, name), fs)
    fs.fsync_dir(log)


def _sync_file(path: str, fs: FileSystem) -> None:
    fd = fs.open(path)
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


def _create(directory: str, schema: pa.Schema, name: str, configuration: Mapping[str, str]) -> None:
    """Commit version 0, or nothing where another did: with a retry, delta-rs would create again as version 1."""
    try:
        DeltaTable.create(
            directory,
            schema,
            mode="error",
            name=name,
            description=name,
            configuration={"delta.checkpointInterval": str(CHECKPOINT_INTERVAL), **configuration},
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except DeltaError as error:
        if not DeltaTable.is_deltatable(directory):
            raise WarehouseError(f"{directory}: the table can't be made: {error}") from error


def _add_action(file: DataFile, modified_ms: int) -> AddAction:
    stats: dict[str, Any] = {
        "numRecords": file.rows,
        "minValues": {"offset": file.min_offset},
        "maxValues": {"offset": file.max_offset},
    }
    low, high = file.min_timestamp_ms, file.max_timestamp_ms
    if low is not None and high is not None and min(low + TIMESTAMP_LIMIT_MS, TIMESTAMP_LIMIT_MS - high) > 0:
        stats["minValues"]["timestamp"] = _iso(low)
        stats["maxValues"]["timestamp"] = _iso(high)
    return AddAction(file.name, file.size_bytes, {}, modified_ms, data_change=True, stats=json.dumps(stats))


def _iso(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
