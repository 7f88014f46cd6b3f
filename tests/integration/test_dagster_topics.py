"""Topics of a real broker become partitions, and their offsets are reported."""

import json

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
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
    assert tick(instance, millrace)[:2] == (["airlines", "flights"], [])
    instance.add_dynamic_partitions("topics", ["airlines", "flights"])
    assert tick(instance, millrace)[:2] == ([], [])
    admin.delete_topic("airlines")
    assert tick(instance, millrace)[:2] == ([], ["airlines"])


def test_a_topic_that_moved_is_reported_once(cluster, instance, millrace):
    Admin(cluster).create_topic("flights", 2)
    first = tick(instance, millrace)[2]
    assert [event.metadata["records"].value for event in first.asset_events] == [0]
    SyncProducer(cluster).send("flights", 1, [NewRecord(b"a"), NewRecord(b"b")])
    second = tick(instance, millrace, first.cursor)[2]
    assert [event.metadata["records"].value for event in second.asset_events] == [2]
    assert tick(instance, millrace, second.cursor)[2].asset_events == []


def test_a_recreated_topic_has_another_version(cluster, instance, millrace):
    admin = Admin(cluster)
    admin.create_topic("flights", 1)
    before = json.loads(tick(instance, millrace)[2].cursor)
    admin.delete_topic("flights")
    admin.create_topic("flights", 1)
    assert json.loads(tick(instance, millrace)[2].cursor) != before


def test_without_the_broker_no_partition_is_removed(broker, instance, millrace):
    instance.add_dynamic_partitions("topics", ["flights"])
    broker.stop()
    with pytest.raises(Exception, match=broker.bootstrap.rpartition(":")[2]):
        tick(instance, millrace)
