"""Watches over processes, whose places sockets take: when an end is told, and when it is not."""

import queue
import socket
import threading

import pytest

from millrace.addresses import LOOPBACK, Address
from millrace.errors import BrokerUnreachableError
from millrace_broker.controller import process_watch
from millrace_broker.controller.process_watch import ProcessWatch, is_refused

WAIT_S = 60


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(process_watch, "SHORT_LIVED_PAUSE_S", 0.01)
    monkeypatch.setattr(process_watch, "RETRY_PAUSE_S", 0.01)


class Connected:
    """A connection over which nothing is to be said any more."""

    def __init__(self, address):
        self.socket = socket.create_connection(address)

    def hand_over(self):
        return self.socket


class Process:
    """A process that listens: it may break connections, stop listening, and do both, as at its end."""

    def __init__(self):
        self.listener = socket.create_server((LOOPBACK, 0))
        self.address = Address(LOOPBACK, self.listener.getsockname()[1])
        self.taken = queue.SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                self.taken.put(self.listener.accept()[0])
            except OSError:
                return

    def stop_listening(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def process():
    return Process()


@pytest.fixture
def ended():
    return queue.SimpleQueue()


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_broken_connection_and_refused_ones_are_the_end_of_a_process(process, ended, is_reset):
    ProcessWatch("it", process.address, Connected, lambda: ended.put("told"))
    connection = process.taken.get(timeout=WAIT_S)
    process.stop_listening()
    if is_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    assert ended.get(timeout=WAIT_S) == "told"


@pytest.mark.parametrize("said", [b"", b"not asked for"])
def test_a_process_that_still_listens_has_not_ended(process, ended, said):
    watch = ProcessWatch("it", process.address, Connected, lambda: ended.put("told"))
    for _ in range(3):
        connection = process.taken.get(timeout=WAIT_S)
        connection.sendall(said)
        connection.close()
    process.taken.get(timeout=WAIT_S)
    assert ended.empty()
    watch.close()


def test_a_process_that_was_never_reached_may_be_alive_to_all_others(process, ended):
    tries = queue.SimpleQueue()

    def refused(address):
        tries.put(address)
        raise BrokerUnreachableError("refused")

    process.stop_listening()
    watch = ProcessWatch("it", process.address, refused, lambda: ended.put("told"))
    assert [tries.get(timeout=WAIT_S) for _ in range(3)] == 3 * [process.address]
    assert ended.empty()
    watch.close()


def test_a_watch_that_is_closed_tells_nothing_and_ends(process, ended):
    before = set(threading.enumerate())
    watch = ProcessWatch("it", process.address, Connected, lambda: ended.put("told"))
    (own,) = {one for one in threading.enumerate() if one.name == "watch-over-it"} - before
    connection = process.taken.get(timeout=WAIT_S)
    watch.close()
    watch.close()
    own.join(WAIT_S)
    assert not own.is_alive()
    process.stop_listening()
    connection.close()
    assert ended.empty()


def test_a_connection_that_was_refused_once_is_asked_for_again(process, ended, monkeypatch):
    """As while a process starts again at once."""
    answers = iter([True, False, False, True, True])  # the second time it is asked the listener is there again
    monkeypatch.setattr(process_watch, "is_refused", lambda _: next(answers))
    ProcessWatch("it", process.address, Connected, lambda: ended.put("told"))
    process.taken.get(timeout=WAIT_S).close()
    again = process.taken.get(timeout=WAIT_S)
    assert ended.empty()
    again.close()
    assert ended.get(timeout=WAIT_S) == "told"


def test_a_listener_that_ends_a_moment_after_the_connections_is_noticed(process, ended, monkeypatch):
    """A process that ends closes its descriptors one by one; at the beginning of a watch, too, this is noticed soon."""
    answers = iter([False, True, True])
    monkeypatch.setattr(process_watch, "SHORT_LIVED_PAUSE_S", 10 * WAIT_S)
    monkeypatch.setattr(process_watch, "is_refused", lambda _: next(answers))

    def connect(address):
        if not process.taken.empty():
            raise BrokerUnreachableError("refused")
        return Connected(address)

    ProcessWatch("it", process.address, connect, lambda: ended.put("told"))
    connection = process.taken.get(timeout=WAIT_S)
    process.taken.put("has been taken")
    connection.close()
    assert ended.get(timeout=WAIT_S) == "told"


def test_who_refuses(process, monkeypatch):
    assert not is_refused(process.address)
    process.stop_listening()
    assert is_refused(process.address)
    assert not is_refused(Address("no-such-host.invalid", 1))


@pytest.mark.parametrize(
    ("errors", "refuses"),
    [
        ([ConnectionRefusedError()], True),
        ([OSError("no route"), ConnectionRefusedError()], True),  # a name of which one address can't be reached at all
        ([ConnectionRefusedError(), TimeoutError()], False),
        ([OSError("no route")], False),
    ],
)
def test_each_address_of_a_name_is_asked(monkeypatch, errors, refuses):
    def fail(address, timeout, *, all_errors):
        assert all_errors
        raise ExceptionGroup("none connects", errors)

    monkeypatch.setattr(socket, "create_connection", fail)
    assert is_refused(Address("name", 1)) is refuses
