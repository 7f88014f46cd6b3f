"""Dagster's storage in SQLite, with connections that stay open.

Dagster opens the database of a run for each event, and closes it again, which costs more than the event. A run of many
tables has thousands of events, so that here a process keeps the connection to the index of all runs, and those to the
runs that it used last. The files are the same, and a process with Dagster's own storage may use them at the same time.

A commit reaches the disk at the next checkpoint of SQLite, not at once: a power cut may lose the last events of a run,
which Dagster's monitor then ends or starts again. What a load did is in the table itself.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from sqlite3 import Connection as SqliteConnection
from typing import Any, Self

from dagster import EventLogEntry
from sqlalchemy import Connection, Engine, StaticPool, create_engine
from sqlalchemy.event import listens_for

from millrace_pipelines.dagster_internals.storage import (
    INDEX_SHARD_NAME,
    SQLITE_BUSY_TIMEOUT_SECONDS,
    ConfigurableClassData,
    DagsterSqliteStorage,
    SqliteEventLogStorage,
)

OPEN_SHARDS = 8  # the index, and the runs that were used last


class SqliteEventLog(SqliteEventLogStorage):
    """Dagster's event log in SQLite: each run's events in their own file, those of assets and checks in an index, too.

    Args:
        base_dir: The folder of the SQLite files.
    """

    def __init__(self, base_dir: str) -> None:
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        super().__init__(base_dir)

    def store_event(self, event: EventLogEntry) -> None:
        """Stores an event, and touches the file of its run, by whose changes Dagster's pages follow the run."""
        super().store_event(event)
        os.utime(self.path_for_shard(event.run_id))  # SQLite has written to its write-ahead log only

    def dispose(self) -> None:
        """Closes all connections."""
        super().dispose()
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        """Yields a connection to the file `shard`, a run's or the index, to one thread at a time, and commits."""
        if shard not in self._initialized_dbs:
            with super()._connect(shard):
                pass  # which creates the tables
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def _engine(self, shard: str) -> Engine:
        if shard not in self._engines:
            self._engines[shard] = _engine_at(self.conn_string_for_shard(shard))
        self._engines.move_to_end(shard)
        if INDEX_SHARD_NAME in self._engines:
            self._engines.move_to_end(INDEX_SHARD_NAME)
        while len(self._engines) > OPEN_SHARDS:
            self._engines.popitem(last=False)[1].dispose()
        return self._engines[shard]


def _engine_at(url: str) -> Engine:
    connect_args = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    engine = create_engine(url, poolclass=StaticPool, connect_args=connect_args)

    @listens_for(engine, "connect")
    def leave_syncing_to_checkpoints(connection: SqliteConnection, _record: object) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    return engine


class SqliteStorage(DagsterSqliteStorage):
    """Dagster's own SQLite storage of an instance, with `SqliteEventLog` for events."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = SqliteEventLog(os.path.join(base_dir, "history", "runs"))

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Returns the storage in the folder that `dagster.yaml` names."""
        return cls.from_local(config_value["base_dir"], inst_data)
