"""The ZooKeeper store against a real server: registration, expiry, restarts, topics seen by others."""

import json
import queue
import socket
import threading
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from millrace.clock import SystemClock
from millrace.errors import BrokerIdTakenError, TopicExistsError, UnknownTopicError, ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.embedded import EmbeddedZooKeeper
from millrace.zk.operations import Create, Delete, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster import zookeeper_store
from millrace_broker.cluster.topics import assign_replicas
from millrace_broker.cluster.view import BrokerInfo, PartitionInfo, TopicInfo
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_broker.storage import TopicPartition

SESSION_TIMEOUT_MS = 4000
WAIT_S = 120


class Observed:
    """A started store, and the views that it told of."""

    def __init__(self, address):
        self.store = ZooKeeperStore(
            address, SystemClock(), session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=60_000
        )
        self._views = queue.Queue()
        self.store.start(self._views.put)

    def until(self, holds):
        deadline = time.monotonic() + WAIT_S
        view = self.store.view()
        while not holds(view):
            view = self._views.get(timeout=deadline - time.monotonic())
        return view


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
    replicas = assign_replicas(brokers, partitions, 1, start=0, shift=0)
    infos = tuple(PartitionInfo(index, one[0], 0, one, one) for index, one in enumerate(replicas))
    return TopicInfo(name, uuid4(), infos, config or {})


def expire(address, client_id):
    """End a session on the server: a second connection with its id and password closes it."""
    from kazoo.client import KazooClient

    twin = KazooClient(hosts=address, timeout=SESSION_TIMEOUT_MS / 1000, client_id=client_id)
    twin.start(timeout=60)
    twin.stop()
    twin.close()


