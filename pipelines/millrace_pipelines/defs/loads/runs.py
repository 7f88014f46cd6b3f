"""What other runs say about loads: which wait or run, and which have just failed.

A topic is the partition of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.tables.runs import PARTITION_TAG, UNFINISHED

LOAD_JOB = "load"
RETRY_AFTER_MS = 600_000  # a permanent failure is reported again, but not at every tick


class LoadRuns(NamedTuple):
    """Topics whose load waits or runs, and topics whose newest load failed less than RETRY_AFTER_MS ago."""

    under_way: frozenset[str]
    failed_lately: frozenset[str]


def load_runs(instance: dg.DagsterInstance, now_ms: int) -> LoadRuns:
    """Asks the instance for the loads under way and those that ended lately, with one query each."""
    since = datetime.fromtimestamp((now_ms - RETRY_AFTER_MS) / 1000, UTC)
    unfinished = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    lately = instance.get_run_records(dg.RunsFilter(updated_after=since))
    return LoadRuns(
        under_way=frozenset(topic for one in unfinished for topic in loaded_topics(one.dagster_run)),
        failed_lately=just_failed(lately, now_ms),
    )


def just_failed(newest_first: Iterable[dg.RunRecord], now_ms: int) -> frozenset[str]:
    """Returns the topics whose newest load of these failed less than RETRY_AFTER_MS ago."""
    newest: dict[str, dg.RunRecord] = {}
    for record in newest_first:
        for topic in loaded_topics(record.dagster_run):
            newest.setdefault(topic, record)
    return frozenset(
        topic
        for topic, one in newest.items()
        if one.dagster_run.status is dg.DagsterRunStatus.FAILURE
        and now_ms - 1000 * (one.end_time or 0) < RETRY_AFTER_MS
    )


def loaded_topics(run: dg.DagsterRun) -> list[str]:
    """Returns the topics that a run loads: none for a run of other assets of the same partitions."""
    loads = run.job_name == LOAD_JOB or warehouse_table.key in (run.asset_selection or ())
    return [run.tags[PARTITION_TAG]] if loads and PARTITION_TAG in run.tags else []
