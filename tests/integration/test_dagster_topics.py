"""Topics of a real broker become assets, are made where they are declared, and their offsets are reported."""

from datetime import UTC, date, datetime

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.impl import get_external_sensor_execution
from dagster_shared.error import DagsterError

from millrace.client import Admin, Cluster, ClusterMetadata, SyncProducer
from millrace.errors import BrokerError, ErrorCode
from millrace.records.record import NewRecord
from millrace_pipelines.declaration.cluster import read_state, write_topics
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topic_sensor import topics_sensor
from millrace_support.dagster_checks import counts_now
from millrace_support.declared import cluster_of, definitions_of, ticked


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def millrace(broker, tmp_path):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        admin_url=broker.admin_url,
        warehouse_dir=str(tmp_path / "warehouse"),
        schema_dir=str(tmp_path / "schemas"),
        master="local[1,3]",
    )


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def tick(instance, millrace, state):
    """Runs a tick of the sensor of a cluster that was defined by the state of that time."""

    def run(cursor=None, declared="undeclared_topics: load", topics=None):
        known = read_state(state).topics if topics is None else topics
        days = read_state(state).first_days
        sensor = topics_sensor(cluster_of(declared, *known, first_days=days), state)
        return ticked(sensor, instance, millrace, cursor)

    return run


def said(result):
    return result.skip_reason.skip_message


def moved(result):
    return [(event.asset_key.path[-1], event.metadata["records"].value) for event in result.asset_events]


STALE = "; the definitions know of these changes once the code location is loaded again"


def test_topics_come_and_go(cluster, tick, state):
    admin = Admin(cluster)
    assert said(tick()) == "0 topics, none moved"
    admin.create_topic("flights", 2)
    admin.create_topic("airlines", 1)
    first = tick()
    assert said(first) == "2 topics, 2 moved" + STALE
    assert read_state(state).topics == {"airlines", "flights"}
    assert said(tick(first.cursor, topics=[])) == "2 topics, none moved" + STALE
    seen = tick(first.cursor)
    assert said(seen) == "2 topics, none moved"
    admin.delete_topic("airlines")
    seen = tick(seen.cursor)
    assert said(seen) == "1 topic, none moved, 1 missing, and gone if the next look lacks them too"
    assert read_state(state).topics == {"airlines", "flights"}
    seen = tick(seen.cursor)
    assert said(seen) == "1 topic, none moved, 1 gone" + STALE
    assert read_state(state).topics == {"flights"}


def test_a_topic_that_moved_is_reported_once(cluster, tick, state):
    Admin(cluster).create_topic("flights", 2)
    write_topics(state, ["flights"])
    first = tick()
    assert moved(first) == [("flights", 0)]
    SyncProducer(cluster).send("flights", 1, [NewRecord(b"a"), NewRecord(b"b")])
    second = tick(first.cursor)
    assert moved(second) == [("flights", 2)]
    assert tick(second.cursor).asset_events == []


def test_the_day_of_a_topics_first_record_is_kept(cluster, tick, state):
    admin = Admin(cluster)
    for topic in ("flights", "empty"):
        admin.create_topic(topic, 2)
    first = tick()
    assert read_state(state).first_days == {}
    producer = SyncProducer(cluster)
    producer.send("flights", 0, [NewRecord(b"a", timestamp_ms=day_ms(5))])
    producer.send("flights", 1, [NewRecord(b"b", timestamp_ms=day_ms(3)), NewRecord(b"c", timestamp_ms=day_ms(4))])
    second = tick(first.cursor)
    assert said(second) == "2 topics, 1 moved" + STALE
    assert read_state(state).first_days == {"flights": date(2026, 3, 3)}
    admin.delete_records("flights", 1, 2)
    tick(second.cursor)
    assert read_state(state).first_days == {"flights": date(2026, 3, 3)}, "retention moves it no more"


def day_ms(day):
    return int(datetime(2026, 3, day, 12, tzinfo=UTC).timestamp() * 1000)


def test_a_recreated_topic_is_reported(cluster, tick, state):
    admin = Admin(cluster)
    admin.create_topic("flights", 1)
    write_topics(state, ["flights"])
    cursor = tick().cursor
    admin.delete_topic("flights")
    admin.create_topic("flights", 1)
    assert moved(tick(cursor)) == [("flights", 0)]


def test_the_cursor_of_an_older_version_is_no_hindrance(cluster, tick, state):
    Admin(cluster).create_topic("flights", 1)
    write_topics(state, ["flights", "gone"])
    seen = tick('{"flights": "id/0", "gone": "id/7"}')
    assert moved(seen) == [("flights", 0)]
    assert read_state(state).topics == {"flights", "gone"}