def await_other_owner(address, path, session_id):
    """Until the ephemeral node is another session's: it may be gone and created again before anyone has looked."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address)
    client.start(timeout=WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while (found := client.exists(path)) is None or found.ephemeralOwner == session_id:
        assert time.monotonic() < deadline
    client.stop()
    client.close()


def test_a_registration_is_kafkas_and_goes_with_the_store(observe, raw):
    one, other = observe(), observe()
    one.store.register_broker(broker(5, 1234))
    fields = json.loads(raw.get(paths.broker(5)))
    assert (fields["endpoints"], fields["version"]) == (["PLAINTEXT://localhost:1234"], 5)
    view = other.until(lambda view: 5 in view.brokers)
    assert view.controller_id == 5
    one.store.close()
    assert other.until(lambda view: not view.brokers).controller_id == -1


def test_a_second_broker_with_the_id_is_refused_and_told_who_holds_it(observe, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "REGISTRATION_MARGIN_MS", -SESSION_TIMEOUT_MS)
    one, other = observe(), observe()
    one.store.register_broker(broker(1, 1111))
    with pytest.raises(BrokerIdTakenError, match="held by a live broker at localhost:1111"):
        other.store.register_broker(broker(1, 2222))
    assert other.until(lambda view: 1 in view.brokers).brokers == {1: broker(1, 1111)}


def test_a_restarted_broker_waits_for_the_session_of_its_killed_process(observe, raw):
    one, other = observe(), observe()
    one.store.register_broker(broker(1, 1111))
    waiting = threading.Thread(target=other.store.register_broker, args=[broker(1, 2222)])
    waiting.start()
    one.store.close()
    waiting.join(WAIT_S)
    assert other.until(lambda view: view.brokers == {1: broker(1, 2222)})


def test_the_lowest_live_id_is_the_controller(observe):
    one, other = observe(), observe()
    one.store.register_broker(broker(2))
    other.store.register_broker(broker(1, 9093))
    assert one.until(lambda view: len(view.brokers) == 2).controller_id == 1
    other.store.close()
    assert one.until(lambda view: len(view.brokers) == 1).controller_id == 2


def test_an_expired_session_is_replaced_and_the_broker_registered_again(address, observe):
    one, other = observe(), observe()
    one.store.register_broker(broker(1))
    other.until(lambda view: 1 in view.brokers)
    expired_id = one.store.session.client_id
    expire(address, expired_id)
    await_other_owner(address, paths.broker(1), expired_id[0])
    assert one.store.session.client_id[0] != expired_id[0]
    other.until(lambda view: 1 in view.brokers)
    other.store.create_topic(topic("after"))
    assert one.until(lambda view: "after" in view.topics), "watches are set again"


def test_zookeeper_is_killed_and_comes_back(tmp_path, observe):
    with EmbeddedZooKeeper(tmp_path) as server:
        one, other = observe(server.address), observe(server.address)
        one.store.register_broker(broker(1))
        one.store.create_topic(topic("before"))
        other.until(lambda view: "before" in view.topics)
        server.kill()
        with pytest.raises(ZooKeeperError):
            one.store.create_topic(topic("meanwhile"))
        assert set(one.store.view().topics) == {"before"}, "the last view stays while there is no ZooKeeper"
        server.start()
        create_when_back(other.store, topic("after"))
        view = one.until(lambda view: {"before", "after"} <= set(view.topics) and 1 in view.brokers)
        assert view.brokers == {1: broker(1)}
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
        ids.put(observe(f"{address}/race").store.view().cluster_id)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    [cluster_id] = {ids.get_nowait() for _ in threads}
    assert len(cluster_id) == 22
    assert json.loads(raw.get("/race/cluster/id")) == {"version": "1", "id": cluster_id}


def test_topics_are_seen_by_every_store(observe, raw):
    one, other = observe(), observe()
    one.store.register_broker(broker(1))
    new = topic("t", 3, config={"retention.ms": "7"})
    one.store.create_topic(new)
    assert one.store.view().topics["t"] == new, "who creates a topic sees it at once"
    assert other.until(lambda view: "t" in view.topics).topics["t"] == new
    assert json.loads(raw.get(paths.topic("t")))["partitions"] == {"0": [1], "1": [1], "2": [1]}
    assert json.loads(raw.get(paths.partition_state("t", 2)))["leader"] == 1
    with pytest.raises(TopicExistsError):
        other.store.create_topic(topic("t"))
    other.store.delete_topic("t")
    assert one.until(lambda view: "t" not in view.topics)
    assert raw.tree(paths.topic("t")) + raw.tree(paths.topic_config("t")) == []
    with pytest.raises(UnknownTopicError):
        one.store.delete_topic("t")


def test_a_recreated_topic_has_its_new_id_everywhere(observe):
    one, other = observe(), observe()
    one.store.create_topic(topic("t"))
    other.until(lambda view: "t" in view.topics)
    one.store.delete_topic("t")
    again = topic("t", 2)
    one.store.create_topic(again)
    assert other.until(lambda view: view.topics.get("t") == again)


def test_racing_creators_make_one_topic(observe):
    stores = [observe().store for _ in range(4)]
    outcomes = queue.Queue()

    def create(store):
        new = topic("t")
        try:
            store.create_topic(new)
            outcomes.put(new.topic_id)
        except (TopicExistsError, ZooKeeperError):
            outcomes.put(None)

    threads = [threading.Thread(target=create, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    [created] = {outcomes.get_nowait() for _ in threads} - {None}
    assert observe().store.view().topics["t"].topic_id == created


def test_a_topic_above_the_size_of_a_transaction(observe, raw):
    one = observe()
    one.store.register_broker(broker(1))
    new = topic("big", zookeeper_store.PARTITIONS_PER_TRANSACTION + 20)
    one.store.create_topic(new)
    assert one.store.view().topics["big"] == new
    assert len(raw.children(paths.partitions("big"))) == len(new.partitions), "the leader has written the rest"
    one.store.delete_topic("big")
    assert raw.tree(paths.topic("big")) == []


def test_states_that_a_crash_left_out_are_the_initial_ones_and_written_by_their_leader(observe, raw):
    creator = observe()
    new = topic("t", 4, brokers=(1, 2))
    creator.store.create_topic(new)
    nodes = [node for index in (1, 2) for node in reversed(list(state_nodes("t", index)))]
    assert raw.transact([Delete(node) for node in nodes]) is None
    second = observe()
    assert second.store.view().topics["t"] == new
    second.store.register_broker(broker(2))
    assert raw.get(paths.partition_state("t", 1)) is not None, "broker 2 leads partition 1"
    assert raw.get(paths.partition_state("t", 2)) is None, "partition 2 is for broker 1"


def state_nodes(name, index):
    yield paths.partition(name, index)
    yield paths.partition_state(name, index)


def test_a_node_that_is_no_topic_is_passed_over(observe, raw):
    assert raw.create(paths.topic("strange"), b"not JSON")
    one = observe()
    one.store.create_topic(topic("fine"))
    assert set(one.store.view().topics) == {"fine"}


def test_a_transaction_is_all_or_nothing_and_names_what_stood_in_the_way(raw):
    assert raw.transact([Create("/a", b"1"), Create("/b", b"2")]) is None
    assert raw.transact([Create("/c"), Create("/a"), Create("/d")]) == "/a"
    assert raw.get_many(["/a", "/c", "/d"]) == [b"1", None, None]


def leader_epochs(view, name="events"):
    return [partition.leader_epoch for partition in view.topics[name].partitions]


def test_raised_leader_epochs_are_seen_by_all_and_never_go_back(observe, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "NODES_PER_TRANSACTION", 3)
    one, other = observe(), observe()
    one.store.register_broker(broker(1))
    one.store.create_topic(topic("events", 8))
    one.store.raise_leader_epochs({TopicPartition("events", index): index for index in range(8)})
    assert leader_epochs(one.store.view()) == list(range(8))
    other.until(lambda view: "events" in view.topics and leader_epochs(view) == list(range(8)))
    one.store.raise_leader_epochs(
        {TopicPartition("events", 7): 3, TopicPartition("events", 0): 9, TopicPartition("gone", 0): 1}
    )
    assert leader_epochs(one.store.view()) == [9, *range(1, 8)]
    assert {each.leader for each in one.store.view().topics["events"].partitions} == {1}


def test_what_another_controller_has_noted_is_kept(observe, raw):
    store = observe().store
    store.register_broker(broker(1))
    store.create_topic(topic("events"))
    assignment = codec.decode_topic(raw.get(paths.topic("events")))
    moving = replace(assignment, replicas=((2, 1),), adding_replicas={0: (2,)}, removing_replicas={0: (1,)})
    state = codec.decode_partition_state(raw.get(paths.partition_state("events", 0)))
    recovering = replace(state, leader_recovery_state=1)
    raw.transact(
        [
            SetData(paths.topic("events"), codec.encode_topic(moving)),
            SetData(paths.partition_state("events", 0), codec.encode_partition_state(recovering)),
        ]
    )
    store.add_partitions("events", [PartitionInfo(1, 1, 0, (1,), (1,))])
    assert codec.decode_topic(raw.get(paths.topic("events"))) == replace(moving, replicas=((2, 1), (1,)))
    store.raise_leader_epochs({TopicPartition("events", 0): 5})
    raised = codec.decode_partition_state(raw.get(paths.partition_state("events", 0)))
    assert raised == replace(recovering, leader_epoch=5)


def test_an_assignment_that_another_changes_meanwhile_is_not_overwritten(observe, raw, monkeypatch):
    store = observe().store
    store.create_topic(topic("events"))
    path = paths.topic("events")
    moving = replace(codec.decode_topic(raw.get(path)), replicas=((2, 1),), adding_replicas={0: (2,)})
    transact = store.session.transact

    def changed_before_the_write(operations):
        raw.transact([SetData(path, codec.encode_topic(moving))])
        return transact(operations)

    monkeypatch.setattr(store.session, "transact", changed_before_the_write)
    with pytest.raises(ZooKeeperError, match="was changed by another broker"):
        store.add_partitions("events", [PartitionInfo(1, 1, 0, (1,), (1,))])
    assert codec.decode_topic(raw.get(path)) == moving


def test_a_state_that_another_changes_meanwhile_is_read_again(observe, raw, monkeypatch):
    store = observe().store
    store.register_broker(broker(1))
    store.create_topic(topic("events", 2))
    path = paths.partition_state("events", 0)
    read = store.session.nodes

    def changed_after_the_read(wanted, **how):
        found = read(wanted, **how)
        if wanted[:1] == [path] and not how and not done:
            done.append(True)
            raw.transact([SetData(path, found[0].data.replace(b'"leader_epoch":0', b'"leader_epoch":5'))])
        return found

    done = []
    monkeypatch.setattr(store.session, "nodes", changed_after_the_read)
    store.raise_leader_epochs({TopicPartition("events", index): 3 for index in range(2)})
    assert (done, leader_epochs(store.view())) == ([True], [5, 3])
