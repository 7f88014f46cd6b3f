"""The demo at other addresses: a secured Kafka 4.1, a Spark cluster whose workers share the store alone, MinIO.

Dagster starts runs by its own launcher. A worker is killed while it loads, and the process of a run while its load is
under way; what Dagster's log says of both, and what the table has in the end, is compared.
"""

import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from millrace_benchmarks.kafka_broker import find_kafka
from millrace_ops.demo.flights import read_flights
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_support.commands_below import commands_below
from millrace_support.secured_kafka import SecuredKafka
from millrace_support.spark import SparkCluster
from millrace_support.spark_machines import ENVIRONMENT, Machine
from millrace_support.stores.stand_ins import missing, started
from millrace_support.waiting import awaited, until

STORE = "s3 (MinIO)"
JARS = sorted((Path(__file__).parents[2] / ".peers" / "spark-s3" / "libs").glob("*.jar"))
LOAD = "millrace_pipelines.runs.child"
LOST = (
    r"millrace/table/flights: Spark has lost executor \d+ on 127\.0\.0\.2 \(.+\); what it was doing is done again on "
)
KILLED = r"Run execution process for \S+ was terminated by signal 9 \(SIGKILL\)\."

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not JARS, reason="`make peers` brings Spark's client of S3, which is not here"),
]


@pytest.fixture
def store(monkeypatch):
    """The address of MinIO, whose endpoint and keys are variables of this process, and so of what it starts."""
    if (reason := missing(STORE)) is not None:
        pytest.skip(reason)
    with started(STORE) as running:
        for name, value in variables(running).items():
            monkeypatch.setenv(name, value)
        yield running


def variables(store):
    return {name.upper(): value for name, value in store.options.items()}


@pytest.fixture
def kafka(tmp_path_factory):
    with SecuredKafka(find_kafka("4.1"), tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def cluster(tmp_path, packed_python, store):
    _, unpacked = packed_python
    machines = [
        Machine(tmp_path / f"machine-{one}", one, mounts={ENVIRONMENT: unpacked}, environment=variables(store))
        for one in (0, 1)
    ]
    with SparkCluster(tmp_path / "cluster", machines=machines) as running:
        yield running


def has_task(worker):
    """Returns whether a worker's executor has a Python that does a task: one beside the daemon that forks them."""
    return sum("pyspark.daemon" in command for command in commands_below(worker.pid).values()) > 1


class Demo:
    """The demo as a process."""

    def __init__(self, folder, *options):
        self.folder = folder / "demo"
        self._log = folder / "demo.log"
        command = [sys.executable, "-m", "millrace_ops", "demo", "--dir", str(self.folder), *options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def said(self):
        return self._log.read_text(errors="replace")

    def load(self, *others):
        """Returns the process of a load under way that is none of the others."""

        def look():
            assert self._process.poll() is None, self.said
            found = [one for one, command in commands_below(self._process.pid).items() if LOAD in command]
            return next((one for one in found if one not in others and LOAD not in parent_s_command(one)), None)

        return awaited(look, "a load")

    def await_task(self, *workers):
        until(lambda: any(map(has_task, workers)) or self._process.poll() is not None)
        assert self._process.poll() is None, self.said

    def status(self):
        return self._process.wait(1200)

    def end(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)


def parent_s_command(process):
    parent = process.parent()
    return "" if parent is None else " ".join(parent.cmdline())


@pytest.fixture
def demo(tmp_path, kafka, store, cluster):
    sent = f"send:{kafka.file(kafka.passwords('SCRAM-SHA-512'))}"
    settings = {
        "spark.executor.memory": "512m",
        "spark.pyspark.python": f"{ENVIRONMENT}/bin/python",
        "spark.jars": ",".join(map(str, JARS)),
    }
    options = ["--bootstrap", kafka.address("PASSWORDS"), "--client-config", sent, "--master", cluster.master]
    options += ["--warehouse", f"{store.address}/lake"]
    started = Demo(tmp_path, *options, *(f"--conf={name}={value}" for name, value in settings.items()))
    yield started
    started.end()


def test_each_flight_is_there_once_though_a_worker_and_a_driver_are_killed(demo, kafka, store, cluster):
    first, lost = demo.load(), cluster.workers[1]
    demo.await_task(lost)
    lost.kill()
    psutil.wait_procs([first])
    lost.start()
    second = demo.load(first)
    demo.await_task(*cluster.workers)
    second.parent().kill()
    assert demo.status() == 0, demo.said
    assert "Every figure is right." in demo.said

    table, client_config = f"{store.address}/lake/flights", str(kafka.file(kafka.passwords("PLAIN")))
    assert audit(table, bootstrap=kafka.address("PASSWORDS"), client_config=client_config) == []
    flights = read_flights()
    found = DeltaTable(table, storage_options={**store.options, "aws_allow_http": "true"})
    assert rows_of(found.to_pyarrow_table(columns=flights.column_names)) == rows_of(flights)

    with dg.DagsterInstance.from_config(str(demo.folder / "dagster")) as instance:
        assert isinstance(instance.run_launcher, dg.DefaultRunLauncher)
        said = [(run, messages_of(instance, run)) for run in instance.get_runs()]
    assert [run.status.value for run, text in said if re.search(LOST, text)] == ["SUCCESS"]
    [(failed, text)] = [(run, text) for run, text in said if run.status.value == "FAILURE"]
    assert re.search(KILLED, text), text
    assert [run.status.value for run, _ in said if run.parent_run_id == failed.run_id] == ["SUCCESS"]


def rows_of(table):
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def messages_of(instance, run):
    events = instance.all_logs(run.run_id)
    return "\n".join((one.dagster_event.message if one.dagster_event else one.user_message) or "" for one in events)
