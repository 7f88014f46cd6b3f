"""What the storage in SQLite, and the job that forgets old runs, use of Dagster beside its public interface."""

from __future__ import annotations

from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, SnapshotsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData

__all__ = [
    "INDEX_SHARD_NAME",
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "AssetCheckExecutionsTable",
    "ConfigurableClassData",
    "DagsterSqliteStorage",
    "RunsTable",
    "SnapshotsTable",
    "SqlEventLogStorage",
    "SqlRunStorage",
    "SqliteEventLogStorage",
]
