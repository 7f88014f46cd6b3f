"""What other runs say about loads: which tables wait for a load or have one, and which have just failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.defs.loads.failed_tables import failed_tables
from millrace_pipelines.defs.run_statuses import UNFINISHED

RETRY_AFTER_MS = 600_000  # a permanent failure is reported again, but not at every tick


class LoadRuns(NamedTuple):
    """Tables whose load waits or runs, and tables whose newest load failed less than RETRY_AFTER_MS ago."""

    under_way: frozenset[dg.AssetKey]
    failed_lately: frozenset[dg.AssetKey]


def load_runs(instance: dg.DagsterInstance, tables: Collection[dg.AssetKey], now_ms: int) -> LoadRuns:
    """Asks the instance for the loads under way and those that ended lately, with one query each."""
    since = datetime.fromtimestamp((now_ms - RETRY_AFTER_MS) / 1000, UTC)
    unfinished = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    lately = instance.get_run_records(dg.RunsFilter(updated_after=since))
    return LoadRuns(
        under_way=frozenset(key for one in unfinished for key in _loaded(one.dagster_run, tables)),
        failed_lately=just_failed(lately, tables, now_ms),
    )


def just_failed(
    newest_first: Iterable[dg.RunRecord], tables: Collection[dg.AssetKey], now_ms: int
) -> frozenset[dg.AssetKey]:
    """Returns the tables whose newest load of these runs failed less than RETRY_AFTER_MS ago."""
    newest: dict[dg.AssetKey, dg.RunRecord] = {}
    for record in newest_first:
        for key in _loaded(record.dagster_run, tables):
            newest.setdefault(key, record)
    return frozenset(
        key
        for key, one in newest.items()
        if _has_failed(one.dagster_run, key) and now_ms - 1000 * (one.end_time or 0) < RETRY_AFTER_MS
    )


def _loaded(run: dg.DagsterRun, tables: Collection[dg.AssetKey]) -> list[dg.AssetKey]:
    """Returns the tables that a run was to load."""
    return [key for key in run.asset_selection or () if key in tables]


def _has_failed(run: dg.DagsterRun, table: dg.AssetKey) -> bool:
    """Returns whether a run failed at this table; it may have failed at another one, or at a check."""
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    failed = failed_tables(run)
    return failed is None or table in failed
