"""Tells Prometheus' `node_exporter` of the loads of a run, in a file for each table (`warehouse.load.attempts`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from millrace.errors import SetupError
from millrace_pipelines.defs.loads.child_process import Context, Outcome
from millrace_pipelines.runs.failures import Failed
from millrace_pipelines.runs.jobs import LoadJob
from millrace_pipelines.warehouse.load.attempts import LoadAttempts


def noting_attempts(
    context: Context, directory: str, jobs: Sequence[LoadJob], outcomes: Iterable[tuple[str, Outcome]]
) -> Iterator[tuple[str, Outcome]]:
    """Yields the outcomes as they are, and adds each to its table's file; a file that can't be written is a warning."""
    by_key = {job.key: job.options for job in jobs}
    for key, outcome in outcomes:
        options = by_key[key]
        path = os.path.join(directory, f"{key.replace('/', '.')}.prom")
        try:
            LoadAttempts(options.table, options.topic).note(
                path, outcome.error if isinstance(outcome, Failed) else None
            )
        except SetupError as error:
            context.log.warning("load_metrics: %s", error)
        yield key, outcome