def test_one_bad_topic_is_left_out_and_the_rest_reported(cluster, tick, state, monkeypatch, capfd):
    admin = Admin(cluster)
    admin.create_topic("bad", 2)
    admin.create_topic("flights", 1)
    leader = ClusterMetadata.leader

    def no_leader_of_bad(metadata, topic, partition):
        if (topic, partition) == ("bad", 1):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "bad-1 has no leader at present")
        return leader(metadata, topic, partition)

    monkeypatch.setattr(ClusterMetadata, "leader", no_leader_of_bad)
    write_topics(state, ["bad", "flights"])
    seen = None
    for events in ([("flights", 0)], []):
        seen = tick(seen and seen.cursor)
        assert moved(seen) == events
    assert said(seen) == "2 topics, none moved, 1 left out, as the log of this tick says"
    assert "topic bad is left out: bad-1 has no leader at present" in capfd.readouterr().err


def test_declared_topics_are_made_as_they_are_declared(cluster, tick, state, capfd):
    declared = """
tables:
  - {topic: flights, partitions: 3, config: {retention.ms: 60000, cleanup.policy: compact, preallocate: false}}
  - {topic: plain}
  - {topic: wrong, config: {no.such.setting: 1}}
  - {pattern: orders-.*}
"""
    first = tick(declared=declared)
    assert said(first).startswith(
        "0 topics, none moved; created flights, plain; wrong refused, as the log of this tick"
    )
    assert "topic wrong can't be created: " in capfd.readouterr().err
    topics = cluster.metadata(None).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"flights": 3, "plain": 1}
    assert said(tick(first.cursor, declared)).startswith("2 topics, 2 moved; wrong refused")


def test_a_topic_that_is_not_as_declared_fails_its_check(cluster, instance, millrace):
    admin = Admin(cluster)
    admin.create_topic("flights", 2, config={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
    fits = "partitions: 2, config: {retention.ms: 1000, cleanup.policy: 'compact, delete'}"
    for settings, sentence in {
        fits: "The topic has its declared partitions and settings, of which there are 2.",
        "partitions: 4, config: {retention.ms: 5}": "The topic is not as declared: partitions is 2, declared 4; "
        "retention.ms is 1000, declared 5.",
        "config: {no.such: 1}": "The topic is not as declared: no.such is unknown to the cluster, declared 1.",
    }.items():
        defs = definitions_of(cluster_of(f"tables: [{{topic: flights, {settings}}}]"), millrace)
        job = defs.resolve_implicit_global_asset_job_def()
        checks = [dg.AssetCheckKey(dg.AssetKey(["millrace", "topic", "flights"]), "as_declared")]
        result = job.get_subset(asset_selection=set(), asset_check_selection=set(checks)).execute_in_process(
            instance=instance, resources={"millrace": millrace}
        )
        [evaluation] = result.get_asset_check_evaluations()
        assert (evaluation.description, evaluation.passed) == (sentence, settings == fits)


def test_the_check_of_a_declared_topic_counts_after_a_report_of_its_offsets(cluster, instance, millrace, tick):
    declared = "tables: [{topic: flights, partitions: 2}, {topic: plain}]"
    for name in ("flights", "plain"):
        Admin(cluster).create_topic(name, 2)
    topic = dg.AssetKey(["millrace", "topic", "flights"])
    first = tick(declared=declared)
    report(instance, first)
    assert [check.check_name for check in first.asset_events if isinstance(check, dg.AssetCheckEvaluation)] == [
        "as_declared"
    ]
    assert counts_now(instance, topic, "as_declared")

    SyncProducer(cluster).send("flights", 0, [NewRecord(b"1")])
    second = tick(first.cursor, declared)
    assert [type(event) for event in second.asset_events] == [dg.AssetMaterialization]
    report(instance, second)
    assert counts_now(instance, topic, "as_declared"), "no run has made a check since, and none has reported offsets"

    job = definitions_of(cluster_of(declared), millrace).resolve_implicit_global_asset_job_def()
    selection = {dg.AssetCheckKey(topic, "as_declared")}
    job.get_subset(asset_selection=set(), asset_check_selection=selection).execute_in_process(
        instance=instance, resources={"millrace": millrace}
    )
    SyncProducer(cluster).send("flights", 0, [NewRecord(b"2")])
    report(instance, tick(second.cursor, declared))
    assert counts_now(instance, topic, "as_declared")


def report(instance, result):
    """Reports what a tick found, as the daemon does."""
    for event in result.asset_events:
        instance.report_runless_asset_event(event)


def test_without_the_broker_the_tick_fails_with_one_sentence_and_no_topic_is_gone(broker, tick, millrace, state):
    write_topics(state, ["flights"])
    broker.stop()
    host, _, port = broker.bootstrap.rpartition(":")
    with pytest.raises(DagsterError, match=f"no broker answers at {host}:{port}: Connection refused"):
        tick()
    assert read_state(state).topics == {"flights"}

    sensor = topics_sensor(cluster_of("", "flights"), state)
    repository = dg.Definitions(sensors=[sensor], resources={"millrace": millrace}).get_repository_def()
    target = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=__file__))
    told = get_external_sensor_execution(repository, target, None, "topics_millrace", None, None, None, None, None)
    assert told.error.to_string().strip() == f"no broker answers at {host}:{port}: Connection refused"
