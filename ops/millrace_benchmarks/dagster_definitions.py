"""The figures of definitions: a new process that loads a project, the imports included, while no broker answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.errors import PlatformError
from millrace.ports import free_port
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.harness import Figure, Samples, beside_goal, interleave
from millrace_pipelines.project import make_project, write_definitions

TIMEOUT_S = 300.0
PROGRAM = """
import sys
from millrace_pipelines.definitions import load_project
repository = load_project(sys.argv[1]).get_repository_def()
print(sum(key.path[1] == "table" for key in repository.asset_graph.get_all_asset_keys() if len(key.path) > 1))
"""


def definitions_figures(effort: DagsterEffort) -> list[Figure]:
    """Returns the median seconds for each number of declared tables, and those of the processor."""
    return [figure for tables, goal in effort.declared for figure in _figures(tables, goal, effort.rounds)]


def _figures(tables: int, goal: float, rounds: int) -> list[Figure]:
    [seconds] = interleave(rounds, lambda: load_definitions(tables))
    return [
        beside_goal(f"definitions of {tables} tables, no broker", seconds["wall"], "s", goal),
        Figure(name="· of it on a processor", value=seconds["cpu"], unit="s"),
    ]


def load_definitions(tables: int) -> Samples:
    """Returns the seconds of a new process that loads a project with these tables.

    Raises PlatformError where it can't.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        declared = {"tables": [{"topic": f"topic-{number:03d}"} for number in range(tables)]}
        document = {"type": "millrace_pipelines.MillraceComponent", "attributes": declared}
        write_definitions(directory, "cluster/defs.yaml", json.dumps(document))
        make_project(directory)
        addresses = {
            "MILLRACE_BOOTSTRAP": f"{LOOPBACK}:{free_port()}",
            "MILLRACE_WAREHOUSE_DIR": str(Path(directory) / "warehouse"),
        }
        command = (sys.executable, "-c", PROGRAM, directory)
        started, cpu_before = time.perf_counter(), _cpu_of_children()
        done = subprocess.run(
            command, env=os.environ | addresses, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        wall, cpu = time.perf_counter() - started, _cpu_of_children() - cpu_before
    if done.returncode or done.stdout.strip() != str(tables):
        raise PlatformError(f"a project with {tables} tables became {done.stdout.strip() or 'nothing'}: {done.stderr}")
    return {"wall": wall, "cpu": cpu}


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system
