"""What a load can't have, it says: gaps, topics created again, cut logs. And what it goes on without is on record."""

from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError, TopicRecreatedError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers, publish_skipped, read_ledger, skipped_location
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_pipelines.warehouse.tables.find import read_failed_loads


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def load(spark, shared_broker, tmp_path, request):
    """Loads this test's own topic, of two partitions, into its own table."""
    topic = request.node.name
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 2)

    def run(**how):
        listener = how.pop("listener", None)
        options = LoadOptions(topic=topic, table=str(tmp_path / "t"), bootstrap=shared_broker.bootstrap, **how)
        return load_topic(options, spark=spark, listener=listener)

    return run


def send(broker, topic, partition, count, value=b"v"):
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send(topic, partition, [NewRecord(value)] * count)


def delete_before(broker, topic, offsets):
    with Cluster(broker.bootstrap) as cluster:
        for partition, offset in offsets.items():
            Admin(cluster).delete_records(topic, partition, offset)


def skipped(tmp_path):
    files = Table.load(skipped_location(str(tmp_path / "t")), OsFileSystem()).files()
    rows = ds.dataset(files).to_table().sort_by([("time", "ascending"), ("partition", "ascending")]).to_pylist()
    return [(row["partition"], row["from_offset"], row["until_offset"], row["reason"]) for row in rows]


def failed_loads(tmp_path):
    """How many loads of the table have failed since one succeeded, and with what."""
    found = read_failed_loads(str(tmp_path / "t"), OsFileSystem())
    return None if found is None else (found.times, found.reason)


class KilledAt(SilentListener):
    def __init__(self, step):
        self.step = step

    def reached(self, step):
        if step is self.step:
            raise KeyboardInterrupt


def test_a_gap_stops_the_load_or_is_on_record(load, shared_broker, tmp_path, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 10)
    send(shared_broker, topic, 1, 4)
    load()
    send(shared_broker, topic, 0, 10)
    delete_before(shared_broker, topic, {0: 15})
    for times in (1, 2):
        with pytest.raises(OffsetsLostError, match=r"partition 0: 10-14.*--accept-lost-offsets") as raised:
            load()
        assert failed_loads(tmp_path) == (times, f"OffsetsLostError: {raised.value}")
    with pytest.raises(KeyboardInterrupt):
        load(accept_lost_offsets=True, listener=KilledAt(Step.COMMITTED))
    assert failed_loads(tmp_path)[0] == 2
    table = Table.load(str(tmp_path / "t"), OsFileSystem())
    assert publish_skipped(table, OsFileSystem()) == 1
    assert publish_skipped(table, OsFileSystem()) == 0
    assert skipped(tmp_path) == [(0, 10, 15, "retention")]
    assert read_ledger(str(tmp_path / "t")).next_offset(0) == 20
    assert audit(str(tmp_path / "t")) == []
    assert load().version is None
    assert failed_loads(tmp_path) is None


def test_a_topic_made_anew_gets_a_ledger_of_its_own(load, shared_broker, tmp_path, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 10)
    load()
    old = read_ledger(str(tmp_path / "t"))
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(topic)
        Admin(cluster).create_topic(topic, 1)
    send(shared_broker, topic, 0, 3, b"new")
    with pytest.raises(TopicRecreatedError, match=r"created again.*partition 0: 10.*--accept-recreated-topic"):
        load()
    assert failed_loads(tmp_path)[0] == 1
    assert load(accept_recreated_topic=True).rows == 3
    assert failed_loads(tmp_path) is None
    new = read_ledger(str(tmp_path / "t"))
    assert (new.topic_id != old.topic_id, new.next_offset(0)) == (True, 3)
    former = former_ledgers(Table.load(str(tmp_path / "t"), OsFileSystem()))
    assert former == {old.topic_id: old.partitions}
    assert skipped(tmp_path) == [(0, 10, None, "topic recreated"), (1, 0, None, "topic recreated")]
    assert load().version is None


def test_a_table_with_a_former_ledger_is_reloaded_beyond_it(load, spark, shared_broker, tmp_path, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 10)
    load()
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(topic)
        Admin(cluster).create_topic(topic, 2)
    send(shared_broker, topic, 0, 15, b"new")
    send(shared_broker, topic, 1, 4, b"new")
    load(accept_recreated_topic=True)
    options = LoadOptions(topic=topic, table=str(tmp_path / "t"), bootstrap=shared_broker.bootstrap)
    with pytest.raises(ModeError, match=r"of a former log at offsets of partition 0 up to 9, .* reload from 10 on"):
        reload_topic(options, Selection(from_offset=9), spark=spark)
    report = reload_topic(options, Selection(partitions=(0,), from_offset=10), spark=spark)
    assert (report.rows, report.removed_rows) == (5, 5)
    report = reload_topic(options, Selection(partitions=(1,)), spark=spark)
    assert (report.rows, report.removed_rows) == (4, 4)
    rows = ds.dataset(Table.load(str(tmp_path / "t"), OsFileSystem()).files()).to_table()
    assert rows.num_rows == 10 + 15 + 4


