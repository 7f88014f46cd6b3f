"""Each error that stops a load, as Dagster shows it: the attempts, the sentence, and the way on that it names."""

import re
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable

from millrace.client import Admin, Cluster
from millrace.fs import OsFileSystem
from millrace.records.batch import walk
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.defs import load_process
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, read_ledger, swap
from millrace_support.dagster_loads import DagsterLoads, changed_child
from millrace_support.warm_python import cold_programs

FS = OsFileSystem()
PAGE = Path(__file__).parents[2] / "docs" / "warehouse.md"
NOWHERE = "127.0.0.1:1"
ATTEMPTS = 3
FINE, QUIET = "fine", "quiet"
OTHER_TABLE = ("fewer", "mode", "refused", "behind")  # no option goes on


class Case(NamedTuple):
    """An error: its class, a part of its sentence, the option that goes on, and how often the step is tried."""

    error: str
    sentence: str
    option: Accept | None = None
    attempts: int = 1


CASES = {
    "lost": Case("OffsetsLostError", "were not loaded (partition 0: 2-2)", Accept.LOST_OFFSETS),
    "recreated": Case("TopicRecreatedError", "was deleted and created again since", Accept.RECREATED_TOPIC),
    "cut": Case("LogTruncatedError", "topic cut lost records that the table has", Accept.TRUNCATED_LOG),
    "fewer": Case("LogTruncatedError", "topic fewer: partition 1 is in the table but not in the topic"),
    "schema": Case("SchemaError", "field id: type 'nonsense' is not one of"),
    "mode": Case("ModeError", "has the newest record of each key"),
    "refused": Case("TableRefusedError", "delta.setTransactionRetentionDuration"),
    "behind": Case("LedgerError", "its log was set back"),
    "registry": Case("RegistryError", "Connection refused", attempts=ATTEMPTS),
    "broker": Case("BrokerUnreachableError", f"no broker answers at {NOWHERE}", attempts=ATTEMPTS),
}
# Each of these is found while Spark loads.
CASES_ON_THE_WAY = {
    "keyless": Case("KeylessRecordsError", "1 records have no key", Accept.KEYLESS_RECORDS),
    "grown": Case("LogTruncatedError", "the log was cut at offset 1 while it was loaded; nothing was committed"),
    "overtaken": Case("StaleLedgerError", "another load", attempts=2),
    "failing": Case("LoadFailedError", "partition 0: tasks end at 2, not at 3", attempts=ATTEMPTS),
}
HOW = {
    "schema": {"schema": '{"fields": [{"name": "id", "type": "nonsense"}]}'},
    "mode": {"accept_recreated_topic": True},
    "registry": {"schema": f'{{"format": "avro", "registry": "http://{NOWHERE}"}}'},
    "broker": {"bootstrap": NOWHERE},
}


