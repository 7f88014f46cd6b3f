import socket
import threading

import pytest

from millrace.addresses import Address
from millrace.ports import free_port
from millrace.wire.api import ApiKey
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_support.relays import Relays
from millrace_support.waiting import awaited

A_MOMENT_S = 0.2
WAIT_S = 30.0


@pytest.fixture
def echo():
    """A server that sends back what it is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=[listener], daemon=True).start()
        yield Address(*listener.getsockname())


def serve(listener):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=[connection], daemon=True).start()


def answer(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


@pytest.fixture
def relays():
    with Relays() as opened:
        yield opened


def connected(relay):
    connection = socket.create_connection(relay.address)
    connection.settimeout(WAIT_S)
    return connection


def request(client_id):
    return framed(encode_request_header(ApiKey.FETCH, 17, 1, client_id), b"message")


def is_silent(connection):
    connection.settimeout(A_MOMENT_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(WAIT_S)


def exchange(connection, data):
    connection.sendall(data)
    return received(connection, len(data))


def received(connection, size):
    with connection.makefile("rb") as stream:
        return stream.read(size)


def test_bytes_pass_both_ways_and_the_first_answer_is_known(relays, echo):
    relay = relays.open(echo)
    with connected(relay) as connection:
        assert exchange(connection, b"one") == b"one"
        assert exchange(connection, b"two" * 100_000) == b"two" * 100_000
    assert relay.first_answers() == [b"one"]


def test_a_connection_that_the_server_ends_unanswered_has_no_first_answer(relays):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = relays.open(Address(*listener.getsockname()))
        with connected(relay) as connection:
            listener.accept()[0].close()
            assert connection.recv(1) == b""
    assert relay.first_answers() == []


def test_relays_end_with_connections_that_nobody_ends(echo):
    with Relays() as opened:
        relay = opened.open(echo)
        kept = [connected(relay) for _ in range(20)]
        assert exchange(kept[0], b"one") == b"one"
    for each in kept:
        with each:
            assert is_ended(each)


def is_ended(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_cut_holds_back_until_it_is_healed(relays, echo):
    relay = relays.open(echo)
    with connected(relay) as old:
        assert exchange(old, b"before") == b"before"
        relay.cut()
        with connected(relay) as new:
            for each in (old, new):
                each.sendall(b"during")
                assert is_silent(each)
            relay.heal()
            for each in (old, new):
                assert received(each, 6) == b"during"


def test_a_cut_that_breaks_connections_leaves_no_bytes(relays, echo):
    relay = relays.open(echo)
    with connected(relay) as old:
        assert exchange(old, b"before") == b"before"
        relay.cut()
        old.sendall(b"during")
        relay.heal(breaks=True)
        assert old.recv(1) == b""
    with connected(relay) as new:
        assert exchange(new, b"after") == b"after"


@pytest.mark.parametrize("client_id", ["2", "broker-2", "broker-2-fetcher-0"])
def test_a_cut_holds_for_one_broker(relays, echo, client_id):
    relay = relays.open(echo, knows_brokers=True)
    relay.cut([2])
    with connected(relay) as cut, connected(relay) as other, connected(relay) as client:
        cut.sendall(request(client_id))
        assert exchange(other, request("broker-12")) == request("broker-12")
        assert exchange(client, request("rdkafka")) == request("rdkafka")
        assert is_silent(cut)
        relay.heal()
        assert received(cut, len(request(client_id))) == request(client_id)


def test_a_server_that_does_not_listen_refuses_until_it_does(relays):
    address = Address("127.0.0.1", free_port())
    relay = relays.open(address)
    with connected(relay) as first:
        assert first.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connected(relay)
    with socket.create_server(address) as listener:
        threading.Thread(target=serve, args=[listener], daemon=True).start()
        with awaited(lambda: reached(relay), "the relay listens again") as second:
            assert exchange(second, b"one") == b"one"


def reached(relay):
    try:
        return connected(relay)
    except ConnectionRefusedError:
        return None
