"""kill -9 of a load at each of its steps: after the next load the table has every offset once."""

import json
import signal
from collections import Counter

import pyarrow.dataset as ds
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, Step
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.killed_loads import load_and_die, run_driver

SCHEMA = {"fields": [{"name": "id", "type": "long"}]}
AFTER_THE_COMMIT = (Step.COMMITTED, Step.PUBLISHED)
GOOD, BAD = b'{"id": 1}', b"not json"


def produce(bootstrap, values):
    with Cluster(bootstrap) as cluster:
        if "events" not in Admin(cluster).topics():
            Admin(cluster).create_topic("events", 2)
        for partition in (0, 1):
            SyncProducer(cluster).send("events", partition, [NewRecord(value) for value in values])


def offsets(directory):
    files = Table.load(directory, OsFileSystem()).files()
    rows = ds.dataset(files).to_table(columns=["partition", "offset"]).to_pylist() if files else []
    return Counter((row["partition"], row["offset"]) for row in rows)


@pytest.fixture(scope="module")
def spark():
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.mark.parametrize("step", list(Step))
def test_a_killed_load_neither_loses_nor_doubles(spark, broker, tmp_path, step):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    options = LoadOptions(
        topic="events",
        table=str(tmp_path / "table"),
        bootstrap=broker.bootstrap,
        master="local[2,3]",
        schema=str(tmp_path / "schema.json"),
    )
    produce(broker.bootstrap, [GOOD, BAD, GOOD, None])
    assert run_driver(load_and_die, options, step) == -signal.SIGKILL
    assert len(offsets(options.table)) == (6 if step in AFTER_THE_COMMIT else 0)
    assert len(offsets(dead_letters_dir(options.table))) == (0 if step in (Step.PLANNED, Step.WRITTEN) else 2)

    produce(broker.bootstrap, [BAD, GOOD])
    report = load_topic(options, spark=spark)
    assert (report.rows, report.dead_letters) == ((2, 2) if step in AFTER_THE_COMMIT else (8, 4))
    assert {partition: entry.next_offset for partition, entry in read_ledger(options.table).partitions.items()} == {
        0: 6,
        1: 6,
    }
    rows, dead_letters = offsets(options.table), offsets(dead_letters_dir(options.table))
    assert sorted(dead_letters.elements()) == [(partition, offset) for partition in (0, 1) for offset in (1, 4)]
    assert sorted((rows + dead_letters).elements()) == [
        (partition, offset) for partition in (0, 1) for offset in range(6)
    ]
    assert audit(options.table) == []
