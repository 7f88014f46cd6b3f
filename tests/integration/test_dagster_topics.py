"""Topics of a real broker become partitions, and their offsets are reported."""

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.impl import get_external_sensor_execution
from dagster_shared.error import DagsterError

from millrace.client import Admin, Cluster, ClusterMetadata, SyncProducer
from millrace.errors import BrokerError, ErrorCode
from millrace.records.record import NewRecord
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.sensors import topics


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


def tick(instance, millrace, cursor=None):
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    result = topics(context, millrace=millrace)
    added, removed = result.dynamic_partitions_requests
    return added.partition_keys, removed.partition_keys, result


def test_topics_come_and_go(cluster, instance, millrace):
    admin = Admin(cluster)
    assert tick(instance, millrace)[:2] == ([], [])
    admin.create_topic("flights", 2)
    admin.create_topic("airlines", 1)
    added, removed, seen = tick(instance, millrace)
    assert (added, removed) == (["airlines", "flights"], [])
    instance.add_dynamic_partitions("topics", ["airlines", "flights"])
    added, removed, seen = tick(instance, millrace, seen.cursor)
    assert (added, removed, seen.skip_reason.skip_message) == ([], [], "2 topics, none moved")
    admin.delete_topic("airlines")
    added, removed, seen = tick(instance, millrace, seen.cursor)
    assert (added, removed) == ([], [])
    assert seen.skip_reason.skip_message == "1 topic, none moved, 1 missing, and gone if the next look lacks them too"
    added, removed, seen = tick(instance, millrace, seen.cursor)
    assert (added, removed, seen.skip_reason.skip_message) == ([], ["airlines"], "1 topic, none moved, 1 gone")


def test_a_topic_that_moved_is_reported_once(cluster, instance, millrace):
    Admin(cluster).create_topic("flights", 2)
    first = tick(instance, millrace)[2]
    assert [event.metadata["records"].value for event in first.asset_events] == [0]
    SyncProducer(cluster).send("flights", 1, [NewRecord(b"a"), NewRecord(b"b")])
    second = tick(instance, millrace, first.cursor)[2]
    assert [event.metadata["records"].value for event in second.asset_events] == [2]
    assert tick(instance, millrace, second.cursor)[2].asset_events == []


def test_a_recreated_topic_is_reported(cluster, instance, millrace):
    admin = Admin(cluster)
    admin.create_topic("flights", 1)
    cursor = tick(instance, millrace)[2].cursor
    admin.delete_topic("flights")
    admin.create_topic("flights", 1)
    assert [event.partition for event in tick(instance, millrace, cursor)[2].asset_events] == ["flights"]


def test_the_cursor_of_an_older_version_is_no_hindrance(cluster, instance, millrace):
    Admin(cluster).create_topic("flights", 1)
    instance.add_dynamic_partitions("topics", ["flights", "gone"])
    added, removed, seen = tick(instance, millrace, '{"flights": "id/0", "gone": "id/7"}')
    assert (added, removed, len(seen.asset_events)) == ([], [], 1)


def test_one_bad_topic_is_left_out_and_the_rest_reported(cluster, instance, millrace, monkeypatch, capfd):
    admin = Admin(cluster)
    admin.create_topic("bad", 2)
    admin.create_topic("flights", 1)
    leader = ClusterMetadata.leader

    def no_leader_of_bad(metadata, topic, partition):
        if (topic, partition) == ("bad", 1):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "bad-1 has no leader at present")
        return leader(metadata, topic, partition)

    monkeypatch.setattr(ClusterMetadata, "leader", no_leader_of_bad)
    instance.add_dynamic_partitions("topics", ["bad", "flights"])
    seen = None
    for events in (["flights"], []):
        added, removed, seen = tick(instance, millrace, seen and seen.cursor)
        assert (added, removed, [event.partition for event in seen.asset_events]) == ([], [], events)
    assert seen.skip_reason.skip_message == "2 topics, none moved, 1 left out, as the log of this tick says"
    assert "topic bad is left out: bad-1 has no leader at present" in capfd.readouterr().err


def test_without_the_broker_the_tick_fails_with_one_sentence_and_no_partition_is_removed(broker, instance, millrace):
    instance.add_dynamic_partitions("topics", ["flights"])
    broker.stop()
    host, _, port = broker.bootstrap.rpartition(":")
    with pytest.raises(DagsterError, match=f"no broker answers at {host}:{port}: Connection refused"):
        tick(instance, millrace)
    assert instance.get_dynamic_partitions("topics") == ["flights"]

    repository = dg.Definitions(sensors=[topics], resources={"millrace": millrace}).get_repository_def()
    target = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=__file__))
    told = get_external_sensor_execution(repository, target, None, "topics", None, None, None, None, None)
    assert told.error.to_string().strip() == f"no broker answers at {host}:{port}: Connection refused"
