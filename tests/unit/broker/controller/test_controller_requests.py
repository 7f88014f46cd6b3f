"""Requests to a controller whose clients do not wait for the answer."""

import threading
from concurrent.futures import CancelledError

import pytest

from millrace.clock import SystemClock
from millrace.errors import NotControllerError
from millrace.zk import paths
from millrace.zk.codec import decode_controller_epoch
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.controller import Controller
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper

WAIT_S = 60


def no_connection(address):
    raise AssertionError(address)


def test_a_controller_that_has_stopped_refuses_requests():
    controller = Controller(ModelSession(ModelZooKeeper()), 1, ControllerConfig(), no_connection, SystemClock())
    controller.start()
    controller.stop()
    with pytest.raises(NotControllerError):
        controller.asked(ActiveController.reassignments).result(0)


def test_a_request_that_is_given_up_does_not_cost_the_role():
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    controller = Controller(ModelSession(zookeeper), 1, ControllerConfig(), no_connection, SystemClock())
    early = controller.asked(ActiveController.reassignments)
    early.cancel()
    controller.start()
    late = controller.asked(ActiveController.reassignments)
    assert late.result(WAIT_S) == {}
    with pytest.raises(CancelledError):
        early.result(WAIT_S)
    controller.stop()
    assert decode_controller_epoch(zookeeper.nodes[paths.CONTROLLER_EPOCH].data) == 1


class DeadSession(ModelSession):
    """A session whose ensemble is gone: a call waits until the session is closed."""

    def __init__(self, zookeeper):
        super().__init__(zookeeper)
        self.waits = threading.Event()
        self.closed = threading.Event()

    def children(self, path, *, watch=False):
        if self.is_lost:
            self.waits.set()
            assert self.closed.wait(WAIT_S)
        return super().children(path, watch=watch)


def test_a_controller_that_waits_for_zookeeper_stops_at_once():
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    session = DeadSession(zookeeper)
    controller = Controller(session, 1, ControllerConfig(), no_connection, SystemClock())
    controller.start()
    assert controller.asked(ActiveController.reassignments).result(WAIT_S) == {}
    session.is_lost = True
    controller.zookeeper_changed(frozenset({paths.BROKER_IDS}))
    assert session.waits.wait(WAIT_S)
    never = controller.asked(ActiveController.reassignments)
    controller.stop()
    assert not never.done(), "the event before still waits"
    session.closed.set()
    with pytest.raises(NotControllerError, match="stops"):
        never.result(WAIT_S)
