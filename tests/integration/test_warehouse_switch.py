"""A table goes on with the mirror of its topic: what it lacks is read from there, nothing twice, nothing else."""

import json
from dataclasses import replace

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_ops.cli.app import app
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import SwitchError
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.switch import switch_topic
from millrace_support.command_runner import CommandRunner

RECORDS = {
    0: [NewRecord(b'{"id": %d}' % each, b"k%d" % (each % 3), 1000 + each) for each in range(20)],
    1: [NewRecord(b"no json", b"k", 1000 + each) for each in range(5)],
}


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as opened:
        for topic in ("events", "east.events"):
            Admin(opened).create_topic(topic, 2)
        write(opened, "events", RECORDS)
        yield opened


@pytest.fixture
def options(broker, tmp_path):
    return LoadOptions(topic="events", table=str(tmp_path / "table"), bootstrap=broker.bootstrap)


def write(cluster, topic, records):
    for partition, some in records.items():
        SyncProducer(cluster).send(topic, partition, some)


def mirror(options):
    """Returns the options of a load from the mirror."""
    return LoadOptions(topic="east.events", table=options.table, bootstrap=options.bootstrap, schema=options.schema)


def places(options):
    rows = Table.load(options.table, OsFileSystem()).dataset().to_table(columns=["partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_table_goes_on_with_the_mirror_of_its_topic(spark, cluster, options, tmp_path, is_typed):
    if is_typed:
        (tmp_path / "schema.json").write_text(json.dumps({"fields": [{"name": "id", "type": "long"}]}))
        options = LoadOptions(**{**vars(options), "schema": str(tmp_path / "schema.json")})
    load_topic(options, spark=spark)
    write(cluster, "east.events", RECORDS)
    write(cluster, "east.events", {0: [NewRecord(b'{"id": 20}', b"k", 1)]})
    with pytest.raises(TopicRecreatedError, match="holds topic events, not east"):
        load_topic(mirror(options), spark=spark)
    done = switch_topic(options.table, mirror(options).source)
    assert (done.former_topic, done.compared, done.next_offsets) == ("events", 25, {0: 20, 1: 5})
    load_topic(mirror(options), spark=spark)
    assert places(options) == [(0, each) for each in range(21)] + ([] if is_typed else [(1, each) for each in range(5)])
    assert audit(options.table) == []
    with pytest.raises(SwitchError, match="already"):
        switch_topic(options.table, mirror(options).source)


def other(at, **fields):
    return {**RECORDS, 0: [one._replace(**fields) if n == at else one for n, one in enumerate(RECORDS[0])]}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            {**RECORDS, 0: RECORDS[0][:-1]},
            "ends at offset 19, and the table has offsets up to 19",
        ),
        (other(19, value=b"?"), "offset 19: the value differs from the table's"),
        (other(3, key=None), "offset 3: the key differs"),
        (other(3, timestamp_ms=1), "offset 3: the timestamp differs"),
    ],
)
def test_a_topic_without_the_table_s_records_is_refused(spark, cluster, options, records, reason):
    load_topic(options, spark=spark)
    write(cluster, "east.events", records)
    before = read_ledger(options.table)
    with pytest.raises(SwitchError, match=reason):
        switch_topic(options.table, mirror(options).source)
    assert read_ledger(options.table) == before


def test_offsets_that_the_mirror_has_deleted_are_not_compared(spark, cluster, options):
    load_topic(options, spark=spark)
    write(cluster, "east.events", RECORDS)
    Admin(cluster).delete_records("east.events", 0, 12)
    assert switch_topic(options.table, mirror(options).source, dry_run=True).compared == 13
    Admin(cluster).delete_records("east.events", 0, 20)
    with pytest.raises(SwitchError, match="begins at offset 20, so that nothing of it can be compared"):
        switch_topic(options.table, mirror(options).source)


def test_the_command_says_from_where_the_next_load_reads(spark, cluster, options):
    load_topic(options, spark=spark)
    write(cluster, "east.events", RECORDS)
    command = ["warehouse", "switch", options.table, "east.events", "--bootstrap", options.bootstrap]
    tried = CommandRunner().invoke(app, [*command, "--dry-run"])
    assert "would go on with topic east.events" in tried.stdout
    assert read_ledger(options.table).topic == "events"
    done = CommandRunner().invoke(app, command)
    assert done.stdout.splitlines() == [
        f"{options.table} goes on with topic east.events, of which 25 records were compared",
        "partition 0: the next load reads from offset 20",
        "partition 1: the next load reads from offset 5",
    ]
    assert read_ledger(options.table).topic == "east.events"


def test_a_table_of_newest_records_goes_on_too(spark, cluster, options):
    options = replace(options, mode=Mode.UPSERT)
    load_topic(options, spark=spark)
    write(cluster, "east.events", RECORDS)
    write(cluster, "east.events", {0: [NewRecord(b'{"id": 20}', b"k1", 1)]})
    assert switch_topic(options.table, mirror(options).source).compared == 4
    load_topic(replace(mirror(options), mode=Mode.UPSERT), spark=spark)
    assert places(options) == [(0, 17), (0, 18), (0, 20), (1, 4)]
    assert audit(options.table) == []
