"""The ZooKeeper store against a real server: registration, expiry, restarts, what creators and deleters write."""

import json
import queue
import socket
import threading
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from millrace.clock import SystemClock
from millrace.errors import (
    BrokerIdTakenError,
    InvalidPartitionsError,
    TopicExistsError,
    UnknownTopicError,
    ZooKeeperError,
)
from millrace.zk import codec, paths
from millrace.zk.operations import Create, Delete, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.admin.requests import MAX_PARTITIONS
from millrace_broker.cluster import zookeeper_store
from millrace_broker.cluster.metadata_image import SUPPORTED, BrokerInfo, PartitionInfo, TopicInfo
from millrace_broker.cluster.metadata_update import MetadataUpdate, TopicUpdate, brokers_by_id
from millrace_broker.cluster.topics import assign_replicas
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_support.waiting import until
from millrace_support.zookeeper_sessions import expire

SESSION_TIMEOUT_MS = 20_000  # as long as a call may take; a busy machine ends no session
WAIT_S = 120


class Observed:
    """A started store, and the images that it told of."""

    def __init__(self, address):
        self.store = ZooKeeperStore(
            address, SystemClock(), session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=60_000
        )
        self._images = queue.Queue()
        self.store.start(self._images.put)

    def until(self, holds):
        deadline = time.monotonic() + WAIT_S
        image = self.store.image()
        while not holds(image):
            image = self._images.get(timeout=deadline - time.monotonic())
        return image


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def address(server):
    """A chroot of this test's own, two levels deep, that does not exist yet."""
    return f"{server.address}/tests/{uuid4().hex}"


@pytest.fixture
def observe(address):
    opened = []

    def start(at=address):
        opened.append(Observed(at))
        return opened[-1]

    yield start
    for observed in opened:
        observed.store.close()


@pytest.fixture
def raw(address, observe):
    """A session that looks at the nodes themselves."""
    observe()
    session = ZooKeeperSession(
        address,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        connection_timeout_ms=60_000,
        on_change=lambda _: None,
        clock=SystemClock(),
    )
    session.start()
    yield session
    session.close()


def broker(broker_id, port=9092):
    return BrokerInfo(broker_id, "localhost", port)


def topic(name, partitions=1, brokers=(1,), config=None):
    replicas = assign_replicas(dict.fromkeys(brokers), partitions, 1, start=0, shift=0)
    infos = tuple(PartitionInfo(index, one[0], 0, one, one) for index, one in enumerate(replicas))
    return TopicInfo(name, uuid4(), infos, config or {})


