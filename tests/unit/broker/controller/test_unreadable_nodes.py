"""A node in ZooKeeper that can't be read costs what it says, and nothing else of what the controller reads."""

import pytest

from millrace.addresses import plaintext_endpoint
from millrace.uuids import NO_TOPIC_ID
from millrace.zk import codec, paths
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.claims import claim_controller
from millrace_broker.controller.controller import WATCHED
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper

FIRST, OTHER, STUCK, NEW = (TopicPartition(name, 0) for name in ("first", "other", "stuck", "new"))
STATE = codec.encode_partition_state(
    codec.PartitionState(leader=1, leader_epoch=3, isr=(1,), controller_epoch=1, leader_recovery_state=0)
)
OF_A_LOST_BROKER = STATE.replace(b'"isr":[1]', b'"isr":[9]').replace(b'"leader":1', b'"leader":9')
ALONE = codec.TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((1,),))
NONSENSE = [b"{", b"\xff\xfe", b"[]", b"{}", b'"x"', b"null", b"7", b'{"version":1}']
STATES = [
    *NONSENSE,
    b"",
    STATE.replace(b'"leader_epoch":3', b'"leader_epoch":2147483647'),
    STATE.replace(b'"leader_epoch":3', b'"leader_epoch":-3'),
    STATE.replace(b"[1]", b'["x"]'),
]


class Channels:
    """Sends nothing."""

    def open(self, broker):
        pass

    def close(self, broker):
        pass

    def send(self, broker, requests):
        pass


@pytest.fixture
def zookeeper():
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    endpoints = (plaintext_endpoint("127.0.0.1", 1),)
    registration = codec.BrokerRegistration(endpoints=endpoints, rack=None, timestamp_ms=0)
    zookeeper.put(paths.broker(1), codec.encode_broker(registration))
    for key, state in ((FIRST, STATE), (OTHER, STATE), (STUCK, OF_A_LOST_BROKER), (NEW, None)):
        zookeeper.put(paths.topic(key.topic), codec.encode_topic(ALONE))
        if state is not None:
            zookeeper.put(paths.partition_state(*key), state)
    return zookeeper


def controller_of(zookeeper):
    session = ModelSession(zookeeper)
    claim = claim_controller(session, 1, 0)
    store, counts = ControllerStore(session, claim), ElectionCounts()
    controller = ActiveController(1, ControllerConfig(), store, Channels(), counts, lambda: None)
    controller.start()
    read_all(controller)
    return controller


def read_all(controller):
    for read in WATCHED.values():
        read(controller)


def leaders(controller):
    return {key.topic: state.leader for key, state in controller.cluster.leaders.items()}


def test_every_node_can_be_read(zookeeper):
    assert leaders(controller_of(zookeeper)) == {"first": 1, "other": 1, "stuck": -1, "new": 1}


@pytest.mark.parametrize("data", STATES)
def test_a_partition_whose_state_cant_be_read_has_no_leader_and_the_others_have(zookeeper, data, caplog):
    node = paths.partition_state(*FIRST)
    zookeeper.put(node, data)
    controller = controller_of(zookeeper)
    assert leaders(controller) == {"other": 1, "stuck": -1, "new": 1}
    assert f"first-0 has no leader: {node} can't be read" in caplog.text
    assert zookeeper.nodes[node].data == data
    zookeeper.put(node, STATE)
    read_all(controller)
    assert leaders(controller) == {"first": 1, "other": 1, "stuck": -1, "new": 1}


@pytest.mark.parametrize("data", NONSENSE)
@pytest.mark.parametrize(
    ("path", "without"),
    [
        (paths.topic("first"), "first"),
        (paths.topic_config("stuck"), ""),
        (paths.broker(2), ""),
        (f"{paths.BROKER_IDS}/two", ""),
        (f"{paths.ISR_CHANGES}/isr_change_1", ""),
        (f"{paths.LOG_DIR_EVENTS}/log_dir_event_1", ""),
        (paths.REASSIGNMENT, ""),
        (paths.SEEN_BROKER_EPOCHS, ""),
        (paths.PREFERRED_ELECTION, ""),
        (f"{paths.DELETE_TOPICS}/unknown", ""),
    ],
)
def test_what_cant_be_read_is_left_out_whether_it_is_there_first_or_later(zookeeper, path, without, data):
    known = {"first": 1, "other": 1, "stuck": -1, "new": 1}
    known.pop(without, None)
    zookeeper.put(path, data)
    controller = controller_of(zookeeper)
    assert leaders(controller) == known
    zookeeper.put(path, data)
    read_all(controller)
    assert leaders(controller) == known
