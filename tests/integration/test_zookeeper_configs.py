"""Configurations, partitions and deletions in ZooKeeper's nodes, as Kafka writes them and other tools change them."""

import json
import queue
from dataclasses import replace
from uuid import uuid4

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.clock import SystemClock
from millrace.errors import ErrorCode, UnknownTopicError
from millrace.testing.broker import BrokerProcess
from millrace.zk import codec, paths
from millrace.zk.operations import Create, Delete, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster import zookeeper_nodes
from millrace_broker.cluster.metadata_image import ALL_BROKERS, BrokerInfo, PartitionInfo, TopicInfo
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_support.waiting import until

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
    """A store, and the images that it tells of."""

    def __init__(self, address, broker_id):
        self.images = queue.Queue()
        self.store = ZooKeeperStore(address, SystemClock())
        self.store.start(self.images.put)
        self.store.register_broker(BrokerInfo(broker_id, "127.0.0.1", 9092))

    def until(self, holds):
        image = self.store.image()
        while not holds(image):
            self.images.get(timeout=WAIT_S)
            image = self.store.image()
        return image


@pytest.fixture
def observe(address):
    opened = []

    def start(broker_id):
        opened.append(Observed(address, broker_id))
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
    assert one.store.image().topic_configs["t"] == {"retention.ms": "8"}, "who changes it sees it at once"
    one.store.set_broker_config("1", {"log.retention.ms": "9"})
    one.store.set_broker_config(ALL_BROKERS, {"log.retention.ms": "10"})
    assert json.loads(raw.get("/config/topics/t")) == {"version": 1, "config": {"retention.ms": "8"}}
    assert json.loads(raw.get("/config/brokers/<default>")) == {"version": 1, "config": {"log.retention.ms": "10"}}
    changes = [json.loads(raw.get(f"/config/changes/{name}")) for name in sorted(raw.children("/config/changes"))]
    assert changes == [
        {"version": 2, "entity_path": path} for path in ("topics/t", "brokers/1", f"brokers/{ALL_BROKERS}")
    ]
    image = other.until(lambda image: len(image.broker_configs) == 2)
    assert image.broker_configs == {"1": {"log.retention.ms": "9"}, ALL_BROKERS: {"log.retention.ms": "10"}}
    other.until(lambda image: image.topic_configs.get("t") == {"retention.ms": "8"})
    with pytest.raises(UnknownTopicError):
        one.store.set_topic_config("nobody", {})


def test_old_notifications_are_removed(observe, raw, monkeypatch):
    monkeypatch.setattr(zookeeper_nodes, "LIFE_MS", -60_000)
    one = observe(1)
    for value in ("1", "2"):
        one.store.set_broker_config("1", {"log.retention.ms": value})
    assert raw.children("/config/changes") == []


def test_what_another_tool_writes_takes_effect(observe, raw):
    one = observe(1)
    one.store.create_topic(topic("t", 1))
    data = codec.encode_config({"retention.ms": "5"})
    assert raw.transact([SetData(paths.topic_config("t"), data)]) is None
    one.until(lambda image: image.topic_configs.get("t") == {"retention.ms": "5"})
    assert raw.transact([Delete(paths.topic_config("t"))]) is None
    one.until(lambda image: image.topic_configs.get("t", {}) == {})
    change = Create(paths.CONFIG_CHANGE, codec.encode_config_change("topics/t"), sequential=True)
    assert raw.transact([Create(paths.topic_config("t"), data), change]) is None
    one.until(lambda image: image.topic_configs.get("t") == {"retention.ms": "5"})
    assert raw.transact([Create(paths.broker_config("1"), b"no JSON")]) is None
    assert raw.transact([Create(paths.broker_config("2"), codec.encode_config({"a": "b"}))]) is None
    assert one.until(lambda image: image.broker_configs).broker_configs == {"2": {"a": "b"}}


def await_topics(cluster, holds):
    """Waits until the topics of a cluster are as they should be."""
    until(lambda: cluster.metadata(None).topics, holds)


def test_partitions_and_deletions_of_another_tool_take_effect(tmp_path, address, raw):
    with BrokerProcess(tmp_path / "data", zookeeper=address) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 1)
        assignment = codec.decode_topic(raw.get(paths.topic("t")))
        longer = replace(assignment, replicas=((1,),) * 5)
        assert raw.transact([SetData(paths.topic("t"), codec.encode_topic(longer))]) is None
        await_topics(cluster, lambda topics: len(topics["t"].partitions) == 5)
        assert codec.decode_partition_state(raw.get(paths.partition_state("t", 4))).leader == 1
        assert raw.transact([Create(paths.delete_topic("t")), Create(paths.delete_topic("nobody"))]) is None
        await_topics(cluster, lambda topics: "t" not in topics)
        Admin(cluster).create_topic("t", 2)
        assert codec.decode_topic(raw.get(paths.topic("t"))).topic_id != assignment.topic_id
        assert raw.children(paths.DELETE_TOPICS) in ([], ["nobody"])
        assert sorted(one.name for one in (tmp_path / "data").glob("t-?")) == ["t-0", "t-1"]


def test_a_wish_is_dropped_where_topics_may_not_be_deleted(tmp_path, address, raw):
    properties = {"delete.topic.enable": "false"}
    with (
        BrokerProcess(tmp_path / "data", zookeeper=address, properties=properties) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        Admin(cluster).create_topic("t", 1)
        assert raw.transact([Create(paths.delete_topic("t"))]) is None
        Admin(cluster).create_topic("later", 1)
        assert set(cluster.metadata(None).topics) == {"t", "later"}
        until(lambda: not raw.children(paths.DELETE_TOPICS))


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


def test_properties_of_users_clients_and_addresses_are_in_kafkas_nodes_and_seen_by_all(observe, raw):
    one, other = observe(1), observe(2)
    written = {
        "users/alice": {"producer_byte_rate": "1"},
        "users/bob%2C%20cn/clients/app": {"consumer_byte_rate": "2"},
        "clients/<default>": {"request_percentage": "3"},
        "ips/127.0.0.1": {"connection_creation_rate": "4"},
    }
    for entity, config in written.items():
        one.store.set_client_config(entity, config)
        assert one.store.image().client_configs[entity] == config, "who changes it sees it at once"
        assert json.loads(raw.get(f"/config/{entity}")) == {"version": 1, "config": config}
    changes = [json.loads(raw.get(f"/config/changes/{name}")) for name in sorted(raw.children("/config/changes"))]
    assert changes == [{"version": 2, "entity_path": entity} for entity in written]
    other.until(lambda image: image.client_configs == written)
    one.store.set_client_config("users/alice", {})
    other.until(lambda image: image.client_configs == {**written, "users/alice": {}})


def test_what_another_tool_writes_about_clients_takes_effect(observe, raw):
    one = observe(1)
    data = codec.encode_config({"request_percentage": "5"})
    assert raw.transact([Create("/config/clients/app", data)]) is None
    one.until(lambda image: image.client_configs == {"clients/app": {"request_percentage": "5"}})
    for path in ("/config/users/alice", "/config/users/alice/clients"):
        raw.create(path, b"")
    change = Create(paths.CONFIG_CHANGE, codec.encode_config_change("users/alice/clients/app"), sequential=True)
    assert raw.transact([Create("/config/users/alice/clients/app", data), change]) is None
    one.until(lambda image: image.client_configs.get("users/alice/clients/app") == {"request_percentage": "5"})
