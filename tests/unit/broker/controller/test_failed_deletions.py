"""A broker that refuses to delete its replica is asked again, by the controller's own thread."""

import threading

import pytest

from millrace.addresses import plaintext_endpoint
from millrace.clock import SystemClock
from millrace.errors import ErrorCode
from millrace.uuids import NO_TOPIC_ID
from millrace.zk import codec, paths
from millrace_broker.controller import controller as module
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.control_requests import BrokerResponse, StopReplicaRequest
from millrace_broker.controller.controller import Controller
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper

WAIT_S = 60
REFUSALS = 3


class Channels:
    """Answers that the broker has deleted its replica after it has refused that some times."""

    def __init__(self, on_response):
        self.on_response = on_response
        self.stops = 0
        self.deleted = threading.Event()

    def open(self, broker):
        self.epoch = broker.epoch

    def close(self, broker):
        pass

    def send(self, broker, requests):
        for request in requests:
            if isinstance(request, StopReplicaRequest):
                self.stops += 1
                is_refused = self.stops <= REFUSALS
                error = ErrorCode.UNKNOWN_SERVER_ERROR if is_refused else ErrorCode.NONE
                self.on_response(BrokerResponse(broker, self.epoch, request, error, {}))
                if not is_refused:
                    self.deleted.set()


class PlayedController(Controller):
    """A controller whose brokers are played."""

    def _new_channels(self, on_response, on_ended):
        self.channels = Channels(on_response)
        return self.channels


@pytest.fixture
def zookeeper(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    endpoints = (plaintext_endpoint("127.0.0.1", 1),)
    registration = codec.BrokerRegistration(endpoints=endpoints, rack=None, timestamp_ms=0)
    zookeeper.put(paths.broker(1), codec.encode_broker(registration))
    topic = codec.TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((1,),))
    zookeeper.put(paths.topic("t"), codec.encode_topic(topic))
    zookeeper.put(paths.delete_topic("t"), b"")
    return zookeeper


def test_a_broker_is_asked_until_it_has_deleted_its_replica(zookeeper):
    controller = PlayedController(ModelSession(zookeeper), 1, ControllerConfig(), lambda _: None, SystemClock())
    controller.start()
    assert controller.asked(ActiveController.reassignments).result(WAIT_S) == {}
    assert controller.channels.deleted.wait(WAIT_S)
    assert controller.asked(ActiveController.reassignments).result(WAIT_S) == {}
    assert paths.topic("t") not in zookeeper.nodes
    assert paths.delete_topic("t") not in zookeeper.nodes
    controller.stop()
    assert controller.channels.stops == REFUSALS + 1


def test_a_controller_that_resigns_asks_nobody_again(zookeeper):
    controller = PlayedController(ModelSession(zookeeper), 1, ControllerConfig(), lambda _: None, SystemClock())
    controller._claim_role()
    controller._next_event()()  # the broker's refusal
    assert controller._ask_again_at_s is not None
    controller._resign()
    assert controller._timed_events() == []
