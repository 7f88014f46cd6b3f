"""kill -9 of a reload at each of its steps: the table has every offset once, before and after reloading again."""

import json
import signal
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.stores.leases import held_leases
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.killed_loads import reload_and_die, run_driver

FS = OsFileSystem()
GOOD, BAD = b'{"id": 1}', b"not json"
SELECTION = Selection(from_offset=1, until_offset=3)  # a letter and a row of each partition, of a file with more
BEFORE_THE_LETTERS, BEFORE_THE_ROWS = ("planned", "written"), ("dead letters committed", "rewritten")
AFTER = ("committed",)


@pytest.fixture(scope="module")
def spark():
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process.bootstrap


@pytest.fixture
def options(bootstrap, spark, tmp_path):
    """A loaded table: rows at 0, 2 and 3 of each partition, a dead letter at 1."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic := f"reload-{tmp_path.name}", 2)
        for partition in (0, 1):
            SyncProducer(cluster).send(topic, partition, [NewRecord(value) for value in (GOOD, BAD, GOOD, None)])
    (tmp_path / "schema.json").write_text(json.dumps({"fields": [{"name": "id", "type": "long"}]}))
    options = LoadOptions(
        topic=topic,
        table=str(tmp_path / "table"),
        bootstrap=bootstrap,
        master="local[2,3]",
        schema=str(tmp_path / "schema.json"),
    )
    load_topic(options, spark=spark)
    return options


def files(directory):
    return set(Table.load(directory, FS).files())


def offsets(directory):
    rows = ds.dataset(sorted(files(directory))).to_table(columns=["partition", "offset"]).to_pylist()
    return Counter((row["partition"], row["offset"]) for row in rows)


def check_whole(table):
    assert offsets(table) == Counter((partition, offset) for partition in (0, 1) for offset in (0, 2, 3))
    assert offsets(dead_letters_dir(table)) == Counter((partition, 1) for partition in (0, 1))
    assert audit(table) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [*BEFORE_THE_LETTERS, *BEFORE_THE_ROWS, *AFTER])
def test_a_killed_reload_is_whole_or_not_there(options, spark, step):
    tables = options.table, dead_letters_dir(options.table)
    rows, letters = map(files, tables)
    ledger = read_ledger(options.table)
    assert run_driver(reload_and_die, options, SELECTION, step) == -signal.SIGKILL
    assert (files(tables[0]) == rows) == (step not in AFTER)
    assert (files(tables[1]) == letters) == (step in BEFORE_THE_LETTERS)
    check_whole(options.table)

    report = reload_topic(options, SELECTION, spark=spark)
    assert (report.rows, report.dead_letters, report.removed_rows) == (2, 2, 2)
    assert not files(tables[0]) & rows
    check_whole(options.table)
    assert read_ledger(options.table) == ledger
    assert load_topic(options, spark=spark).version is None
    for table in tables:
        vacuum(table, FS, retention_hours=0)
        assert {str(path) for path in Path(table).glob("*.parquet")} == files(table)
        assert held_leases(table, FS) == set()
