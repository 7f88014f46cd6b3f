"""TLS between a socket and a connection: every byte arrives, and little memory is kept."""

import asyncio
import ctypes
import gc
import ssl
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import TlsError
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net import tls
from millrace_broker.net.send import Outgoing
from millrace_broker.net.tls import RECEIVE_BYTES, RECORD_BYTES, TlsLayer
from millrace_broker.security.client_session import ANONYMOUS, Principal
from millrace_support.certificates import Authority
from millrace_support.until import until

AUTHORITY = Authority()
MAX_IDLE_BYTES = 64 << 10


def contexts(folder):
    files = AUTHORITY.issue().write(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.key_store_pem)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=AUTHORITY.pem)
    return server, client


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return contexts(tmp_path_factory.mktemp("tls"))


class Socket(asyncio.Transport):
    """A transport in memory: `sent` is what the peer has been sent."""

    def __init__(self):
        super().__init__({"peername": ("10.0.0.9", 4711), "socket": None})
        self.sent = bytearray()
        self.is_paused = self.is_closed = False

    def write(self, data):
        self.sent += data

    def writelines(self, parts):
        for part in parts:
            self.write(part)

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    abort = close

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, high=None, low=None):
        """Has no limits."""


class Received:
    """A connection that keeps what arrives, and pauses after so many bytes as it is told."""

    def __init__(self, buffer_bytes=1 << 20, pauses=()):
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.pauses = list(pauses)
        self.data = bytearray()
        self.principal = None
        self.peer = "10.0.0.9:4711"

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        self.is_lost = True

    def get_buffer(self, _):
        return self.buffer

    def buffer_updated(self, count):
        assert not self.is_waiting
        self.data += self.buffer[:count]
        if self.pauses and len(self.data) >= self.pauses[0]:
            self.pauses.pop(0)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    @property
    def is_waiting(self):
        return not self.transport.is_reading()

    def authenticated(self, principal):
        self.principal = principal

    def pause_writing(self):
        """Is told nothing."""

    resume_writing = pause_writing


class Listening:
    name = "OUTER"

    def __init__(self, context, refuses=None):
        self.context = context
        self.refuses = refuses

    def principal(self, certificate):
        if self.refuses:
            raise TlsError(self.refuses)
        return ANONYMOUS if certificate is None else Principal("User", "somebody")


class Peer:
    """A client and the broker's end of its connection."""

    scratch = memoryview(bytearray(RECEIVE_BYTES))

    def __init__(self, server, client, connection=None, refuses=None):
        self.connection = connection or Received()
        self.socket = Socket()
        self.metrics = RequestMetrics()
        self.layer = TlsLayer(self.connection, Listening(server, refuses), self.scratch, self.metrics)
        self.layer.connection_made(self.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self):
        for _ in range(4):
            self.incoming.write(self.taken())
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.give(self.outgoing.read())
        return self

    def taken(self):
        sent, self.socket.sent = bytes(self.socket.sent), bytearray()
        return sent

    def give(self, data, size=RECEIVE_BYTES):
        for start in range(0, len(data), size):
            if self.socket.is_closed:
                return
            piece = data[start : start + size]
            self.scratch[: len(piece)] = piece
            self.layer.buffer_updated(len(piece))

    def encrypted(self, data):
        for start in range(0, len(data), RECORD_BYTES):
            self.tls.write(data[start : start + RECORD_BYTES])
        return self.outgoing.read()

    def decrypted(self):
        self.incoming.write(self.taken())
        data = bytearray()
        while True:
            try:
                part = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(data)
            if not part:
                return bytes(data)
            data += part


def in_a_loop(work):
    async def run():
        return await work() if asyncio.iscoroutinefunction(work) else work()

    return asyncio.run(run())


def text_of(size):
    return bytes(index * 7 % 251 for index in range(size))


@given(
    st.lists(st.integers(1, 70_000), min_size=1, max_size=4),
    st.integers(1, 40_000),
    st.integers(1, 100_000),
    st.lists(st.integers(1, 150_000), max_size=5).map(sorted),
)
@settings(max_examples=40, deadline=None)
def test_what_is_sent_arrives_whatever_the_splits_and_pauses(both, sizes, piece_bytes, buffer_bytes, pauses):
    async def work():
        connection = Received(buffer_bytes, pauses)
        peer = Peer(*both, connection).shake()
        sent = b"".join(map(text_of, sizes))
        data = b"".join(peer.encrypted(text_of(size)) for size in sizes)
        for start in range(0, len(data), piece_bytes):
            await until(lambda: not peer.socket.is_paused)
            peer.give(data[start : start + piece_bytes])
        await until(lambda: len(connection.data) == len(sent))
        assert bytes(connection.data) == sent

    in_a_loop(work)


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_what_is_answered_arrives_in_order(both, sizes):
    def work():
        peer = Peer(*both).shake()
        parts = [text_of(size) for size in sizes]
        peer.layer.writelines(parts)
        peer.layer.write(memoryview(b"end"))
        assert peer.decrypted() == b"".join([*parts, b"end"])

    in_a_loop(work)


