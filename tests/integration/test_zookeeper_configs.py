"""Configurations, partitions and deletions in ZooKeeper's nodes, as Kafka writes them and other tools change them."""

import json
import queue
from uuid import uuid4

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.clock import SystemClock
from millrace.errors import ErrorCode, InvalidPartitionsError, UnknownTopicError
from millrace.testing.broker import BrokerProcess
from millrace.zk import codec, paths
from millrace.zk.operations import Create, Delete, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster import zookeeper_store
from millrace_broker.cluster.view import ALL_BROKERS, BrokerInfo, PartitionInfo, TopicInfo
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore

WAIT_S = 120


@pytest.fixture
def address(zookeeper):
    return f"{zookeeper.address}/{uuid4().hex}"


@pytest.fixture
def raw(address):
    session = ZooKeeperSession(
        address, session_timeout_ms=18_000, connection_timeout_ms=18_000, on_change=lambda _: None, clock=SystemClock()
    )
    session.start()
    yield session
    session.close()


class Observed:
    """A store, and the views that it tells of."""

    def __init__(self, address, broker_id, **options):
        self.views = queue.Queue()
        self.store = ZooKeeperStore(address, SystemClock(), **options)
        self.store.start(self.views.put)
        self.store.register_broker(BrokerInfo(broker_id, "127.0.0.1", 9092))

    def until(self, holds):
        view = self.store.view()
        while not holds(view):
            self.views.get(timeout=WAIT_S)
            view = self.store.view()
        return view