def test_a_topic_made_anew_under_the_load_stops_it(load, shared_broker, tmp_path, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 10)

    class MadeAnew(SilentListener):
        def tasks_done(self, done, total, records):
            if records and not self.done:
                self.done = True
                with Cluster(shared_broker.bootstrap) as cluster:
                    Admin(cluster).delete_topic(topic)
                    Admin(cluster).create_topic(topic, 2)

        done = False

    with pytest.raises(TopicRecreatedError, match="while it was loaded"):
        load(listener=MadeAnew())
    assert read_ledger(str(tmp_path / "t")).partitions == {}
    assert list(Path(tmp_path / "t").glob("*.parquet")) == []


def test_new_partitions_are_picked_up_and_runs_are_bounded(load, shared_broker, tmp_path, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 100)
    send(shared_broker, topic, 1, 10)
    report = load(max_records_per_run=50)
    assert (report.rows, report.lag) == (50, {0: 60, 1: 0})
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).create_partitions(topic, 3)
    send(shared_broker, topic, 2, 5)
    assert load().rows == 65
    assert {
        partition: entry.next_offset for partition, entry in read_ledger(str(tmp_path / "t")).partitions.items()
    } == {
        0: 100,
        1: 10,
        2: 5,
    }
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).create_partitions(topic, 4)
    send(shared_broker, topic, 3, 10)
    delete_before(shared_broker, topic, {3: 4})
    with pytest.raises(OffsetsLostError, match="partition 3: 0-3"):
        load()
    assert load(accept_lost_offsets=True).rows == 6
    assert skipped(tmp_path) == [(3, 0, 4, "retention")]
    assert audit(str(tmp_path / "t")) == []


def test_the_group_shows_the_ledger_and_its_failure_fails_no_load(load, shared_broker, request):
    topic = request.node.name
    send(shared_broker, topic, 0, 10)
    report = load(group="loads")
    with Cluster(shared_broker.bootstrap) as cluster:
        offsets = Groups(cluster).offsets("loads")
    assert {place: found.offset for place, found in offsets.items()} == {(topic, 0): 10, (topic, 1): 0}
    assert (report.group, report.group_error) == ("loads", None)
    send(shared_broker, topic, 0, 1)
    member = Consumer({"bootstrap.servers": shared_broker.bootstrap, "group.id": "taken"})
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    report = load(group="taken")
    member.close()
    assert report.rows == 1
    assert "UNKNOWN_MEMBER_ID" in report.group_error
    assert load(commit_group=False).group is None


