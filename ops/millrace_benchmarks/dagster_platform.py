"""The figures of a whole platform: a run beside a bare load, a run of many tables, and the memory of its processes.

The topics are there before Dagster asks for them, so that no sensor has the definitions loaded again meanwhile. Runs
are launched by GraphQL, as a click in the UI launches them, with all checks of their tables. Dagster's queue looks
every second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from millrace.addresses import LOOPBACK
from millrace.clock import SystemClock
from millrace.errors import PlatformError
from millrace.ports import free_port
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.dagster_instance import instance_figures
from millrace_benchmarks.dagster_loads import MASTER, bare_load, create_topics, send
from millrace_benchmarks.harness import GIGABYTE, Figure, alternate, beside_goal
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.health import broker_problem
from millrace_ops.supervisor.supervised import Service
from millrace_ops.supervisor.supervisor import Supervisor
from millrace_pipelines.project import make_project, write_definitions

ONE = "one"
TABLES = "millrace/table"
OVER_BARE_GOALS_S = {"cold": 6.0, "warm": 2.0}
MANY_GOAL_S = 90.0
MEMORY_GOAL_GB = 0.9
WARM_MEMORY_GOAL_GB = 1.8
STOP_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 900.0
QUERY_TIMEOUT_S = 300.0
POLL_INTERVAL_S = 0.2
POLL_INTERVAL_OF_MANY_S = 1.0  # the answer has the metadata of all tables
CONNECT_PORT = "spark.connect.grpc.binding.port="
SPARK, SPARK_LAUNCHER = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"


class RunningPlatform(NamedTuple):
    """A platform that is up."""

    directory: Path
    bootstrap: str
    api: DagsterApi
    process: psutil.Process
    supervisor: Supervisor

    @property
    def processes(self) -> list[psutil.Process]:
        """All of its processes, `millrace up` itself included."""
        return [self.process, *self.process.children(recursive=True)]


class Ran(NamedTuple):
    """What a run took, what it loaded, and the number of its Spark sessions."""

    run_id: str
    seconds: float
    rows: int
    sessions: int


def platform_figures(place: Path, effort: DagsterEffort) -> tuple[list[Figure], list[Figure]]:
    """Returns the figures of the loads, and those of the memory."""
    many = [f"many-{number:03d}" for number in range(effort.many_tables)]
    with platform(place, [ONE, *many]) as running:
        _wait_idle(running, effort.idle_s)
        idle_gb = memory_gigabytes(running)
        one, run_id = _one_table(running, effort)
        loads = [*one, *_many_tables(running, many, effort)]
        memory = [
            beside_goal("memory of the idle platform, all processes", idle_gb, "GB", MEMORY_GOAL_GB),
            Figure(name="· after the runs", value=memory_gigabytes(running), unit="GB"),
        ]
        home = running.directory / "dagster"
        return loads, [*memory, *instance_figures(running.api, home, run_id, f"{TABLES}/{ONE}", effort)]


def warm_figures(place: Path, effort: DagsterEffort) -> list[Figure]:
    """Returns the figures of a platform that keeps a Spark running: a run beside a bare load of it, and its memory."""
    with platform(place, [ONE], "--warm") as running:
        _wait_idle(running, effort.idle_s)
        idle_gb = memory_gigabytes(running)
        loads, _ = _one_table(running, effort, _warm_master(running))
        return [*loads, beside_goal("memory of the idle platform with warm Spark", idle_gb, "GB", WARM_MEMORY_GOAL_GB)]


@contextmanager
def platform(directory: Path, topics: Sequence[str], *options: str) -> Iterator[RunningPlatform]:
    """Yields a platform that loads each of the topics into a table, and stops it at the end.

    `options` are further ones of `millrace up`.
    """
    state = directory / "state"
    state.mkdir(parents=True)
    tables = {
        "undeclared_topics": "ignore",
        "load_new_records": False,
        "tables": [{"topic": topic} for topic in topics],
    }
    declared = {"type": "millrace_pipelines.MillraceComponent", "attributes": tables}
    write_definitions(str(state), "cluster/defs.yaml", json.dumps(declared))
    make_project(str(state))
    ports = free_port(), free_port(), free_port()
    broker, admin, ui = (f"{LOOPBACK}:{port}" for port in ports)
    places = ("--dir", str(state), "--listen", broker, "--admin", admin, "--dagster-port", str(ports[2]))
    command = (sys.executable, "-m", "millrace_ops", "up", *places, "--master", MASTER, *options)
    api = DagsterApi(f"http://{ui}", timeout_s=QUERY_TIMEOUT_S)
    with Supervisor(str(directory / "logs"), SystemClock()) as supervisor:
        [child] = supervisor.start(
            Service(name="platform", command=command, stop_timeout_s=STOP_TIMEOUT_S,
                    is_ready=lambda _: not broker_problem(f"http://{admin}", token=""))
        )  # fmt: skip
        create_topics(broker, topics)
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not api.is_ready():
            _pause(supervisor, deadline, "the platform is not ready", POLL_INTERVAL_S)
        yield RunningPlatform(state, broker, api, psutil.Process(child.pid), supervisor)


def memory_gigabytes(running: RunningPlatform) -> float:
    """Returns the memory of all processes; what several share is counted once (PSS)."""
    total = 0
    for process in running.processes:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / GIGABYTE


def _one_table(running: RunningPlatform, effort: DagsterEffort, master: str = MASTER) -> tuple[list[Figure], str]:
    """Returns the figures of a run, and the id of the last; the bare load beside it takes the Spark of `master`."""
    kind = "cold" if master == MASTER else "warm"
    bare_table = running.directory.parent / "bare"
    runs: list[Ran] = []

    def run() -> float:
        runs.append(_load(running, effort))
        return runs[-1].seconds

    in_run, bare = alternate(
        effort.rounds,
        run,
        lambda: bare_load(running.bootstrap, ONE, bare_table, master),
    )
    return [
        beside_goal(f"run of one table, {kind}, less a bare load", in_run - bare, "s", OVER_BARE_GOALS_S[kind]),
        Figure(
            name=f"· the run, {effort.records:,} records", value=in_run, unit="s",
            yardstick="a bare load", yardstick_value=bare,
        ),
    ], runs[-1].run_id  # fmt: skip


def _load(running: RunningPlatform, effort: DagsterEffort) -> Ran:
    """Sends new records to the topic ONE, and runs the load of its table."""
    send(running.bootstrap, [ONE], effort.records)
    ran = _run(running, [ONE], POLL_INTERVAL_S)
    _expect(ran.rows, effort.records)
    return ran


def _many_tables(running: RunningPlatform, topics: Sequence[str], effort: DagsterEffort) -> list[Figure]:
    send(running.bootstrap, topics, effort.many_records)
    ran = _run(running, topics, POLL_INTERVAL_OF_MANY_S)
    _expect(ran.rows, effort.many_tables * effort.many_records)
    title = f"run of {effort.many_tables} tables, {effort.many_records:,} records each"
    return [
        beside_goal(title, ran.seconds, "s", MANY_GOAL_S),
        beside_goal("· its Spark sessions", ran.sessions, "", 1),
    ]


def _run(running: RunningPlatform, topics: Sequence[str], interval_s: float) -> Ran:
    """Runs the loads of tables; raises PlatformError where that does not succeed."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    sessions: set[int] = set()
    started = time.perf_counter()
    run_id = running.api.launch([f"{TABLES}/{topic}" for topic in topics])
    while not (run := running.api.run(run_id)).is_finished:
        sessions |= spark_sessions(running)
        _pause(running.supervisor, deadline, f"the run is still {run.status.lower()}", interval_s)
    seconds = time.perf_counter() - started
    if run.status != "SUCCESS":
        raise PlatformError(f"the run ended with {run.status.lower()}: {run.failure}")
    return Ran(run_id, seconds, int(sum(figures["rows"] for figures in run.figures.values())), len(sessions))


