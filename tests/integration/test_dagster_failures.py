"""Loads of several tables under Dagster that fail, each in the words of its error; and ways on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.defs.loads import child_process, events
from millrace_pipelines.defs.loads.child_process import run_jobs
from millrace_pipelines.defs.loads.events import asset_events
from millrace_pipelines.runs.jobs import LoadJob
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.tables.choices import Mode

MASTER = "local[1,1]"
SETTINGS = {"spark.hadoop.some.secret": "hush"}
GONE_TIMEOUT_S = 20  # 10 s on a machine that is not busy
ONCE = """
import os, signal, sys, time
from pathlib import Path
from pyspark import SparkContext
from millrace_pipelines.runs import child
def once():
    marker = Path({marker!r})
    if marker.exists():
        return False
    marker.write_text(str(os.getpid()))
    return True
"""
DIES = """
def tasks_done(self, done, total, records):
    if once():
        os.kill({pid}, signal.SIGKILL)
child.PipesListener.tasks_done = tasks_done
child.main()
"""
IS_OVERTAKEN = """
from pyspark.sql import SparkSession
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
def reached(self, step):
    if step == "written" and once():
        options = LoadOptions(topic="events", table={table!r}, bootstrap={bootstrap!r})
        load_topic(options, spark=SparkSession.getActiveSession())
child.PipesListener.reached = reached
child.main()
"""
MISCOUNTS = """
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.load import loader
def verify_results(ranges, results):
    raise LoadFailedError("partition 0: tasks end at 2, not at 3")
loader.verify_results = verify_results
child.main()
"""
WAITS = """
def reached(self, step):
    if step == "written" and once():
        time.sleep(600)
child.PipesListener.reached = reached
child.main()
"""


class Warehouse:
    """A broker's topics and their tables, loaded by steps of Dagster that may be told what to accept."""

    def __init__(self, broker, directory):
        self.broker, self.directory = broker, directory

    def table(self, topic):
        return str(self.directory / "warehouse" / topic)

    def options(self, topic, **how):
        return LoadOptions(topic=topic, table=self.table(topic), bootstrap=self.broker.bootstrap, **how)

    def create(self, *topics):
        with Cluster(self.broker.bootstrap) as cluster:
            for topic in topics:
                Admin(cluster).create_topic(topic, 1)

    def send(self, topic, *values, key=b"k"):
        with Cluster(self.broker.bootstrap) as cluster:
            for value in values:
                SyncProducer(cluster).send(topic, 0, [NewRecord(value, key)])

    def load(self, topics):
        """Runs one step that loads tables, `topics` being the options of each."""
        specs = [dg.AssetSpec(["table", topic], skippable=True) for topic in topics]

        @dg.multi_asset(specs=specs, name="loads")
        def loads(context: dg.AssetExecutionContext):
            jobs = [
                LoadJob(key=f"table/{topic}", options=self.options(topic, run_id=context.run.run_id, **how))
                for topic, how in topics.items()
            ]
            yield from asset_events(context, run_jobs(context, jobs, master=MASTER, spark_settings=SETTINGS))

        return Run(dg.materialize([loads], raise_on_error=False))


class Run:
    """What Dagster keeps of a run of one step."""

    def __init__(self, result):
        self.run_id, self.success = result.run_id, result.success
        self.loaded = [one.asset_key.path[-1] for one in result.asset_materializations_for_node("loads")]
        self.without_news = [one.asset_key.path[-1] for one in result.asset_observations_for_node("loads")]
        kinds = [event.event_type_value for event in result.all_events]
        self.attempts = kinds.count("STEP_START") + kinds.count("STEP_RESTARTED")
        failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        self.error = failures[0].error if failures else None
        words = failures[0].user_failure_data if failures else None  # an interrupted step has none
        self.sentence = words.description if words else None