def await_other_owner(address, path, session_id):
    """Waits until the ephemeral node belongs to another session; that it was gone in between may go unseen."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=SESSION_TIMEOUT_MS / 1000)
    client.start(timeout=WAIT_S)
    until(lambda: client.exists(path), lambda found: found is not None and found.ephemeralOwner != session_id)
    client.stop()
    client.close()


def config_of(image, name="t"):
    return image.topic_configs.get(name)


def assignment(raw, name="t"):
    return codec.decode_topic(raw.get(paths.topic(name)))


def test_clients_are_offered_what_all_registered_brokers_support(observe, raw):
    one, two = observe(), observe()
    one.store.register_broker(broker(1))
    two.store.register_broker(broker(2))
    newest = two.store.broker_epoch
    for observed in (one, two):
        assert observed.until(lambda image: image.features.epoch == newest).features.levels == SUPPORTED
    kafka = json.dumps({"host": "h", "port": 9092, "timestamp": "0", "version": 5, "features": {}}).encode()
    raw.register(paths.broker(3), kafka, wait_ms=0)
    for observed in (one, two):
        assert observed.until(lambda image: image.features.levels == {}).features.epoch > newest
    raw.close()
    for observed in (one, two):
        observed.until(lambda image: image.features.levels == SUPPORTED)


def test_a_registration_is_kafkas_and_goes_with_the_store(observe, raw):
    store = observe().store
    assert store.broker_epoch == -1
    store.register_broker(broker(5, 1234))
    (node,) = raw.nodes([paths.broker(5)])
    fields = json.loads(node.data)
    assert (fields["endpoints"], fields["version"]) == (["PLAINTEXT://localhost:1234"], 5)
    assert store.broker_epoch == node.created_zxid
    store.close()
    assert raw.get(paths.broker(5)) is None


def test_an_adopted_topic_has_its_states_or_is_not_there(observe, raw):
    store = observe().store
    infos = tuple(PartitionInfo(index, 2, 105 + index, (2, 1), (2,)) for index in range(2))
    adopted = TopicInfo("t", uuid4(), infos, {"retention.ms": "7"})
    with pytest.raises(ZooKeeperError, match="topic t is not adopted: no broker has been the controller yet"):
        store.adopt_topic(adopted)
    assert (raw.get(paths.topic("t")), store.topic_id("t")) == (None, None)
    raw.create(paths.CONTROLLER_EPOCH, b"4")
    store.adopt_topic(adopted)
    assert store.topic_id("t") == adopted.topic_id
    assert assignment(raw) == codec.TopicAssignment(topic_id=adopted.topic_id, replicas=((2, 1), (2, 1)))
    states = raw.get_many([paths.partition_state("t", index) for index in range(2)])
    assert [codec.decode_partition_state(one) for one in states] == [
        codec.PartitionState(leader=2, leader_epoch=epoch, isr=(2,), controller_epoch=4) for epoch in (105, 106)
    ]
    with pytest.raises(TopicExistsError):
        store.adopt_topic(adopted)


def test_the_most_partitions_that_can_be_adopted_fit_into_one_transaction(observe, raw):
    store, name = observe().store, "n" * 249
    raw.create(paths.CONTROLLER_EPOCH, b"4")
    infos = tuple(PartitionInfo(index, 1, 2**31 - 1, (1, 2, 3, 4, 5), (1,)) for index in range(MAX_PARTITIONS))
    store.adopt_topic(TopicInfo(name, uuid4(), infos, {}))
    assert raw.exists(paths.partition_state(name, MAX_PARTITIONS - 1))


def test_a_second_broker_with_the_id_is_refused_and_told_who_holds_it(observe, raw, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "REGISTRATION_MARGIN_MS", -SESSION_TIMEOUT_MS)
    one, other = observe(), observe()
    one.store.register_broker(broker(1, 1111))
    with pytest.raises(BrokerIdTakenError, match="held by a live broker at localhost:1111"):
        other.store.register_broker(broker(1, 2222))
    assert codec.decode_broker(raw.get(paths.broker(1))).endpoints[0].port == 1111


def test_a_restarted_broker_waits_for_the_session_of_its_killed_process(observe, raw):
    one, other = observe(), observe()
    one.store.register_broker(broker(1, 1111))
    waiting = threading.Thread(target=other.store.register_broker, args=[broker(1, 2222)])
    waiting.start()
    one.store.close()
    waiting.join(WAIT_S)
    assert codec.decode_broker(raw.get(paths.broker(1))).endpoints[0].port == 2222


def test_an_expired_session_is_replaced_and_the_broker_registered_again(address, observe):
    one, other = observe(), observe()
    one.store.register_broker(broker(1))
    first_epoch, expired_id = one.store.broker_epoch, one.store.session.client_id
    expire(address, expired_id)
    await_other_owner(address, paths.broker(1), expired_id[0])
    assert one.store.session.client_id[0] != expired_id[0]
    other.store.create_topic(topic("after", config={"retention.ms": "7"}))
    assert one.until(lambda image: config_of(image, "after")), "watches are set again"
    assert one.store.broker_epoch > first_epoch


def test_zookeeper_is_killed_and_comes_back(tmp_path, observe):
    with EmbeddedZooKeeper(tmp_path) as server:
        one, other = observe(server.address), observe(server.address)
        one.store.register_broker(broker(1))
        one.store.create_topic(topic("before"))
        other.until(lambda image: "before" in image.topic_configs)
        server.kill()
        with pytest.raises(ZooKeeperError):
            one.store.create_topic(topic("meanwhile"))
        assert set(one.store.image().topic_configs) == {"before"}, "the last image stays while there is no ZooKeeper"
        server.start()
        create_when_back(other.store, topic("after"))
        one.until(lambda image: {"before", "after"} <= set(image.topic_configs))
        for observed in (one, other):
            observed.store.close()


def create_when_back(store, new):
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return store.create_topic(new)
        except ZooKeeperError:
            if time.monotonic() > deadline:
                raise


def test_no_zookeeper_at_the_start_is_a_clear_error():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        store = ZooKeeperStore(address, SystemClock(), connection_timeout_ms=300)
        with pytest.raises(ZooKeeperError, match=f"no ZooKeeper answers at {address} .waited 300 ms"):
            store.start(lambda _: None)
        store.close()


def test_the_cluster_id_is_made_once_by_whoever_is_first(address, observe, raw):
    ids = queue.Queue()
    barrier = threading.Barrier(6)

    def start():
        barrier.wait()
        ids.put(observe(f"{address}/race").store.image().cluster_id)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    [cluster_id] = {ids.get_nowait() for _ in threads}
    assert len(cluster_id) == 22
    assert json.loads(raw.get("/race/cluster/id")) == {"version": "1", "id": cluster_id}


def test_brokers_of_a_cluster_share_the_node_of_producer_ids(observe, raw):
    stores = [observe().store, observe().store]
    blocks = [stores[number % 2].reserve_producer_ids(number % 2 + 1, 0) for number in range(4)]
    assert [block.start for block in blocks] == [0, 1000, 2000, 3000]
    assert json.loads(raw.get(paths.PRODUCER_IDS)) == {
        "version": 1, "broker": 2, "block_start": "3000", "block_end": "3999",
    }  # fmt: skip


def test_a_creator_writes_configuration_and_assignment_alone(observe, raw):
    one, other = observe(), observe()
    one.store.create_topic(topic("t", 3, config={"retention.ms": "7"}))
    assert config_of(one.store.image()) == {"retention.ms": "7"}, "who creates a topic sees it at once"
    assert other.until(config_of)
    assert json.loads(raw.get(paths.topic("t")))["partitions"] == {"0": [1], "1": [1], "2": [1]}
    assert raw.children(paths.topic("t")) == []
    with pytest.raises(TopicExistsError):
        other.store.create_topic(topic("t"))


def test_topics_and_leaders_come_from_the_controller(observe):
    observed = observe()
    observed.store.create_topic(topic("t", config={"retention.ms": "7"}))
    assert observed.store.image().topics == {}
    led = PartitionInfo(0, 2, 4, (2, 1), (2,))
    update = MetadataUpdate(2, brokers_by_id([broker(1), broker(2)]), [TopicUpdate("t", uuid4(), [led])])
    observed.store.update(update)
    image = observed.until(lambda image: "t" in image.topics)
    assert (image.controller_id, list(image.brokers)) == (2, [1, 2])
    assert (image.topics["t"].partitions, image.topics["t"].config) == ((led,), {"retention.ms": "7"})
    observed.store.set_topic_config("t", {"retention.ms": "8"})
    assert observed.until(lambda image: config_of(image) == {"retention.ms": "8"}).topics["t"].partitions == (led,)


def test_a_deleter_names_the_topic_for_the_controller(observe, raw):
    one, other = observe(), observe()
    one.store.create_topic(topic("t"))
    one.store.delete_topic("t")
    other.store.delete_topic("t")
    assert raw.children(paths.DELETE_TOPICS) == ["t"]
    with pytest.raises(UnknownTopicError):
        one.store.delete_topic("unknown")


def test_racing_creators_make_one_topic(observe, raw):
    stores = [observe().store for _ in range(4)]
    outcomes = queue.Queue()

    def create(store):
        new = topic("t")
        try:
            store.create_topic(new)
            outcomes.put(new.topic_id)
        except TopicExistsError:
            outcomes.put(None)

    threads = [threading.Thread(target=create, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    [created] = {outcomes.get_nowait() for _ in threads} - {None}
    assert assignment(raw).topic_id == created


def test_a_configuration_that_goes_before_the_write_keeps_no_topic_from_being_created(observe, raw, monkeypatch):
    """Brokers hear of a deletion before the controller removes the topic's nodes, and its configuration with them."""
    store = observe().store
    raw.put(paths.topic_config("t"), codec.encode_config({"retention.ms": "5"}))
    transact = store.session.transact

    def gone_before_the_write(operations):
        if raw.exists(paths.topic_config("t")):
            raw.transact([Delete(paths.topic_config("t"))])
        return transact(operations)

    monkeypatch.setattr(store.session, "transact", gone_before_the_write)
    store.create_topic(topic("t", config={"retention.ms": "7"}))
    assert codec.decode_config(raw.get(paths.topic_config("t"))) == {"retention.ms": "7"}