def test_a_reload_commits_the_group_as_a_load_does(spark, shared_broker, tmp_path, request):
    topic = request.node.name
    with Cluster(shared_broker.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
    send(shared_broker, topic, 0, 10)
    options = LoadOptions(topic=topic, table=str(tmp_path / "t"), bootstrap=shared_broker.bootstrap, group="reloads")
    report = reload_topic(options, Selection(from_offset=4, until_offset=8), spark=spark)
    assert (report.rows, report.group, report.group_error) == (4, "reloads", None)
    with Cluster(shared_broker.bootstrap) as cluster:
        assert Groups(cluster).offsets("reloads")[topic, 0].offset == 8
    silent = replace(options, commit_group=False)
    assert reload_topic(silent, Selection(from_offset=4), spark=spark).group is None


def test_a_cut_log_stops_the_load_or_begins_another_ledger(spark, tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 2)
        options = LoadOptions(topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap)
        accepting = LoadOptions(
            topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap, accept_truncated_log=True
        )
        for partition, value in [(0, b"a"), (0, b"b"), (1, b"c")]:
            send(broker, "cut", partition, 10, value)
        load_topic(options, spark=spark)
        broker.kill()
        segment = tmp_path / "broker" / "cut-0" / f"{0:020d}.log"
        batches = list(walk(segment.read_bytes()))
        with segment.open("r+b") as file:
            file.truncate(batches[1][0])
        (tmp_path / "broker" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        broker.start()
        with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 10.*up to 19"):
            load_topic(options, spark=spark)
        send(broker, "cut", 0, 2, b"instead")
        report = load_topic(accepting, spark=spark)
        assert [(span.partition, span.from_offset, span.until_offset) for span in report.ranges] == [(0, 10, 12)]
        ledger = read_ledger(options.table)
        assert (ledger.generation, ledger.next_offset(0), ledger.next_offset(1)) == (1, 12, 10)
        assert skipped(tmp_path) == [(0, 10, 20, "log truncated")]
        assert load_topic(options, spark=spark).version is None


@pytest.mark.parametrize("has_grown", [True, False])
def test_a_log_that_was_cut_and_has_grown_past_the_ledger_stops_the_load(spark, tmp_path, has_grown):
    table = str(tmp_path / "t")
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 1)
        options = LoadOptions(topic="cut", table=table, bootstrap=broker.bootstrap)
        for value in (b"a", b"b"):
            send(broker, "cut", 0, 10, value)
        assert load_topic(options, spark=spark).rows == 20
        broker.kill()
        segment = tmp_path / "broker" / "cut-0" / f"{0:020d}.log"
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
        (tmp_path / "broker" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        broker.start()
        new = 15 if has_grown else 0
        if has_grown:
            send(broker, "cut", 0, new, b"new")
        with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 10.*up to 19"):
            load_topic(options, spark=spark)
        report = load_topic(replace(options, accept_truncated_log=True), spark=spark)
        assert report.rows == new
        assert skipped(tmp_path) == [(0, 10, 20, "log truncated")]
        values = ds.dataset(Table.load(table, OsFileSystem()).files()).to_table(columns=["value"])["value"].to_pylist()
        assert sorted(values) == [b"a"] * 10 + [b"b"] * 10 + [b"new"] * new
        assert audit(table) == []


def cut_at(broker, topic, offset):
    """Start the broker without the records from an offset on, as after a power cut."""
    broker.kill()
    (segment,) = broker.data_dir.glob(f"{topic}-0/*.log")
    size_bytes = next(position for position, header in walk(segment.read_bytes()) if header.base_offset == offset)
    with segment.open("r+b") as file:
        file.truncate(size_bytes)
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.start()


def test_a_second_cut_stops_the_load_though_nothing_was_loaded_since_the_first(spark, tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 1)
        options = LoadOptions(topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap)
        for _ in range(4):
            send(broker, "cut", 0, 5)
        assert load_topic(options, spark=spark).rows == 20
        cut_at(broker, "cut", 10)
        assert load_topic(replace(options, accept_truncated_log=True), spark=spark).rows == 0
        cut_at(broker, "cut", 5)
        send(broker, "cut", 0, 15, b"new")
        with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 5.*up to 9"):
            load_topic(options, spark=spark)
        assert load_topic(replace(options, accept_truncated_log=True), spark=spark).rows == 15
        assert skipped(tmp_path) == [(0, 10, 20, "log truncated"), (0, 5, 10, "log truncated")]
        assert audit(options.table) == []


def test_a_log_that_is_cut_under_the_load_and_grows_again_stops_it(spark, tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 1)
        options = LoadOptions(topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap)
        for _ in range(4):
            send(broker, "cut", 0, 5)
        assert load_topic(options, spark=spark).rows == 20
        send(broker, "cut", 0, 5)

        class CutOnceItIsPlanned(SilentListener):
            def reached(self, step):
                if step is Step.PLANNED:
                    cut_at(broker, "cut", 10)
                    send(broker, "cut", 0, 30, b"new")

        with pytest.raises(LogTruncatedError, match=r"partition 0.*offset 10"):
            load_topic(options, spark=spark, listener=CutOnceItIsPlanned())
        assert read_ledger(options.table).next_offset(0) == 20
        assert load_topic(replace(options, accept_truncated_log=True), spark=spark).rows == 30
        assert skipped(tmp_path) == [(0, 10, 20, "log truncated")]


@pytest.mark.parametrize("selection", [Selection(from_offset=5), Selection(until_table_begins=True)])
def test_a_reload_and_a_backfill_notice_a_log_that_was_cut_and_has_grown(spark, tmp_path, selection):
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 1)
        options = LoadOptions(topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap)
        for _ in range(4):
            send(broker, "cut", 0, 5)
        assert reload_topic(options, Selection(from_offset=5), spark=spark).rows == 15
        cut_at(broker, "cut", 10)
        send(broker, "cut", 0, 15, b"new")
        with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 10.*up to 19"):
            reload_topic(options, selection, spark=spark)
        with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 10.*up to 19"):
            load_topic(options, spark=spark)
        assert len(Table.load(options.table, OsFileSystem()).file_names()) == 1


def test_a_log_that_is_cut_under_a_reload_and_grows_again_stops_it(spark, tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("cut", 1)
        options = LoadOptions(topic="cut", table=str(tmp_path / "t"), bootstrap=broker.bootstrap)
        for _ in range(4):
            send(broker, "cut", 0, 5)
        version = load_topic(options, spark=spark).version

        class CutOnceItIsPlanned(SilentListener):
            def reached(self, step):
                if step is Step.PLANNED:
                    cut_at(broker, "cut", 10)
                    send(broker, "cut", 0, 30, b"new")

        with pytest.raises(LogTruncatedError, match=r"partition 0.*offset 10.*nothing was committed"):
            reload_topic(options, Selection(from_offset=0), spark=spark, listener=CutOnceItIsPlanned())
        assert Table.load(options.table, OsFileSystem()).version == version
        assert len(list(Path(tmp_path / "t").glob("*.parquet"))) == 1