@pytest.fixture
def warehouse(tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        yield Warehouse(broker, tmp_path)


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Changes what the process of the next loads does, once."""
    monkeypatch.setattr(events, "FIRST_PAUSE_S", 0)

    def change(program, **values):
        code = (ONCE + program).format(marker=str(tmp_path / "marker"), **values)
        monkeypatch.setattr(child_process, "COMMAND", (sys.executable, "-c", code))

    return change


def cut(broker, topic):
    """Starts the broker without the last batch of a topic, as after a power cut."""
    broker.kill()
    (segment,) = broker.data_dir.glob(f"{topic}-0/*.log")
    *_, (last, _) = walk(segment.read_bytes())
    with segment.open("r+b") as file:
        file.truncate(last)
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.start()


def test_each_error_fails_in_its_own_words_and_names_the_option_that_goes_on(warehouse, tmp_path):
    warehouse.create("lost", "recreated", "cut", "schema", "keyless", "fine", "quiet")
    for topic in ("lost", "recreated", "cut", "schema", "keyless", "fine"):
        warehouse.send(topic, b"1", b"2")
    first = {"keyless": {"mode": Mode.UPSERT}}
    topics = ["lost", "recreated", "cut", "schema", "keyless", "fine", "quiet"]
    run = warehouse.load({topic: first.get(topic, {}) for topic in topics})
    assert run.success
    assert (run.loaded, run.without_news) == (topics[:-1], ["quiet"])
    lineage = Table.load(warehouse.table("fine"), OsFileSystem()).lineage()
    assert [one.get("run_id") for one in lineage if one.get("kind") == "load"] == [run.run_id]

    cut(warehouse.broker, "cut")
    for topic in ("lost", "fine"):
        warehouse.send(topic, b"3")
    warehouse.send("keyless", b"3", key=None)
    with Cluster(warehouse.broker.bootstrap) as cluster:
        Admin(cluster).delete_records("lost", 0, 3)
        Admin(cluster).delete_topic("recreated")
        Admin(cluster).create_topic("recreated", 1)
    warehouse.send("lost", b"4")
    schema = tmp_path / "schema.json"
    schema.write_text('{"fields": [{"name": "id", "type": "nonsense"}]}')

    broken = {
        "lost": ("retention deleted offsets that were not loaded (partition 0: 2-2)", "accept_lost_offsets"),
        "recreated": ("topic recreated was deleted and created again", "accept_recreated_topic"),
        "cut": ("topic cut lost records that the table has", "accept_truncated_log"),
        "keyless": ("1 records have no key", "accept_keyless_records"),
        "schema": ("nonsense", None),
    }
    how = {"schema": {"schema": str(schema)}}
    for topic, (sentence, option) in broken.items():
        run = warehouse.load({topic: how.get(topic, {})})
        assert (run.success, run.attempts, run.error.cause) == (False, 1, None)
        assert sentence in run.sentence
        assert run.error.message == f"dagster._core.definitions.events.Failure: {run.sentence}\n"
        assert option is None or f"`{option}: true`" in run.sentence

    run = warehouse.load({"lost": {}, "fine": {}, "cut": {}})
    assert (run.success, run.attempts, run.loaded) == (False, 1, ["fine"])
    assert run.sentence.startswith("2 of 3 failed\ntable/lost: topic lost: retention")
    assert "\ntable/cut: topic cut lost records" in run.sentence

    accepted = {topic: {option: True} for topic, (_, option) in broken.items() if option}
    run = warehouse.load(accepted)
    assert (run.success, run.sentence) == (True, None)
    assert set(run.loaded) | set(run.without_news) == set(accepted)
    assert [audit(warehouse.table(topic)) for topic in accepted] == [[]] * 4


@pytest.mark.parametrize("pid", ["os.getpid()", "SparkContext._gateway.proc.pid"], ids=["child", "JVM"])
def test_a_killed_process_fails_one_load_which_the_next_attempt_does(warehouse, play, pid):
    warehouse.create("first", "second")
    for topic in ("first", "second"):
        warehouse.send(topic, b"1")
    play(DIES, pid=pid)
    run = warehouse.load({"first": {}, "second": {}})
    assert (run.success, run.attempts) == (True, 2)
    assert (run.loaded, run.without_news) == (["second", "first"], ["second"])
    assert [read_ledger(warehouse.table(topic)).next_offset(0) for topic in ("first", "second")] == [1, 1]


def test_a_load_that_is_overtaken_is_tried_again(warehouse, play):
    warehouse.create("events")
    warehouse.send("events", b"1")
    play(IS_OVERTAKEN, table=warehouse.table("events"), bootstrap=warehouse.broker.bootstrap)
    run = warehouse.load({"events": {}})
    assert (run.success, run.attempts, run.without_news) == (True, 2, ["events"])


def test_tasks_that_fail_are_tried_three_times(warehouse, play):
    warehouse.create("events")
    warehouse.send("events", b"1")
    play(MISCOUNTS)
    run = warehouse.load({"events": {}})
    assert (run.success, run.attempts, run.loaded) == (False, 3, [])
    assert run.sentence == "partition 0: tasks end at 2, not at 3"
    assert run.error.cause is None


WORKER = """
import sys
sys.path.insert(0, {here!r})
from types import SimpleNamespace
from test_dagster_failures import *
child_process.COMMAND = (sys.executable, "-c", {code!r})
Warehouse(SimpleNamespace(bootstrap={bootstrap!r}), Path({directory!r})).load({{"events": {{}}}})
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_spark_is_left_of_a_run_that_is_ended(warehouse, tmp_path, end):
    warehouse.create("events")
    warehouse.send("events", b"1")
    marker = tmp_path / "marker"
    program = WORKER.format(
        here=str(Path(__file__).parent),
        code=(ONCE + WAITS).format(marker=str(marker)),
        bootstrap=warehouse.broker.bootstrap,
        directory=str(tmp_path),
    )
    with subprocess.Popen([sys.executable, "-c", program]) as worker:
        while not (marker.exists() and marker.read_text()):
            assert worker.poll() is None
            time.sleep(0.1)
        child = psutil.Process(int(marker.read_text()))
        processes = [child, *child.children(recursive=True)]
        [jvm] = [one for one in processes if one.name() == "java"]
        assert not any("hush" in argument for argument in jvm.cmdline())
        os.kill(worker.pid, end)
        assert psutil.wait_procs(processes, timeout=GONE_TIMEOUT_S)[1] == []
        worker.wait(10)
    files = list(Path(warehouse.table("events")).glob("*.parquet"))
    assert (files == []) is (end == signal.SIGINT)
    assert warehouse.load({"events": {}}).loaded == ["events"]
    assert audit(warehouse.table("events")) == []
