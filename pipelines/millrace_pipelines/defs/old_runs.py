"""Which runs an instance forgets, and what is removed with a run: its record, events, logs and results of checks.

The snapshots of jobs and plans that no other run has go with it. The newest runs stay, and every run whose
materialization or observation is the newest of an asset or of a partition, without which the asset would look as if it
had never been loaded; so does the newest result of each check. What a table's own history says of its loads does not
depend on any of this.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import dagster as dg
import sqlalchemy

from millrace_pipelines.dagster_internals.storage import (
    AssetCheckExecutionsTable,
    RunsTable,
    SnapshotsTable,
    SqlEventLogStorage,
    SqliteEventLogStorage,
    SqlRunStorage,
)

RECORDS_AT_ONCE = 1000


def old_runs(finished: Sequence[str], needed: Collection[str], keep: int) -> list[str]:
    """Returns the runs to remove, the oldest first.

    Args:
        finished: The ids of all finished runs, the newest first.
        needed: The ids of runs that stay whatever their age.
        keep: How many of the newest stay.
    """
    return [run_id for run_id in reversed(finished[keep:]) if run_id not in needed]


def needed_runs(instance: dg.DagsterInstance) -> set[str]:
    """Returns the ids of the runs with the newest materialization or observation of an asset or of a partition."""
    return {run_id for key in instance.all_asset_keys() for run_id in _newest_of(instance, key)}


def _newest_of(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[str]:
    for kind, fetch in (
        (dg.DagsterEventType.ASSET_MATERIALIZATION, instance.fetch_materializations),
        (dg.DagsterEventType.ASSET_OBSERVATION, instance.fetch_observations),
    ):
        yield from (record.run_id for record in fetch(key, limit=1).records)
        newest = [*instance.event_log_storage.get_latest_storage_id_by_partition(key, kind).values()]
        for first in range(0, len(newest), RECORDS_AT_ONCE):
            wanted = dg.AssetRecordsFilter(key, storage_ids=newest[first : first + RECORDS_AT_ONCE])
            yield from (record.run_id for record in fetch(wanted, limit=RECORDS_AT_ONCE).records)


def remove_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Removes a run's record, its events and what its steps printed."""
    instance.delete_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    events = instance.event_log_storage
    if isinstance(events, SqliteEventLogStorage):  # each run has a file of its own, which Dagster only empties
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(events.path_for_shard(run_id) + suffix)


def forget_check_results(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """Removes the results of checks in runs that are gone, but for the newest of each check; Dagster keeps them all."""
    events, results = instance.event_log_storage, AssetCheckExecutionsTable.c
    if not isinstance(events, SqlEventLogStorage):
        return
    newest = sqlalchemy.select(sqlalchemy.func.max(results.id)).group_by(
        results.asset_key, results.check_name, results.partition
    )
    with events.index_connection() as connection:
        for first in range(0, len(run_ids), RECORDS_AT_ONCE):
            gone = results.run_id.in_(run_ids[first : first + RECORDS_AT_ONCE])
            connection.execute(AssetCheckExecutionsTable.delete().where(gone, results.id.not_in(newest)))


def forget_snapshots(instance: dg.DagsterInstance) -> int:
    """Removes the snapshots that no run has, and returns their number; Dagster keeps one for each selection ever run.

    A run that is created at this moment, of a selection that only old runs had, may be refused, and can be launched
    again.
    """
    runs, stored = instance.run_storage, SnapshotsTable.c.snapshot_id
    if not isinstance(runs, SqlRunStorage):
        return 0
    with runs.connect() as connection:
        everything = connection.scalars(sqlalchemy.select(stored)).all()
    needed = {one for run in instance.get_runs() for one in (run.job_snapshot_id, run.execution_plan_snapshot_id)}
    unneeded = [one for one in everything if one not in needed]
    of_runs = sqlalchemy.select(RunsTable.c.snapshot_id).where(RunsTable.c.snapshot_id.is_not(None))
    with runs.connect() as connection:
        for first in range(0, len(unneeded), RECORDS_AT_ONCE):
            some = unneeded[first : first + RECORDS_AT_ONCE]
            connection.execute(SnapshotsTable.delete().where(stored.in_(some), stored.not_in(of_runs)))
    return len(unneeded)
