"""A log without some offsets, which nobody compacts: every reader stops, names them, and goes on where told to.

The holes come from compaction, after which the topic is compacted no more: no byte is damaged, and offsets are gone.
"""

import json
import urllib.request

import pyarrow.dataset as ds
import pytest

from millrace import read_topic
from millrace.client import Admin, Cluster, Configs, ResourceKind, SimpleConsumer, SyncProducer
from millrace.client.consumer import ConsumerConnector
from millrace.client.damaged_batches import MissingOffsetsError
from millrace.client.log_check import check_topics
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.errors import Accept, OffsetsLostError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source.options import parse_options
from millrace_pipelines.spark.source.rows import TopicRange, read_offsets
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import skipped_location
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.admin_requests import change_request
from millrace_support.command_runner import CommandRunner
from millrace_support.connector_streams import BOUNDS, read, stream_of

COUNT, KEYS = 100, 4
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "2000", "file.delete.delay.ms": "0"}
PROPERTIES = {"log.cleaner.backoff.ms": "3600000", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def broker(zookeeper, tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing") / "data"
    connect = f"{zookeeper.address}/missing"
    with BrokerProcess(folder, zookeeper=connect, properties=PROPERTIES) as process:
        with Cluster(process.bootstrap) as cluster:
            for topic in ("holes", "compacted"):
                Admin(cluster).create_topic(topic, 1, config=CONFIG)
                for number in range(COUNT):
                    SyncProducer(cluster).send(topic, 0, [NewRecord(b"%d" % number, key=b"%d" % (number % KEYS))])
            compact(process)
            Configs(cluster).change(ResourceKind.TOPIC, "holes", {"cleanup.policy": "delete"})
        yield process


def compact(broker):
    request = change_request(broker, "maintenance/compaction")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert [one["error"] for one in json.load(answer)["partitions"]] == ["", ""]


@pytest.fixture(scope="module")
def left(broker):
    """The offsets that compaction has left, the same in both topics."""
    with SimpleConsumer(broker.bootstrap) as consumer:
        offsets = [record.offset for record in consumer.messages("compacted", 0)]
    assert len(offsets) < COUNT
    assert offsets[-1] == COUNT - 1
    return offsets


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("missing", local_master(2)) as session:
        yield session


def offsets_by_client(broker, topic, **options):
    with SimpleConsumer(broker.bootstrap, **options) as consumer:
        return [record.offset for record in consumer.messages(topic, 0)]


def offsets_by_arrow(broker, topic, **options):
    return read_topic(topic, broker.bootstrap, **options).arrow().column("offset").to_pylist()


def offsets_by_command(broker, topic, *options):
    arguments = ["consume", topic, "--bootstrap", broker.bootstrap, "--format", "%o\\n", *options]
    return CommandRunner().invoke(app, arguments)


def offsets_by_source(broker, topic, **options):
    given = parse_options({"bootstrap": broker.bootstrap, "topic": topic, **options})
    blocks = read_offsets(TopicRange(topic, 0, 0, COUNT), given, ENVELOPE_SCHEMA)
    return [offset for block in blocks for offset in block.column("offset").to_pylist()]


def load_options(broker, topic, table, **options):
    return LoadOptions(topic=topic, table=str(table), bootstrap=broker.bootstrap, **options)


def rows_of(location, *columns):
    files = Table.load(str(location), OsFileSystem()).files()
    return ds.dataset(files, format="parquet").to_table(list(columns)).to_pylist()


@pytest.mark.parametrize("offsets", [offsets_by_client, offsets_by_arrow])
def test_a_client_stops_and_goes_on_where_it_is_accepted(broker, left, offsets):
    with pytest.raises(MissingOffsetsError, match=r"holes-0: offsets among 0-.* are missing, and the topic is not"):
        offsets(broker, "holes")
    assert offsets(broker, "holes", accept_missing_offsets=True) == left
    assert offsets(broker, "compacted") == left


def test_a_client_reads_what_lies_before_or_behind_the_holes(broker, left):
    with SimpleConsumer(broker.bootstrap) as consumer:
        begin = next(offset for offset in reversed(left) if offset - 1 not in left)
        found = consumer.messages("holes", 0, begin)
        assert [record.offset for record in found] == [offset for offset in left if offset >= begin]


def test_the_command_stops_and_goes_on_where_it_is_accepted(broker, left):
    stopped = offsets_by_command(broker, "holes")
    assert (stopped.exit_code != 0, "are missing" in str(stopped.exception)) == (True, True)
    accepted = offsets_by_command(broker, "holes", "--accept-missing-offsets")
    assert [int(line) for line in accepted.stdout.split()] == left
    assert [int(line) for line in offsets_by_command(broker, "compacted").stdout.split()] == left


@pytest.mark.parametrize(("topic", "accept"), [("holes", False), ("holes", True), ("compacted", False)])
def test_a_connector_stops_and_goes_on_where_it_is_accepted(broker, zookeeper, left, topic, accept):
    properties = {
        "group.id": f"{topic}-{accept}", "zookeeper.connect": f"{zookeeper.address}/missing",
        "auto.offset.reset": "smallest", "accept.missing.offsets": str(accept).lower(),
    }  # fmt: skip
    with ConsumerConnector(BOUNDS | properties) as connector:
        stream = stream_of(connector, topic)
        if topic == "holes" and not accept:
            with pytest.raises(MissingOffsetsError):
                next(stream)
        else:
            assert [message.offset for message in read(stream, len(left))] == left


def test_the_spark_source_stops_and_goes_on_where_it_is_accepted(broker, left):
    with pytest.raises(OffsetsLostError, match=r"partition 0: the log has no record at offsets among .*failOnDataLoss"):
        offsets_by_source(broker, "holes")
    assert offsets_by_source(broker, "holes", failOnDataLoss="false") == left
    assert offsets_by_source(broker, "compacted") == left


def test_verify_names_the_holes(broker):
    with Cluster(broker.bootstrap) as cluster:
        holes, compacted = check_topics(cluster, ["holes", "compacted"])
    assert compacted.findings == ()
    assert any("are missing: the topic is not compacted" in finding.reason for finding in holes.findings)


def test_a_load_stops_without_a_commit_and_goes_on_where_it_is_accepted(broker, spark, left, tmp_path):
    options = load_options(broker, "holes", tmp_path / "table")
    with pytest.raises(OffsetsLostError, match=r"partition 0: 0-.*--accept-lost-offsets") as stopped:
        load_topic(options, spark=spark)
    assert stopped.value.option is Accept.LOST_OFFSETS
    assert list((tmp_path / "table").glob("*.parquet")) == []
    report = load_topic(load_options(broker, "holes", tmp_path / "table", accept_lost_offsets=True), spark=spark)
    [loaded] = report.ranges
    assert (loaded.rows, loaded.compacted, loaded.missing) == (len(left), 0, COUNT - len(left))
    assert [row["offset"] for row in rows_of(tmp_path / "table", "offset")] == left
    assert audit(str(tmp_path / "table")) == []
    skipped = rows_of(skipped_location(str(tmp_path / "table")), "from_offset", "until_offset", "reason")
    gone = [offset for row in skipped for offset in range(row["from_offset"], row["until_offset"])]
    assert sorted(gone) == sorted(set(range(COUNT)) - set(left))
    assert {row["reason"] for row in skipped} == {"missing"}


def test_a_load_of_a_compacted_topic_counts_what_compaction_removed(broker, spark, left, tmp_path):
    report = load_topic(load_options(broker, "compacted", tmp_path / "table"), spark=spark)
    [loaded] = report.ranges
    assert (loaded.rows, loaded.compacted, loaded.missing) == (len(left), COUNT - len(left), 0)


def test_a_reload_leaves_rows_that_the_log_has_lost(broker, spark, left, tmp_path):
    accepting = load_options(broker, "holes", tmp_path / "table", accept_lost_offsets=True)
    load_topic(accepting, spark=spark)
    before = rows_of(tmp_path / "table", "offset")
    with pytest.raises(OffsetsLostError, match="choose the offsets before and after"):
        reload_topic(accepting, Selection(), spark=spark)
    assert rows_of(tmp_path / "table", "offset") == before
