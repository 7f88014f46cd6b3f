"""A channel of the controller: what fails is sent again, whatever the failure is, and in order."""

import queue
from typing import NamedTuple

import pytest

from millrace.addresses import Address, Endpoint
from millrace.errors import AnswerLostError
from millrace_broker.controller.broker_channels import BrokerChannels
from millrace_broker.controller.cluster_state import LiveBroker
from millrace_broker.controller.control_requests import UpdateMetadataRequest

WAIT_S = 60
BROKER = LiveBroker(7, 100, (Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9092),))


class Taken(NamedTuple):
    error_code: int = 0


class Connections:
    """Connections that fail in turn as they are told to; then each request is answered."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.addresses = []
        self.sent = []

    def connect(self, address):
        self.addresses.append(address)
        return self

    def request(self, api, fields):
        self.sent.append(fields["controller_epoch"])
        if self.failures:
            raise self.failures.pop(0)
        return Taken()

    def close(self):
        """Closes nothing."""


def update(number):
    return UpdateMetadataRequest({"controller_id": 1, "controller_epoch": number, "live_brokers": []})


@pytest.mark.parametrize("failure", [AnswerLostError("lost"), OSError("no route"), KeyError("a fault of the code")])
def test_a_request_is_sent_again_on_another_connection_and_the_next_ones_follow(failure, caplog):
    answers, connections = queue.Queue(), Connections(failure, failure)
    channels = BrokerChannels(connections.connect, answers.put, lambda _: None)
    channels.open(BROKER)
    channels.send(7, [update(1), update(2)])
    assert [answers.get(timeout=WAIT_S).request for _ in range(2)] == [update(1), update(2)]
    channels.close(7)
    assert (connections.sent, connections.addresses) == ([1, 1, 1, 2], 3 * [Address("host", 9092)])
    assert caplog.text.count("broker 7 is asked again and again") == 1
    assert ("Traceback" in caplog.text) is not isinstance(failure, AnswerLostError)


def test_a_broker_is_reached_by_the_listener_of_brokers_alone(caplog):
    inner = Endpoint("INTERNAL", "PLAINTEXT", "inner", 1)
    answers, connections = queue.Queue(), Connections()
    channels = BrokerChannels(connections.connect, answers.put, lambda _: None, "INTERNAL")
    channels.open(LiveBroker(7, 100, (Endpoint("PLAINTEXT", "PLAINTEXT", "outer", 9092), inner)))
    channels.send(7, [update(1)])
    answers.get(timeout=WAIT_S)
    channels.close(7)
    assert connections.addresses == [inner.address]
