"""kill -9 of loads and reloads of logs with gaps, which keep offsets in a file: the audit is right before and after."""

import json
import random
import signal
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, Step
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.table.lineage import named_by
from millrace_support.admin_requests import change_request
from millrace_support.command_runner import CommandRunner
from millrace_support.findings import told
from millrace_support.killed_loads import load_and_die, reload_and_die, run_driver
from millrace_support.loads import Loads

FS = OsFileSystem()
KEYS, RECORDS = 3000, 8000
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "100000", "file.delete.delay.ms": "0"}
PROPERTIES = {"log.cleaner.backoff.ms": "3600000", "log.retention.ms": "-1"}
WHOLE = Selection(from_offset=0)
BETWEEN = Selection(partitions=(0,), from_offset=100, until_offset=7900)


@pytest.fixture(scope="module")
def spark():
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    """Partition 0 was compacted, by keys that come by chance; a third of partition 1's transactions was aborted."""
    chance = random.Random(1)
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=PROPERTIES) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2, config=CONFIG)
            records = [NewRecord(b"v", key=b"%d" % chance.randrange(KEYS)) for _ in range(RECORDS)]
            for first in range(0, RECORDS, 100):
                SyncProducer(cluster).send("events", 0, records[first : first + 100])
        with urllib.request.urlopen(change_request(process, "maintenance/compaction"), timeout=60) as answer:
            assert {one["error"] for one in json.load(answer)["partitions"]} == {""}
        produce_transactions(process.bootstrap)
        yield process.bootstrap


def produce_transactions(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "events"})
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for record in range(number % 4 + 1):
            producer.produce("events", b"v", b"t%d-%d" % (number, record), partition=1)
        producer.flush()
        producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()


@pytest.fixture
def options(bootstrap, spark, tmp_path):
    return LoadOptions(topic="events", table=str(tmp_path / "table"), bootstrap=bootstrap, master="local[2,3]")


def kept_files(options):
    return {f"_lineage/{path.name}" for path in Path(options.table, "_lineage").glob("*.offsets*")}


def named_files(options):
    return named_by(Table.load(options.table, FS).lineage())


@pytest.mark.parametrize("step", [Step.PLANNED, Step.WRITTEN, Step.COMMITTED])
def test_a_killed_load_keeps_its_offsets_or_leaves_garbage(options, spark, step):
    assert run_driver(load_and_die, options, step) == -signal.SIGKILL
    assert len(kept_files(options)) == (step is not Step.PLANNED)
    assert len(named_files(options)) == (step is Step.COMMITTED)
    report = load_topic(options, spark=spark)
    assert (report.version is None) == (step is Step.COMMITTED)
    assert len(kept_files(options)) == (2 if step is Step.WRITTEN else 1)
    vacuum(options.table, FS, retention_hours=0)
    assert kept_files(options) == named_files(options)
    assert audit(options.table) == []


@pytest.mark.parametrize("step", [Step.WRITTEN, Step.COMMITTED])
def test_a_killed_reload_keeps_its_offsets_or_leaves_garbage(options, spark, step):
    load_topic(options, spark=spark)
    assert run_driver(reload_and_die, options, BETWEEN, step) == -signal.SIGKILL
    assert audit(options.table) == []
    assert len(kept_files(options)) == 2
    vacuum(options.table, FS, retention_hours=0)
    assert len(kept_files(options)) == len(named_files(options)) == (2 if step is Step.COMMITTED else 1)
    reload_topic(options, BETWEEN, spark=spark)
    assert audit(options.table) == []


def test_faults_that_cancel_each_other_are_found_and_mended_by_the_commands(options, spark):
    load_topic(options, spark=spark)
    rows = DeltaTable(options.table).to_pyarrow_table(columns=["partition", "offset", "key"]).to_pylist()
    [there, erased] = [row for row in rows if row["partition"] == 0][500:502]
    left = {row["offset"] for row in rows if row["partition"] == 0}
    absent = next(offset for offset in range(1000, RECORDS) if offset not in left)
    erase(options.table, [erased["key"]], FS)
    assert audit(options.table) == []
    for partition, gone, added in ((0, there["offset"], absent), (1, offset_of(rows, 5), aborted_of(rows))):
        DeltaTable(options.table).delete(f"partition = {partition} and offset = {gone}")
        Loads(options.table).add([added], partition)
        findings = audit(options.table)
        assert [finding.partition(", in /")[0] for finding in told(findings)] == [
            f"partition {partition}: 1 offsets are there, and gave no record or were erased: {added}",
            f"partition {partition}: 1 offsets are not there: {gone}",
        ]
        for finding in findings:
            command = finding.split("`")[1].split()[2:]
            result = CommandRunner().invoke(app, ["warehouse", *command, "--bootstrap", options.bootstrap])
            assert result.exit_code == 0, result.output
        assert audit(options.table) == []
    reload_topic(options, WHOLE, spark=spark)
    assert audit(options.table) == []


def offset_of(rows, number):
    return [row["offset"] for row in rows if row["partition"] == 1][number]


def aborted_of(rows):
    """Returns the offset of a record of the first transaction, which was aborted."""
    assert 0 not in {row["offset"] for row in rows if row["partition"] == 1}
    return 0
