"""`millrace bench dagster`: what Dagster adds to a load, and what its sensors, definitions, checks and processes cost.

    platform      `millrace up` in a temporary folder: a run beside a bare load, cold and with a Spark that is kept
                  running; a run of many tables; the memory of the idle processes
    instance      the instance of this platform after many runs: its size, and the page of an asset
    tick          the sensors over many partitions, behind a round trip of 5 ms
    definitions   a new process that loads the definitions while no broker answers
    checks        the check of a load into a large table, beside that of an equal load into a small one

All is on loopback and in temporary folders. Seconds depend on the machine and on what else it does; a run and its bare
load take turns.
"""

from __future__ import annotations

from pathlib import Path

from millrace_benchmarks.dagster_checks import check_figures
from millrace_benchmarks.dagster_definitions import definitions_figures
from millrace_benchmarks.dagster_effort import FULL, DagsterEffort
from millrace_benchmarks.dagster_platform import platform_figures, warm_figures
from millrace_benchmarks.dagster_tick import tick_figures
from millrace_benchmarks.harness import Figure


def run(place: Path, effort: DagsterEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    loads, memory = platform_figures(place / "platform", effort)
    return [
        *loads, *tick_figures(place / "tick", effort), *definitions_figures(effort),
        *check_figures(place / "checks", effort), *memory, *warm_figures(place / "warm", effort),
    ]  # fmt: skip
