"""Ctrl-C, as a terminal sends it to the whole process group: one line of what was done, no traceback, status 130."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_support.waiting import until

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 240
TOPIC, RECORDS = "events", 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with a topic of some records."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        with Cluster(process.bootstrap) as cluster:
            for first in range(0, RECORDS, 1000):
                records = [NewRecord(b"%d" % number) for number in range(first, first + 1000)]
                SyncProducer(cluster).send(TOPIC, 0, records)
        yield process


def start(broker, *arguments):
    return subprocess.Popen(
        [MILLRACE, *arguments, "--bootstrap", broker.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupt(process):
    """Returns the status, stdout, and the lines of stderr of a command that is interrupted now."""
    os.killpg(process.pid, signal.SIGINT)
    output, error = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output, error.splitlines()


@pytest.mark.parametrize("moment", ["planned, starting Spark", "0 of 4 tasks, 0 records"])
def test_a_load_that_is_interrupted_says_what_was_committed(broker, tmp_path, moment):
    table = str(tmp_path / "events")
    load = ("warehouse", "load", TOPIC, "--table", table, "--master", "local[2]", "--max-records-per-task", "5000")
    with start(broker, *load) as process:
        for line in process.stderr:
            if line.rstrip() == moment:
                break
        status, output, lines = interrupt(process)
    said = [line for line in lines if line.startswith("millrace: ")]
    assert (status, output, said) == (130, "", [f"millrace: interrupted: {table}: nothing was committed"])
    assert lines[-1:] == said
    assert not [line for line in lines if "Traceback" in line or "Exception" in line or "py4j" in line]
    assert not list(Path(table).rglob("*.parquet"))
    with start(broker, *load) as process:
        output, error = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, f"{RECORDS:,} rows" in output) == (0, True), error
    assert audit(table, bootstrap=broker.bootstrap) == []


def test_produce_says_how_much_was_acknowledged(broker):
    with start(broker, "produce", "typed") as process:
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        with Cluster(broker.bootstrap) as cluster:
            until(lambda: "typed" in cluster.metadata().topics)
            until(lambda: SimpleConsumer(cluster).latest("typed", 0) == 2)
            process.stdin.write("three\n")
            process.stdin.flush()
            until(lambda: SimpleConsumer(cluster).latest("typed", 0) == 3)  # sent once the others were acknowledged
        status, output, lines = interrupt(process)
    assert (status, lines) == (130, [])
    assert output in {f"{count} record(s) acknowledged by typed\n" for count in (2, 3)}
