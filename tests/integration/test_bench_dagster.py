"""The benchmark of Dagster in its shortest form: every figure is measured, and is of what its name says."""

import socket
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from millrace.addresses import LOOPBACK, Address
from millrace.ports import free_port
from millrace_benchmarks import dagster_checks, dagster_platform
from millrace_benchmarks.dagster_checks import check_figures
from millrace_benchmarks.dagster_definitions import definitions_figures
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.dagster_loads import bare_load
from millrace_benchmarks.dagster_platform import platform_figures
from millrace_benchmarks.dagster_tick import tick_figures
from millrace_benchmarks.delay import delayed

SHORTEST = DagsterEffort(
    rounds=1,
    records=20,
    many_tables=2,
    many_records=10,
    instance_runs=3,
    idle_s=0.0,
    tick_topics=3,
    tick_partitions=2,
    declared=((2, 2.0),),
    small_table=30,
    large_table=40,
)
DELAY_S = 0.1


def names_and_values(figures):
    return {figure.name: figure.value for figure in figures}


@pytest.fixture
def warm_bare_load(monkeypatch, warm_programs, warm_spark):
    """Lets the bare load start warm; the platform, whose processes are measured, starts by itself."""

    def load(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (warm_programs | warm_spark).items():
                patch.setenv(name, value)
            return bare_load(*arguments)

    monkeypatch.setattr(dagster_platform, "bare_load", load)


def test_a_platform_is_measured_and_leaves_no_process(warm_bare_load, tmp_path):
    before = set(psutil.Process().children(recursive=True))
    loads, memory = map(names_and_values, platform_figures(tmp_path, SHORTEST))
    assert set(loads) == {
        "run of one table, cold, less a bare load",
        "· the run, 20 records",
        "run of 2 tables, 10 records each",
        "· its Spark sessions",
    }
    assert loads["· its Spark sessions"] == 1
    assert set(memory) == {
        "memory of the idle platform, all processes",
        "· after the runs",
        "instance after 3 runs",
        "page of an asset after 3 runs",
        "· before them",
        "pruning of the last 3 runs",
    }
    assert all(value > 0 for value in memory.values())
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_jvm_s_child_that_is_no_other_program_yet_is_no_session():
    def process(pid, parent, *command):
        return SimpleNamespace(pid=pid, ppid=lambda: parent, name=lambda: "java", cmdline=lambda: ["java", *command])

    jvm = [process(pid, parent, dagster_platform.SPARK) for pid, parent in ((20, 10), (21, 20), (30, 10))]
    launcher = process(40, 10, dagster_platform.SPARK_LAUNCHER, dagster_platform.SPARK)
    assert dagster_platform.spark_sessions(SimpleNamespace(processes=[*jvm, launcher])) == {20, 30}


def test_ticks_and_definitions_are_measured(tmp_path):
    assert len(tick_figures(tmp_path, SHORTEST)) == 3
    wall, cpu = definitions_figures(SHORTEST)
    assert wall.name == "definitions of 2 tables, no broker"
    assert wall.value > 0
    assert cpu.value > 0


@pytest.fixture
def warm(monkeypatch, warm_programs, warm_spark):
    """Lets the loads of a test start warm; not for tests of a platform, which measure the memory of its processes."""
    for name, value in (warm_programs | warm_spark).items():
        monkeypatch.setenv(name, value)


def test_checks_of_loads_are_measured(warm, tmp_path, monkeypatch):
    """The second figure is of more checks than the first; times are not compared, which vary on a busy machine."""
    evaluated, evaluate = [], dagster_checks.evaluate

    def noting(table, checks, *others):
        evaluated.append(frozenset(checks))
        return evaluate(table, checks, *others)

    monkeypatch.setattr(dagster_checks, "evaluate", noting)
    figures = [one, _] = check_figures(tmp_path, SHORTEST)
    assert one.name == "check of a load of 20 rows, table of 40"
    assert all(figure.value > 0 for figure in figures)
    of_one, of_all = dict.fromkeys(evaluated)
    assert of_one < of_all
    assert evaluated.count(of_one) == evaluated.count(of_all) > 0


def test_the_proxy_delays_each_direction_passes_all_bytes_on_and_the_end():
    sent = bytes(range(256)) * 2000
    with socket.create_server((LOOPBACK, 0)) as server:

        def echo():
            connection, _ = server.accept()
            with connection:
                connection.sendall(received(connection))

        thread = threading.Thread(target=echo)
        thread.start()
        address = Address(LOOPBACK, free_port())
        with (
            delayed(address.port, Address(*server.getsockname()), 2 * DELAY_S),
            socket.create_connection(address, 60) as client,
        ):
            begun = time.monotonic()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert received(client) == sent
            assert time.monotonic() - begun >= 2 * DELAY_S
        thread.join(60)
    with pytest.raises(OSError):
        socket.create_connection(address, 1)


def received(connection):
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
