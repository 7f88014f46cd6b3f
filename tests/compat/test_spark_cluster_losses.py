"""What a cluster may lose in the middle of a load, an upsert or a compaction: nothing is doubled, and nothing missing.

Its two machines share the store with the driver, and nothing else. Machine 1 is slow: as long as the store has a file
`hold`, it holds each task right before it syncs a data file that it has written whole.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.spark_tasks import tasks_of
from millrace_support.commands_below import commands_below
from millrace_support.lake_contents import rows_at, stray_files
from millrace_support.spark import SparkCluster
from millrace_support.spark_machines import ENVIRONMENT, Machine, shared_folder
from millrace_support.waiting import until
from millrace_support.warm_jvm import without_warm_jvm

PARTITIONS, RECORDS, KEYS = (0, 1), 800, 200
SLOW = "/opt/slow"
WARM_S = 1
HELD = """
import os, time
sync = os.fsync

def held(fd):
    if os.readlink(f"/proc/self/fd/{{fd}}").endswith(".parquet") and os.path.exists("{store}/hold"):
        open("{store}/held", "w").close()
        while os.path.exists("{store}/hold"):
            time.sleep(0.05)
    sync(fd)

os.fsync = held
"""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.pyspark.python": f"{ENVIRONMENT}/bin/python",
    "spark.executorEnv.PYTHONPATH": SLOW,  # where machine 0 has nothing
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.decommission.enabled": "true",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # of these; no job begins on one machine alone
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "20s",  # so that what is lost is lost before
    "spark.python.task.killTimeout": "200ms",
}
DECOMMISSIONED = {"SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true"}
EXECUTOR = re.compile(r"CoarseGrainedExecutorBackend.* --executor-id (\S+)")
DRIVER = """
import json, sys
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
load_topic(LoadOptions(**json.loads(sys.argv[1])))
"""

pytestmark = [pytest.mark.usefixtures("shared_with_group"), pytest.mark.timeout(1200)]


class Lake:
    """A cluster of two machines of which one is slow, a broker, and the folder that all but the broker share."""

    def __init__(self, folder, cluster, bootstrap):
        self.store, self.cluster, self.bootstrap = folder / "store", cluster, bootstrap
        self.hold, self.held = self.store / "hold", self.store / "held"

    def options(self, topic, **others):
        """Makes a topic, in which each key comes four times; returns the options of its loads, of eight tasks each."""
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic(topic, len(PARTITIONS))
            for partition in PARTITIONS:
                values = [NewRecord(b"%d" % n, key=b"%d %d" % (partition, n % KEYS)) for n in range(RECORDS)]
                SyncProducer(cluster).send(topic, partition, values)
        table = str(self.store / topic)
        return LoadOptions(topic=topic, table=table, bootstrap=self.bootstrap, max_records_per_task=KEYS, **others)

    def executors(self, number):
        """Returns the processes of a worker's executors, by their ids."""
        below = commands_below(self.cluster.workers[number].pid)
        return {found[1]: one for one, command in below.items() if (found := EXECUTOR.search(command))}

    def lose_the_worker(self):
        self.cluster.workers[1].kill()
        self.cluster.workers[1].start()

    def lose_the_executor(self):
        for one in self.executors(1).values():
            one.kill()

    def decommission(self):
        worker = self.cluster.workers[1]
        os.kill(worker.pid, signal.SIGPWR)
        until(lambda: "Decommission worker" in worker.read_log())

    def repaired(self, session):
        """Starts the slow machine's worker again where it is decommissioned; waits until Spark has both executors."""
        if "Decommission worker" in self.cluster.workers[1].read_log():
            self.lose_the_worker()
        status = session.sparkContext._jsc.sc().statusStore()

        def known():
            found = status.executorList(True)
            return {found.apply(number).id() for number in range(found.length())} - {"driver"}

        def at_once(batches):
            time.sleep(WARM_S)
            yield from batches

        until(lambda: self.executors(0) and self.executors(1) and known() == {*self.executors(0), *self.executors(1)})
        session.range(0, 2, 1, 2).mapInArrow(at_once, "id long").collect()  # a Python on each, before Spark speculates


