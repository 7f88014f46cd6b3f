"""The figures of checks: of a load into a large table, beside an equal load into a small one.

Both tables are made by loads: one of all rows that they have before, then the one that is checked. The topics have
records of 20 B, so that ten million of them are loaded in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from millrace.clock import SystemClock
from millrace.errors import PlatformError
from millrace.fs import OsFileSystem
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.dagster_loads import bare_load, send
from millrace_benchmarks.harness import Figure, alternate
from millrace_benchmarks.load_topics import KEPT
from millrace_benchmarks.subjects import Subject, millrace
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, CheckedTable, evaluate

GOAL = 1.5
CHECK_ROUNDS = 5  # for each other round: a check takes milliseconds


def check_figures(place: Path, effort: DagsterEffort) -> list[Figure]:
    """Returns the milliseconds of the check of a load, and of all checks that follow one."""
    with millrace(place) as ours:
        small, large = (_loaded(ours, place, rows, effort.records) for rows in (effort.small_table, effort.large_table))
        kinds = (
            (f"check of a load of {effort.records:,} rows, table of {effort.large_table:,}",
             (Check.LOAD_COMPLETENESS,), GOAL),
            ("· all checks that follow the load", AFTER_EACH_LOAD, None),
        )  # fmt: skip
        return [_figure(title, checks, goal, (small, large), effort) for title, checks, goal in kinds]


def _figure(
    title: str,
    checks: Collection[Check],
    goal: float | None,
    tables: tuple[CheckedTable, CheckedTable],
    effort: DagsterEffort,
) -> Figure:
    for table in tables:
        _milliseconds(table, checks)  # the first one imports what it needs
    of_small, of_large = alternate(
        CHECK_ROUNDS * effort.rounds, *(lambda table=table: _milliseconds(table, checks) for table in tables)
    )
    return Figure(
        name=title, value=of_large, unit="ms",
        yardstick=f"table of {effort.small_table:,}", yardstick_value=of_small, at_most=goal,
    )  # fmt: skip


def _loaded(broker: Subject, directory: Path, rows: int, added: int) -> CheckedTable:
    topic = f"rows-{rows}"
    broker.create_topic(topic, config=KEPT)
    for records in (rows, added):
        send(broker.bootstrap, [topic], records)
        bare_load(broker.bootstrap, topic, directory / topic)
    return CheckedTable(location=str(directory / topic), bootstrap=broker.bootstrap)


def _milliseconds(table: CheckedTable, checks: Collection[Check]) -> float:
    started = time.perf_counter()
    results = list(evaluate(table, checks, SystemClock().now_ms(), OsFileSystem()))
    milliseconds = (time.perf_counter() - started) * 1000
    if failed := [result.description for result in results if not result.passed]:
        raise PlatformError(f"{table.location}: {failed}")
    return milliseconds
