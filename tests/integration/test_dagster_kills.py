"""Runs of Dagster whose processes are killed: nothing is left of them, and the tables have each record once."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from millrace.testing.broker import BrokerProcess
from millrace_pipelines.defs import load_process
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_support.dagster_loads import DagsterLoads, changed_child

GONE_TIMEOUT_S = 120  # 10 s on a machine that is not busy
POINTS = ("tasks begin", "written", "committed", "published")
DIES = """
def act():
    os.kill({pid}, signal.SIGKILL)
"""
WAITS = """
def act():
    time.sleep(600)
"""
WORKER = """
import sys
from pathlib import Path
from millrace_pipelines.defs import load_process
from millrace_support.dagster_loads import DagsterLoads
load_process.COMMAND = (sys.executable, "-c", {code!r})
DagsterLoads({bootstrap!r}, Path({directory!r})).load("first", "second")
"""


@pytest.fixture
def loads(tmp_path, monkeypatch):
    monkeypatch.setattr(load_process, "FIRST_PAUSE_S", 0)
    with BrokerProcess(tmp_path / "broker") as broker:
        loads = DagsterLoads(broker.bootstrap, tmp_path / "warehouse")
        loads.create("first", "second")
        yield loads


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Has the process of the next load that is at the point of a round run a program."""

    def change(number, program):
        code = changed_child(tmp_path / str(number), program, point=POINTS[number % len(POINTS)])
        monkeypatch.setattr(load_process, "COMMAND", (sys.executable, "-c", code))

    return change


@pytest.fixture
def warm_python_of_loads(loads, monkeypatch, warm_programs):
    """Lets the processes of loads and Spark's workers start warm, but each JVM, which is killed, by itself."""
    for name, value in warm_programs.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def warm(warm_programs, warm_spark):
    """Lets what is started in a context, and is not killed, start warm."""

    @contextmanager
    def warm():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (warm_programs | warm_spark).items():
                patch.setenv(name, value)
            yield

    return warm


def send(loads):
    for topic in ("first", "second"):
        loads.send(topic, b"1", b"2")


def check_once(loads, records):
    """Checks that both tables have so many records, each once."""
    for table in map(loads.table, ("first", "second")):
        assert audit(table) == []
        assert read_ledger(table).next_offset(0) == records


@pytest.mark.soak(rounds=1, minutes=10)
@pytest.mark.parametrize("pid", ["os.getpid()", "SparkContext._gateway.proc.pid"], ids=["process", "JVM"])
@pytest.mark.usefixtures("warm_python_of_loads")
def test_a_killed_process_fails_one_load_which_the_next_attempt_does(loads, play, rounds, record_property, pid):
    number = 0
    for number in rounds:
        send(loads)
        play(number, DIES.format(pid=pid))
        run = loads.load("first", "second")
        assert run.success
        if number == 0:
            assert (run.attempts, run.loaded, run.without_news) == (2, ["second", "first"], ["second"])
        check_once(loads, 2 * number + 2)
    record_property("kills", number + 1)


@pytest.mark.soak(rounds=1, minutes=10)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(loads, warm, tmp_path, rounds, record_property, end):  # noqa: PLR0917
    number, slowest_s = 0, 0.0
    for number in rounds:
        send(loads)
        marker = tmp_path / str(number)
        code = changed_child(marker, WAITS, point=POINTS[(number + 1) % len(POINTS)])
        took_s = end_worker(loads, tmp_path, marker, code, end)
        slowest_s = max(slowest_s, took_s)
        if number == 0 and end == signal.SIGINT and took_s < load_process.STOP_TIMEOUT_S:
            assert list((tmp_path / "warehouse" / "first").glob("*.parquet")) == []  # it stopped by itself
        with warm():
            assert loads.load("first", "second").success
        check_once(loads, 2 * number + 2)
    record_property("runs ended", number + 1)
    record_property("seconds until nothing is left", round(slowest_s, 1))


def end_worker(loads, tmp_path, marker, code, end):
    """Starts a run's worker, ends it while it loads, and returns how many seconds its processes lived on."""
    program = WORKER.format(code=code, bootstrap=loads.bootstrap, directory=str(tmp_path / "warehouse"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as worker:
        while not marker.exists():
            assert worker.poll() is None
            time.sleep(0.1)
        child = psutil.Process(int(marker.read_text()))
        processes = [child, *child.children(recursive=True)]
        [jvm] = [one for one in processes if one.name() == "java"]
        assert not any("hush" in argument for argument in jvm.cmdline())
        began_s = time.monotonic()
        os.kill(worker.pid, end)
        assert psutil.wait_procs(processes, timeout=GONE_TIMEOUT_S)[1] == []
        took_s = time.monotonic() - began_s
        worker.wait(GONE_TIMEOUT_S)
    return took_s