GIVEN_BACK = "a machine that is given back"
LOSSES = {
    "a slow task's twin": lambda lake: None,
    "an executor": Lake.lose_the_executor,
    "a worker": Lake.lose_the_worker,
    GIVEN_BACK: Lake.decommission,
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory, packed_python):
    folder = tmp_path_factory.mktemp("lake")
    store, slow = shared_folder(folder / "store"), folder / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(HELD.format(store=store))
    _, unpacked = packed_python
    mounts = {ENVIRONMENT: unpacked}
    quick = Machine(folder / "machine-0", 0, shared=[store], mounts=mounts)
    mounts = {**mounts, SLOW: slow}
    slow = Machine(folder / "machine-1", 1, shared=[store], mounts=mounts, environment=DECOMMISSIONED)
    with (
        BrokerProcess(folder / "broker") as broker,
        SparkCluster(folder / "cluster", machines=[quick, slow]) as cluster,
    ):
        yield Lake(folder, cluster, broker.bootstrap)


@pytest.fixture(scope="module")
def session(lake):
    with without_warm_jvm(), spark_session("losses", lake.cluster.master, SETTINGS) as started:
        yield started


APPENDED = {(one, number, b"%d" % number): 1 for one in PARTITIONS for number in range(RECORDS)}
NEWEST = {(one, n, b"%d" % n): 1 for one in PARTITIONS for n in range(RECORDS - KEYS, RECORDS)}


def check(options, expected=APPENDED, *, strays=0):
    """Checks that the table has what is expected, each row once, and that a vacuum leaves nothing else."""
    assert rows_at(options.table, "partition", "offset", "value") == expected
    assert audit(options.table, bootstrap=options.bootstrap) == []
    assert len(stray_files(options.table)) >= strays
    vacuum(options.table, DISK, retention_hours=0)
    assert stray_files(options.table) == set()


def a_load(lake, session, topic):
    options = lake.options(topic)
    return options, lambda: load_topic(options, spark=session), APPENDED


def an_upsert(lake, session, topic):
    """The second half of the topic is merged into files that have each key."""
    options = lake.options(topic, mode=Mode.UPSERT, max_records_per_run=RECORDS)
    load_topic(options, spark=session)
    return options, lambda: load_topic(options, spark=session), NEWEST


def a_compaction(lake, session, topic):
    options = lake.options(topic)
    load_topic(options, spark=session)
    quarter = sum(one.stat().st_size for one in Path(options.table).glob("*.parquet")) // 4
    tasks = tasks_of(session, "compact")
    return options, lambda: compact(options.table, DISK, CLOCK, target_bytes=quarter, tasks=tasks), APPENDED


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_a_driver_that_is_killed_between_its_tasks_doubles_nothing(lake, mode):
    """It loads the second half of the topic. No session is beside it, which would have all cores."""
    options = lake.options(f"driver-{mode}", mode=mode, max_records_per_run=RECORDS)
    given = {name: value for name, value in asdict(options).items() if name != "mode" and value not in (None, {})}
    given |= {"master": lake.cluster.master, "spark_settings": SETTINGS}
    with without_warm_jvm(), spark_session("first", lake.cluster.master, SETTINGS) as session:
        load_topic(options, spark=session)
    lake.hold.touch()
    with without_warm_jvm():
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, json.dumps(given)], start_new_session=True)
    try:
        until(lambda: lake.held.exists() or driver.poll() is not None)
        assert lake.held.exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        lake.hold.unlink()
    lake.held.unlink()
    until(lambda: lake.executors(0) | lake.executors(1) == {})
    with without_warm_jvm(), spark_session("again", lake.cluster.master, SETTINGS) as session:
        load_topic(options, spark=session)
    check(options, APPENDED if mode is Mode.APPEND else NEWEST, strays=1)


OPERATIONS = (a_load, an_upsert, a_compaction)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_lost_in_a_task_doubles_nothing(lake, session, operation, loss):
    lake.repaired(session)
    topic = f"{operation.__name__}-{loss}".replace(" ", "-").replace("'", "-")
    options, run, expected = operation(lake, session, topic)
    lake.hold.touch()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            until(lambda: lake.held.exists() or running.done())
            assert lake.held.exists()
            LOSSES[loss](lake)
            if loss == "a slow task's twin":
                running.result()  # though the first attempt never ends
        finally:
            lake.hold.unlink()
        running.result()
    lake.held.unlink()
    check(options, expected, strays=0 if loss == GIVEN_BACK else 1)  # whose tasks may end