def spark_sessions(running: RunningPlatform) -> set[int]:
    """Returns the process ids of the JVMs of Spark; one belongs to each session that is open.

    A child that a JVM has forked looks like that JVM until it runs another program, so it is not counted.
    """
    parents = {}
    for process in running.processes:
        with suppress(psutil.NoSuchProcess):
            command = process.cmdline()
            if SPARK in command and SPARK_LAUNCHER not in command and process.name() == "java":
                parents[process.pid] = process.ppid()
    return {pid for pid, parent in parents.items() if parent not in parents}


def _warm_master(running: RunningPlatform) -> str:
    """Returns the address of the Spark that the platform keeps running."""
    for process in running.processes:
        with suppress(psutil.NoSuchProcess):
            for argument in process.cmdline():
                if argument.startswith(CONNECT_PORT):
                    return f"sc://{LOOPBACK}:{argument.removeprefix(CONNECT_PORT)}"
    raise PlatformError("the platform keeps no Spark running")


def _expect(rows: int, expected: int) -> None:
    if rows != expected:
        raise PlatformError(f"the run loaded {rows} rows instead of {expected}")


def _wait_idle(running: RunningPlatform, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        running.supervisor.check()
        time.sleep(POLL_INTERVAL_S)


def _pause(supervisor: Supervisor, deadline: float, problem: str, interval_s: float) -> None:
    """Waits; raises PlatformError after the deadline, and what the supervisor raises, KeyboardInterrupt too."""
    supervisor.check()
    if time.monotonic() > deadline:
        raise PlatformError(f"{problem} after {RUN_TIMEOUT_S:g} s")
    time.sleep(interval_s)