class Broken(NamedTuple):
    """A broker whose topics are as the cases need them, and the loads of their tables."""

    broker: BrokerProcess
    loads: DagsterLoads
    directory: Path

    def how(self, case):
        """Returns the options with which a case fails; a schema becomes a file."""
        chosen = dict(HOW.get(case, {}))
        if "schema" in chosen:
            path = self.directory / f"{case}.json"
            path.write_text(chosen["schema"])
            chosen["schema"] = str(path)
        return {case: chosen}

    def cut(self, topic):
        """Starts the broker without the last batch of a topic, as after a power cut."""
        self.broker.kill()
        (segment,) = self.broker.data_dir.glob(f"{topic}-0/*.log")
        *_, (last, _) = walk(segment.read_bytes())
        with segment.open("r+b") as file:
            file.truncate(last)
        (self.broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        with cold_programs():
            self.broker.start()


@pytest.fixture(scope="module")
def broken(tmp_path_factory, warm_loads):
    """Tables that one run has loaded, and topics of which it can't go on."""
    directory = tmp_path_factory.mktemp("failures")
    with cold_programs():
        process = BrokerProcess(directory / "broker")
    with process as broker:
        loads = DagsterLoads(broker.bootstrap, directory / "warehouse")
        topics = [*CASES, *CASES_ON_THE_WAY, FINE, QUIET]
        loads.create(*topics)
        for topic in topics[:-1]:
            loads.send(topic, b"1", b"2")
        first = [topic for topic in (*CASES, "keyless", FINE, QUIET) if topic not in ("registry", "schema")]
        upserts = {topic: {"mode": Mode.UPSERT} for topic in ("keyless", "mode")}
        run = loads.load(*first, how=upserts)
        assert (run.loaded, run.without_news) == (first[:-1], [QUIET])
        lineage = Table.load(loads.table(FINE), FS).lineage()
        assert [one.get("run_id") for one in lineage if one.get("kind") == "load"] == [run.run_id]
        broken = Broken(broker, loads, directory)
        _break(broken)
        yield broken


def _break(broken):
    broken.cut("cut")
    with Cluster(broken.broker.bootstrap) as cluster:
        for topic in ("recreated", "mode"):
            Admin(cluster).delete_topic(topic)
            Admin(cluster).create_topic(topic, 1)
        broken.loads.send("lost", b"3")
        Admin(cluster).delete_records("lost", 0, 3)
    for topic in ("lost", "recreated", "cut", "fewer", "mode", "broker", FINE):
        broken.loads.send(topic, b"4")
    broken.loads.send("keyless", b"4", key=None)
    fewer = Table.load(broken.loads.table("fewer"), FS)
    expected, transactions = swap(ledger_of(fewer), {1: LedgerEntry(0, 1)})
    fewer.commit([], expected=expected, transactions=transactions, lineage={"kind": "other"})
    retention = {"delta.setTransactionRetentionDuration": "interval 30 days"}
    DeltaTable(broken.loads.table("refused")).alter.set_table_properties(retention, raise_if_not_exists=False)
    *_, newest = sorted(Path(broken.loads.table("behind"), "_delta_log").glob("*.json"))
    newest.unlink()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(load_process, "FIRST_PAUSE_S", 0)


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Changes what the process of the next loads does, and returns the marker that it makes."""

    def change(program):
        marker = tmp_path / "marker"
        monkeypatch.setattr(load_process, "COMMAND", (sys.executable, "-c", changed_child(marker, program)))
        return marker

    return change


def check_failed(run, case):
    """Checks that a run of one load failed as a case says, in the words of its error alone."""
    assert (run.success, run.loaded, run.attempts) == (False, [], case.attempts)
    assert case.sentence in run.sentence
    assert run.error.message == f"dagster._core.definitions.events.Failure: {run.sentence}\n"
    assert run.error.cause is None
    assert case.option is None or f"`{case.option}: true`" in run.sentence
    assert run.shown[f"table/{run.topics[0]}: error"] == case.error
    assert run.shown.get(f"table/{run.topics[0]}: option that goes on") == (case.option and f"{case.option}: true")


def test_every_error_of_the_page_is_tried():
    table = PAGE.read_text().split("## What stops a load")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert named - {case.error for case in (CASES | CASES_ON_THE_WAY).values()} == set()


@pytest.mark.parametrize("name", CASES)
def test_an_error_stops_a_run_in_its_own_words(broken, name):
    check_failed(broken.loads.load(name, how=broken.how(name)), CASES[name])


def test_errors_stop_no_other_table(broken):
    run = broken.loads.load("lost", "keyless", FINE)
    assert (run.success, run.attempts, run.loaded) == (False, 1, [FINE])
    first, lost, keyless = run.sentence.splitlines()
    assert first == "2 of 3 failed"
    assert lost.startswith("table/lost: topic lost: retention")
    case = CASES_ON_THE_WAY["keyless"]
    assert keyless.startswith(f"table/keyless: {case.sentence}")
    assert f"`{case.option}: true`" in keyless
    assert run.shown["table/keyless: error"] == case.error


GROWN = """
verified = loader.verify_results
def verify_results(ranges, results, **how):
    if once():
        while not MARKER.with_suffix(".cut").exists():
            time.sleep(0.05)
    return verified(ranges, results, **how)
loader.verify_results = verify_results
"""


def test_a_log_that_is_cut_while_it_is_loaded_fails_its_run(broken, play):
    marker = play(GROWN)

    def cut_and_grow():
        while not marker.exists():
            if stop.wait(0.05):
                return
        broken.cut("grown")
        broken.loads.send("grown", b"other")
        marker.with_suffix(".cut").touch()

    stop = threading.Event()
    cutter = threading.Thread(target=cut_and_grow)
    cutter.start()
    try:
        run = broken.loads.load("grown")
    finally:
        stop.set()
        cutter.join()
    check_failed(run, CASES_ON_THE_WAY["grown"])


OVERTAKEN = """
from pyspark.sql import SparkSession
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
def reached(self, step):
    if step == "written" and once():
        options = LoadOptions(topic="overtaken", table=TABLE, bootstrap=BOOTSTRAP)
        load_topic(options, spark=SparkSession.getActiveSession())
child.PipesListener.reached = reached
"""


def test_a_load_that_is_overtaken_is_tried_again(broken, play):
    table = broken.loads.table("overtaken")
    play(OVERTAKEN.replace("TABLE", repr(table)).replace("BOOTSTRAP", repr(broken.loads.bootstrap)))
    run = broken.loads.load("overtaken")
    case = CASES_ON_THE_WAY["overtaken"]
    assert (run.success, run.attempts, run.without_news) == (True, case.attempts, ["overtaken"])
    assert case.sentence in run.retried[0].cause.message
    assert read_ledger(table).next_offset(0) == 2


MISCOUNTS = """
from millrace_pipelines.warehouse.errors import LoadFailedError
def fail(*_, **__):
    raise LoadFailedError("partition 0: tasks end at 2, not at 3")
if once():
    loader.verify_results = fail
else:
    child.SharedSession.get = fail  # the next attempts spare themselves a session
"""


def test_tasks_that_fail_are_tried_three_times(broken, play):
    play(MISCOUNTS)
    check_failed(broken.loads.load("failing"), CASES_ON_THE_WAY["failing"])


def test_the_ways_on_are_green(broken):
    """The options that the sentences named are those of the run; where they named none, another schema or table is."""
    topics = [*CASES, *CASES_ON_THE_WAY]
    other = {topic: broken.loads.table(f"{topic}-2") for topic in OTHER_TABLE}
    options = [case.option for case in (CASES | CASES_ON_THE_WAY).values() if case.option]
    tables = {topic: {"table": table} for topic, table in other.items()}
    run = broken.loads.load(*topics, how=tables, accept=options)
    assert (run.success, run.attempts, run.sentence) == (True, 1, None)
    assert (set(run.loaded), run.without_news) == (set(topics) - {"overtaken"}, ["overtaken"])
    assert [audit(other.get(topic, broken.loads.table(topic))) for topic in topics] == [[]] * len(topics)
    assert broken.loads.load(*topics, how=tables).without_news == topics