@pytest.fixture
def observe(address):
    opened = []

    def start(broker_id, **options):
        opened.append(Observed(address, broker_id, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.store.close()


def topic(name, partitions, config=None):
    return TopicInfo(name, uuid4(), added(0, partitions), config or {})


def added(first, end):
    return tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(first, end))


def test_a_changed_configuration_is_in_kafkas_nodes_and_seen_by_all(observe, raw):
    one, other = observe(1), observe(2)
    one.store.create_topic(topic("t", 1, {"retention.ms": "7"}))
    one.store.set_topic_config("t", {"retention.ms": "8"})
    assert one.store.view().topics["t"].config == {"retention.ms": "8"}, "who changes it sees it at once"
    one.store.set_broker_config("1", {"log.retention.ms": "9"})
    one.store.set_broker_config(ALL_BROKERS, {"log.retention.ms": "10"})
    assert json.loads(raw.get("/config/topics/t")) == {"version": 1, "config": {"retention.ms": "8"}}
    assert json.loads(raw.get("/config/brokers/<default>")) == {"version": 1, "config": {"log.retention.ms": "10"}}
    changes = [json.loads(raw.get(f"/config/changes/{name}")) for name in sorted(raw.children("/config/changes"))]
    assert changes == [
        {"version": 2, "entity_path": path} for path in ("topics/t", "brokers/1", f"brokers/{ALL_BROKERS}")
    ]
    view = other.until(lambda view: len(view.broker_configs) == 2)
    assert view.broker_configs == {"1": {"log.retention.ms": "9"}, ALL_BROKERS: {"log.retention.ms": "10"}}
    other.until(lambda view: view.topics["t"].config == {"retention.ms": "8"})
    with pytest.raises(UnknownTopicError):
        one.store.set_topic_config("nobody", {})


def test_old_notifications_are_removed(observe, raw, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "NOTIFICATION_LIFE_MS", -60_000)
    one = observe(1)
    for value in ("1", "2"):
        one.store.set_broker_config("1", {"log.retention.ms": value})
    assert raw.children("/config/changes") == []


def test_what_another_tool_writes_takes_effect(observe, raw):
    one = observe(1)
    one.store.create_topic(topic("t", 1))
    data = codec.encode_config({"retention.ms": "5"})
    assert raw.transact([SetData(paths.topic_config("t"), data)]) is None
    one.until(lambda view: view.topics["t"].config == {"retention.ms": "5"})
    assert raw.transact([Delete(paths.topic_config("t"))]) is None
    one.until(lambda view: view.topics["t"].config == {})
    change = Create(paths.config_change(), codec.encode_config_change("topics/t"), sequential=True)
    assert raw.transact([Create(paths.topic_config("t"), data), change]) is None
    one.until(lambda view: view.topics["t"].config == {"retention.ms": "5"})
    assert raw.transact([Create(paths.broker_config("1"), b"no JSON")]) is None
    assert raw.transact([Create(paths.broker_config("2"), codec.encode_config({"a": "b"}))]) is None
    assert one.until(lambda view: view.broker_configs).broker_configs == {"2": {"a": "b"}}


def test_partitions_are_added_once_and_those_of_another_tool_get_their_states(observe, raw):
    one, other = observe(1), observe(2)
    first = topic("t", 1)
    one.store.create_topic(first)
    one.store.add_partitions("t", added(1, 3))
    assert json.loads(raw.get(paths.topic("t")))["partitions"] == {"0": [1], "1": [1], "2": [1]}
    assert json.loads(raw.get(paths.topic("t")))["topic_id"] == codec.encode_id(first.topic_id)
    assert json.loads(raw.get(paths.partition_state("t", 2)))["leader"] == 1
    other.until(lambda view: len(view.topics.get("t", first).partitions) == 3)
    with pytest.raises(InvalidPartitionsError, match="3 partitions by now"):
        other.store.add_partitions("t", added(1, 2))
    with pytest.raises(UnknownTopicError):
        one.store.add_partitions("nobody", added(1, 2))
    longer = codec.TopicAssignment(topic_id=first.topic_id, replicas=((1,),) * 5)
    assert raw.transact([SetData(paths.topic("t"), codec.encode_topic(longer))]) is None
    one.until(lambda view: len(view.topics["t"].partitions) == 5)
    assert json.loads(raw.get(paths.partition_state("t", 4)))["leader"] == 1


def test_many_partitions_are_added(observe, raw):
    one = observe(1)
    one.store.create_topic(topic("t", 1))
    count = zookeeper_store.PARTITIONS_PER_TRANSACTION + 20
    one.store.add_partitions("t", added(1, count))
    assert len(one.store.view().topics["t"].partitions) == count
    assert len(raw.children(paths.partitions("t"))) == count


def test_the_controller_deletes_what_another_tool_wants_gone(observe, raw):
    one, other = observe(1), observe(2)
    one.store.create_topic(topic("t", 2))
    other.until(lambda view: "t" in view.topics)
    assert raw.transact([Create(paths.delete_topic("t")), Create(paths.delete_topic("nobody"))]) is None
    one.until(lambda view: "t" not in view.topics)
    other.until(lambda view: "t" not in view.topics)
    assert raw.tree(paths.topic("t")) + raw.tree(paths.topic_config("t")) + raw.children(paths.DELETE_TOPICS) == []


def test_a_wish_is_dropped_where_topics_may_not_be_deleted(observe, raw):
    one = observe(1, deletes_topics=False)
    one.store.create_topic(topic("t", 1))
    assert raw.transact([Create(paths.delete_topic("t"))]) is None
    one.store.create_topic(topic("later", 1))
    assert raw.children(paths.DELETE_TOPICS) == []
    assert "t" in one.store.view().topics


def test_a_broker_obeys_what_another_tool_writes(tmp_path, address, raw):
    with BrokerProcess(tmp_path / "data", zookeeper=address) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 1)
        Admin(cluster).create_partitions("t", 2)
        Configs(cluster).change(ResourceKind.TOPIC, "t", {"retention.ms": "5"})
        assert json.loads(raw.get("/config/topics/t"))["config"] == {"retention.ms": "5"}
        raw.transact([Create(paths.broker_config("1"), codec.encode_config({"message.max.bytes": "99"}))])
        Configs(cluster).change(ResourceKind.BROKER, "", {"log.segment.bytes": "100000"})
        found = {one.name: (one.value, one.source) for one in Configs(cluster).describe(ResourceKind.TOPIC, "t")}
        assert found["max.message.bytes"] == ("99", "broker, live")
        assert found["segment.bytes"] == ("100000", "all brokers, live")
        assert found["retention.ms"] == ("5", "topic")
        assert set(cluster.metadata(["t"]).topic("t").partitions) == {0, 1}


def test_a_topic_of_two_replicas_that_kafka_made_keeps_its_min_insync_replicas(tmp_path, address):
    with BrokerProcess(tmp_path / "data", zookeeper=address) as broker:
        other = ZooKeeperStore(address, SystemClock())
        other.start(lambda _: None)
        two_replicas = PartitionInfo(0, 1, 0, (1, 2), (1,))
        other.create_topic(TopicInfo("t", uuid4(), (two_replicas,), {"min.insync.replicas": "2"}))
        other.close()
        assert refusals(broker, "t", acks="all") == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert refusals(broker, "t", acks=1) == []


def refusals(broker, topic, **settings):
    errors = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "retries": 0, **settings})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return [error.code() for error in errors if error]