def test_a_configuration_that_changes_before_each_write_is_named(observe, raw, monkeypatch):
    store = observe().store
    transact = store.session.transact

    def another_before_the_write(operations):
        change = Delete if raw.exists(paths.topic_config("t")) else Create
        raw.transact([change(paths.topic_config("t"))])
        return transact(operations)

    monkeypatch.setattr(store.session, "transact", another_before_the_write)
    with pytest.raises(ZooKeeperError, match="topic t is not created: /config/topics/t was changed by another broker"):
        store.create_topic(topic("t"))


def test_a_configuration_that_can_not_be_read_is_passed_over(observe, raw):
    assert raw.create(paths.topic_config("strange"), b"not JSON")
    one = observe()
    one.store.create_topic(topic("fine"))
    assert set(one.store.image().topic_configs) == {"fine"}


def test_a_transaction_is_all_or_nothing_and_names_what_stood_in_the_way(raw):
    assert raw.transact([Create("/a", b"1"), Create("/b", b"2")]) is None
    assert raw.transact([Create("/c"), Create("/a"), Create("/d")]) == "/a"
    assert raw.get_many(["/a", "/c", "/d"]) == [b"1", None, None]


def test_added_partitions_keep_what_another_controller_has_noted(observe, raw):
    store = observe().store
    store.create_topic(topic("t"))
    moving = replace(assignment(raw), replicas=((2, 1),), adding_replicas={0: (2,)}, removing_replicas={0: (1,)})
    raw.transact([SetData(paths.topic("t"), codec.encode_topic(moving))])
    store.add_partitions("t", [PartitionInfo(1, 1, 0, (1,), (1,))])
    assert assignment(raw) == replace(moving, replicas=((2, 1), (1,)))
    with pytest.raises(InvalidPartitionsError, match="topic t has 2 partitions by now"):
        store.add_partitions("t", [PartitionInfo(1, 1, 0, (1,), (1,))])
    with pytest.raises(UnknownTopicError):
        store.add_partitions("unknown", [PartitionInfo(1, 1, 0, (1,), (1,))])


def test_an_assignment_that_another_changes_meanwhile_is_not_overwritten(observe, raw, monkeypatch):
    store = observe().store
    store.create_topic(topic("t"))
    moving = replace(assignment(raw), replicas=((2, 1),), adding_replicas={0: (2,)})
    write = store.session.replace

    def changed_before_the_write(path, data, version):
        raw.transact([SetData(path, codec.encode_topic(moving))])
        return write(path, data, version)

    monkeypatch.setattr(store.session, "replace", changed_before_the_write)
    with pytest.raises(ZooKeeperError, match="was changed by another broker"):
        store.add_partitions("t", [PartitionInfo(1, 1, 0, (1,), (1,))])
    assert assignment(raw) == moving
