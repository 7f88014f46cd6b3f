"""Which tables a run failed to load: a tag of the run, for another attempt, a re-execution, and the sensor of loads.

    millrace/failed_tables: ["millrace/table/flights"]      the loads are done, and this one failed

A run without the tag has not come to the end of its loads: all tables that it selected count as not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

import dagster as dg

from millrace_pipelines.defs.loads.child_process import Outcome
from millrace_pipelines.runs.failures import Failed

FAILED_TABLES = "millrace/failed_tables"
FROM_FAILURE = "dagster/is_resume_retry"
PARENT_RUN = "dagster/parent_run_id"


def noting_failures(
    context: dg.AssetExecutionContext, outcomes: Iterable[tuple[str, Outcome]]
) -> Iterator[tuple[str, Outcome]]:
    """Yields the outcomes; after the last one, it writes the keys of those that failed to the run's tag."""
    failed: list[str] = []
    for key, outcome in outcomes:
        if isinstance(outcome, Failed):
            failed.append(key)
        yield key, outcome
    context.instance.add_run_tags(context.run.run_id, {FAILED_TABLES: json.dumps(failed)})


def failed_tables(run: dg.DagsterRun) -> frozenset[dg.AssetKey] | None:
    """Returns the tables that a run failed to load; None where it has not come to the end of its loads."""
    try:
        written = json.loads(run.tags[FAILED_TABLES])
    except (KeyError, ValueError):
        return None
    return frozenset(dg.AssetKey.from_user_string(key) for key in written if isinstance(key, str))


def left_to_load(context: dg.AssetExecutionContext) -> Collection[dg.AssetKey]:
    """Returns the selected tables: at a retry, and at a re-execution from the failure, those that failed before."""
    selected = frozenset[dg.AssetKey](context.selected_asset_keys)
    run = context.instance.get_run_by_id(context.run.run_id) if context.retry_number else _resumed(context)
    failed = None if run is None else failed_tables(run)
    return selected if failed is None else selected & failed


def _resumed(context: dg.AssetExecutionContext) -> dg.DagsterRun | None:
    parent = context.run.tags.get(PARENT_RUN)
    is_resumed = parent is not None and context.run.tags.get(FROM_FAILURE) == "true"
    return context.instance.get_run_by_id(parent) if parent is not None and is_resumed else None