def test_requests_behind_the_end_of_the_handshake_are_taken(both):
    def work():
        peer = Peer(*both)
        peer.incoming.write(peer.taken())
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        peer.give(peer.outgoing.read())
        peer.incoming.write(peer.taken())
        peer.tls.do_handshake()
        peer.give(peer.outgoing.read() + peer.encrypted(text_of(50_000)))
        assert bytes(peer.connection.data) == text_of(50_000)
        assert peer.connection.principal == ANONYMOUS

    in_a_loop(work)


def test_parts_are_written_together_without_cork_and_sendfile(both):
    def work():
        peer = Peer(*both).shake()
        writes = []
        peer.taken()
        peer.socket.writelines = lambda parts: writes.append(b"".join(parts))
        outgoing = Outgoing(peer.layer, uses_sendfile=True, on_sent=lambda: None, on_failure=lambda _: None)
        outgoing.send([b"header", bytes(100 << 10), b"header", bytes(100 << 10)])
        assert len(writes) == 1
        assert not outgoing._uses_sendfile

    in_a_loop(work)


def test_the_end_is_told_and_heard(both):
    def work():
        peer = Peer(*both).shake()
        peer.layer.close()
        assert peer.socket.is_closed
        assert peer.decrypted() == b""
        other = Peer(*both).shake()
        with pytest.raises(ssl.SSLWantReadError):
            other.tls.unwrap()
        other.give(other.outgoing.read())
        assert other.socket.is_closed

    in_a_loop(work)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x00\x00\x00\x14\x00\x12\x00\x03", "it does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it looks like HTTP, and here Kafka's protocol is spoken"),
        (b"\x16\x03\x01" + bytes(200), "the handshake failed"),
        (b"\x16\x03\x01\xff\xff" + bytes(300 << 10), "the handshake failed"),
    ],
)
def test_garbage_is_refused_in_words(both, caplog, first, said):
    def work():
        peer = Peer(*both)
        peer.give(first)
        assert peer.socket.is_closed
        assert peer.metrics.refused == 1
        assert not peer.connection.data

    in_a_loop(work)
    [message] = caplog.messages
    assert message.startswith("refusing 10.0.0.9:4711 on listener OUTER: ")
    assert said in message


def test_a_handshake_that_does_not_end_is_cut_off(both, caplog, monkeypatch):
    async def work():
        peer = Peer(*both)
        await until(lambda: peer.socket.is_closed)

    monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", 0.01)
    in_a_loop(work)
    assert "its handshake has taken more than" in caplog.text


def test_a_handshake_is_bounded_in_bytes(both, caplog, monkeypatch):
    monkeypatch.setattr(tls, "MAX_HANDSHAKE_BYTES", 100)
    in_a_loop(lambda: Peer(*both).shake())
    assert "its handshake has more than 100 bytes" in caplog.text


def test_whom_no_rule_fits_is_refused(both, caplog):
    def work():
        peer = Peer(*both, refuses="no rule fits CN=x").shake()
        assert peer.socket.is_closed
        assert peer.connection.principal is None

    in_a_loop(work)
    assert "refusing 10.0.0.9:4711 on listener OUTER: no rule fits CN=x" in caplog.text


def heap_bytes():
    """What C has allocated and not freed."""

    class Information(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in (
                "arena",
                "ordblks",
                "smblks",
                "hblks",
                "hblkhd",
                "usmblks",
                "fsmblks",
                "uordblks",
                "fordblks",
                "keep",
            )
        ]

    function = ctypes.CDLL(None).mallinfo2
    function.restype = Information
    found = function()
    return found.uordblks + found.hblkhd


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_an_idle_connection_costs_at_most_64_kib(tmp_path, version, record_property):
    """Counts the bytes of the broker's end after a megabyte in and a megabyte out, those of the client left out."""
    server, client = contexts(tmp_path)
    client.maximum_version = ssl.TLSVersion[version]
    buffer = memoryview(bytearray(1 << 20))

    def used(connection):
        peer = Peer(server, client, connection).shake()
        peer.give(peer.encrypted(bytes(1 << 20)))
        peer.layer.write(bytes(1 << 20))
        peer.decrypted()
        connection.data = connection.buffer = None
        return peer.layer, peer.socket

    def work():
        kept = []
        warm = [used(Received()) for _ in range(5)]
        tracemalloc.start()
        gc.collect()
        python, c = tracemalloc.get_traced_memory()[0], heap_bytes()
        for _ in range(count := 40):
            connection = Received(buffer_bytes=0)
            connection.buffer = buffer
            kept.append(used(connection))
        gc.collect()
        python, c = tracemalloc.get_traced_memory()[0] - python, heap_bytes() - c
        tracemalloc.stop()
        assert len(warm) == 5
        return (python + c) // count

    bytes_each = in_a_loop(work)
    record_property("bytes", bytes_each)
    assert bytes_each <= MAX_IDLE_BYTES
