"""The figures of an instance after many runs: the size of its folder, and how long the page of an asset takes.

No benchmark has the time for ten thousand loads. A load that the platform did is copied instead, straight into
Dagster's SQLite files: its record and tags, its events, the results of its checks and what it printed, each copy under
its own id. After each thousand of them the pruning runs that a platform does every hour.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dagster as dg

from millrace.errors import PlatformError
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.harness import MEGABYTE, Figure, beside_goal
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_pipelines.defs.instance import KEPT_RUNS, prune_runs

ASSET_PAGE = """
query AssetPage($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode {
    metadataEntries { label }
    assetMaterializations(limit: 100) { runId timestamp partition metadataEntries { ...Entry } }
    assetObservations(limit: 100) { runId timestamp partition metadataEntries { ...Entry } }
    assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status timestamp } } } }
  } }
}
fragment Entry on MetadataEntry {
  label description
  ... on IntMetadataEntry { intRepr }
  ... on FloatMetadataEntry { floatValue }
  ... on TextMetadataEntry { text }
  ... on TableMetadataEntry { table { records schema { columns { name type } } } }
  ... on TableSchemaMetadataEntry { schema { columns { name type } } }
}"""
SIZE_GOAL_MB = 500.0
PAGE_GOAL_S = 2.0
DISK_BLOCK_BYTES = 512  # in which `stat` counts, whatever the file system has
COPIES_AT_ONCE = 50  # in one transaction, which keeps the platform waiting
QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
RUNS, INDEX = ("runs", "run_tags"), ("event_logs", "asset_check_executions")


def instance_figures(api: DagsterApi, home: Path, run_id: str, asset: str, effort: DagsterEffort) -> list[Figure]:
    """Returns the figures after `effort.instance_runs` copies of a run of a platform.

    Args:
        api: The platform's webserver.
        home: The folder of its instance.
        run_id: A run of it that has ended.
        asset: The asset that this run loaded.
        effort: How many copies there are.
    """
    before_s = _page_seconds(api, asset, effort.rounds)
    pruning_s = 0.0
    for begun in range(0, effort.instance_runs, KEPT_RUNS):
        run_id = copy_run(home / "storage", run_id, min(KEPT_RUNS, effort.instance_runs - begun))
        pruning_s = _pruning_seconds(home)
    size = sum(path.lstat().st_blocks * DISK_BLOCK_BYTES for path in home.rglob("*") if path.is_file())
    runs = f"{effort.instance_runs:,} runs"
    return [
        beside_goal(f"instance after {runs}", size / MEGABYTE, "MB", SIZE_GOAL_MB),
        beside_goal(f"page of an asset after {runs}", _page_seconds(api, asset, effort.rounds), "s", PAGE_GOAL_S),
        Figure(name="· before them", value=before_s, unit="s"),
        Figure(name=f"pruning of the last {min(KEPT_RUNS, effort.instance_runs):,} runs", value=pruning_s, unit="s"),
    ]


def copy_run(storage: Path, run_id: str, copies: int) -> str:
    """Copies a run `copies` times, into the files of Dagster's storage; returns the id of the last copy."""
    history, copy = storage / "history", run_id
    with _database(history / "runs.db") as runs, _database(history / "runs" / "index.db") as index:
        _keep_template(runs, RUNS, run_id)
        _keep_template(index, INDEX, run_id)
        for begun in range(0, copies, COPIES_AT_ONCE):
            with runs, index:
                for _ in range(min(COPIES_AT_ONCE, copies - begun)):
                    copy = str(uuid.uuid4())
                    _copy_rows(runs, RUNS, run_id, copy)
                    _copy_rows(index, INDEX, run_id, copy)
                    _copy_files(storage, run_id, copy)
    return copy


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        yield connection


def _keep_template(connection: sqlite3.Connection, tables: tuple[str, ...], run_id: str) -> None:
    for table in tables:
        connection.execute(
            f"CREATE TEMP TABLE of_{table} AS SELECT * FROM {table} WHERE run_id = ?",  # noqa: S608
            (run_id,),
        )


def _copy_rows(connection: sqlite3.Connection, tables: tuple[str, ...], run_id: str, copy: str) -> None:
    for table in tables:
        columns = [f'"{name}"' for _, name, *_ in connection.execute(f"PRAGMA table_info({table})") if name != "id"]
        copied = (f"CASE typeof({one}) WHEN 'text' THEN replace({one}, ?1, ?2) ELSE {one} END" for one in columns)
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(copied)} FROM of_{table}",  # noqa: S608
            (run_id, copy),
        )


def _copy_files(storage: Path, run_id: str, copy: str) -> None:
    """Copies the events of a run, which are in a file of their own, and what it printed."""
    events = storage / "history" / "runs"
    with _database(events / f"{run_id}.db") as template, _database(events / f"{copy}.db") as copied:
        template.backup(copied)
        with copied:
            copied.execute("UPDATE event_logs SET run_id = ?, event = replace(event, ?, ?)", (copy, run_id, copy))
    if (storage / run_id).is_dir():
        shutil.copytree(storage / run_id, storage / copy)


def _pruning_seconds(home: Path) -> float:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        started = time.perf_counter()
        if not prune_runs.execute_in_process(run_config=QUIET, instance=instance).success:
            raise PlatformError("the pruning did not remove the old runs")
        return time.perf_counter() - started


def _page_seconds(api: DagsterApi, asset: str, rounds: int) -> float:
    """Returns the median seconds of the answer to what the page of an asset asks."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        api.query(ASSET_PAGE, {"key": {"path": [*asset.split("/")]}})
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[len(seconds) // 2]
