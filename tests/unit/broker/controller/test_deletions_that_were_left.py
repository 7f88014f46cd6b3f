"""A controller that dies while it deletes a topic: the next one ends the deletion, wherever it was, and nothing else.

The first controller dies before one of its transactions, for each of them, and each transaction has few operations. So
all states are met in which it may leave the nodes. The brokers have deleted all of their logs by then, or some.
"""

import pytest

from millrace.addresses import plaintext_endpoint
from millrace.errors import ErrorCode, ZooKeeperError
from millrace.uuids import NO_TOPIC_ID
from millrace.zk import codec, paths
from millrace.zk.operations import Delete
from millrace_broker.controller import controller_store
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.claims import claim_controller
from millrace_broker.controller.control_requests import BrokerResponse, StopReplicaRequest
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper

BROKERS = (1, 2)
PARTITIONS = 6  # so that the topic is the last node of a transaction that has no room for the request
OTHER = TopicPartition("other", 0)


class DeathError(ZooKeeperError):
    """The controller's process has ended."""


class MortalSession(ModelSession):
    """A session that ends before its transactions go on once `left` of them are done."""

    left = None

    def multi(self, operations):
        if self.left is not None:
            if not self.left:
                raise DeathError
            self.left -= 1
        return super().multi(operations)


class Channels:
    """Keeps what is sent."""

    def __init__(self):
        self.sent = []

    def open(self, broker):
        pass

    def close(self, broker):
        pass

    def send(self, broker, requests):
        self.sent += [(broker, one) for one in requests]


class Played:
    """A controller, its session and what it has sent."""

    def __init__(self, zookeeper):
        self.session = MortalSession(zookeeper)
        if paths.CONTROLLER in zookeeper.nodes:
            zookeeper.delete(paths.CONTROLLER)
        store = ControllerStore(self.session, claim_controller(self.session, 1, 0))
        self.channels = Channels()
        self.active = ActiveController(
            1, ControllerConfig(), store, self.channels, ElectionCounts(), lambda: pytest.fail("nothing has failed")
        )
        self.active.start()

    def all_answer(self, brokers=BROKERS):
        """Has brokers delete what they are asked for."""
        sent, self.channels.sent = self.channels.sent, []
        for broker, request in sent:
            if isinstance(request, StopReplicaRequest) and broker in brokers:
                epoch = self.active.cluster.brokers[broker].epoch
                self.active.answered(BrokerResponse(broker, epoch, request, ErrorCode.NONE, {}))


@pytest.fixture
def zookeeper(monkeypatch):
    monkeypatch.setattr(controller_store, "WRITES_PER_TRANSACTION", 3)
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    registration = codec.BrokerRegistration(endpoints=(plaintext_endpoint("127.0.0.1", 1),), rack=None, timestamp_ms=0)
    for broker in BROKERS:
        zookeeper.put(paths.broker(broker), codec.encode_broker(registration))
    create(zookeeper, "t", PARTITIONS)
    create(zookeeper, "other", 1)
    return zookeeper


def create(zookeeper, name, partitions):
    assignment = codec.TopicAssignment(topic_id=NO_TOPIC_ID, replicas=(BROKERS,) * partitions)
    zookeeper.put(paths.topic(name), codec.encode_topic(assignment))
    zookeeper.put(paths.topic_config(name), codec.encode_config({"retention.ms": "7"}))


def nodes_of(zookeeper, name):
    own = (paths.topic(name), paths.topic_config(name), paths.delete_topic(name))
    return [one for one in zookeeper.nodes if one in own or one.startswith(f"{own[0]}/")]


def is_left(zookeeper, transactions):
    """Has a controller die after so many transactions of a deletion; returns whether it came to that."""
    first = Played(zookeeper)
    zookeeper.put(paths.delete_topic("t"), b"")
    first.session.left = transactions
    try:
        first.active.read_deletions()
        first.all_answer()
    except DeathError:
        return True
    return False


def goes_on(zookeeper):
    """Has the next controller end the deletion."""
    second = Played(zookeeper)
    second.all_answer()
    assert nodes_of(zookeeper, "t") == []
    assert second.active.cluster.leaders.keys() == {OTHER}
    assert nodes_of(zookeeper, "other")


def test_the_next_controller_deletes_the_nodes_that_are_left(zookeeper):
    whole, transactions = dict(zookeeper.nodes), 0
    while is_left(zookeeper, transactions):
        assert paths.topic("t") in zookeeper.nodes or paths.delete_topic("t") not in zookeeper.nodes
        goes_on(zookeeper)
        zookeeper.nodes = dict(whole)
        transactions += 1
    assert transactions > 3, "there are states between the first and the last"
    goes_on(zookeeper)


@pytest.mark.parametrize("brokers", [(), (1,), (2,), BROKERS])
def test_the_next_controller_has_all_replicas_deleted(zookeeper, brokers):
    first = Played(zookeeper)
    zookeeper.put(paths.delete_topic("t"), b"")
    first.active.read_deletions()
    first.all_answer(brokers)
    goes_on(zookeeper)


def test_a_request_without_its_topic_goes_before_the_next_topic_of_the_name(zookeeper):
    """Apache Kafka's controllers delete the request after the topic."""
    zookeeper.put(paths.delete_topic("gone"), b"")
    Played(zookeeper)
    assert nodes_of(zookeeper, "gone") == []


def test_the_request_to_delete_a_topic_that_was_not_read_yet_stays_until_it_is(zookeeper):
    played = Played(zookeeper)
    create(zookeeper, "late", 1)
    zookeeper.put(paths.delete_topic("late"), b"")
    played.active.read_deletions()
    assert paths.delete_topic("late") in zookeeper.nodes
    played.active.read_topics()
    assert TopicPartition("late", 0) not in played.active.cluster.leaders
    played.all_answer()
    assert nodes_of(zookeeper, "late") == []


def test_a_topic_that_cant_be_read_is_deleted_once_it_can(zookeeper):
    topic = zookeeper.nodes[paths.topic("t")].data
    played = Played(zookeeper)
    zookeeper.put(paths.delete_topic("t"), b"")
    played.active.read_deletions()
    zookeeper.put(paths.topic("t"), b"{")
    played.active.read_topics()
    played.all_answer()
    zookeeper.put(paths.topic("t"), topic)
    played.active.read_topics()
    played.all_answer()
    assert nodes_of(zookeeper, "t") == []


def test_the_nodes_of_a_topic_that_others_have_deleted_already_do_not_matter(zookeeper):
    played = Played(zookeeper)
    zookeeper.put(paths.delete_topic("t"), b"")
    played.active.read_deletions()
    for path in sorted(nodes_of(zookeeper, "t"), reverse=True):
        played.session.multi([Delete(path)])
    played.all_answer()
    assert nodes_of(zookeeper, "t") == []
