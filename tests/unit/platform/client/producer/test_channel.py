"""TLS without blocking: what is not taken waits for the selector, nothing spins, and no byte is lost or doubled."""

import selectors
import socket
import threading

import pytest

from millrace.client.producer.link import PlainChannel, TlsChannel
from millrace.security.tls import client_context, server_context
from millrace_support.certificates import Authority

SENT = bytes(range(256)) * 8192


@pytest.fixture
def ends(tmp_path):
    """A channel of TLS, and the other end as a blocking socket."""
    files = Authority().issue().write(tmp_path)
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.key_store_pem)}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.trust_store_pem)}
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.settimeout(30)
    accepted = []
    accepting = threading.Thread(
        target=lambda: accepted.append(server_context(stores).wrap_socket(theirs, server_side=True))
    )
    accepting.start()
    with client_context(trust).wrap_socket(ours, server_hostname="localhost") as secured:
        accepting.join()
        secured.setblocking(False)
        with accepted[0] as other:
            yield TlsChannel(secured), secured, other


def test_tls_sends_all_once_and_waits_while_the_peer_does_not_read(ends):
    channel, secured, other = ends
    assert channel.receive() is None
    assert channel.send([memoryview(SENT)]) == 0
    assert channel.waits(has_unsent=True) == selectors.EVENT_READ | selectors.EVENT_WRITE
    assert channel.waits(has_unsent=False) == selectors.EVENT_READ
    received, taken, tries = bytearray(), 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(secured, channel.waits(has_unsent=True))
        assert selector.select(0) == []
        while len(received) < len(SENT):
            received += other.recv(1 << 16)
            if not taken and selector.select(0):
                tries += 1
                taken = channel.send([memoryview(SENT)])
    assert (bytes(received), taken) == (SENT, len(SENT))
    assert tries <= len(SENT) >> 10


def test_tls_receives_what_comes_and_the_end(ends):
    channel, secured, other = ends
    other.sendall(SENT[:50_000])
    received = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(secured, channel.receive_waits_for)
        while len(received) < 50_000:
            assert selector.select(30)
            received += channel.receive() or b""
        assert bytes(received) == SENT[:50_000]
        other.shutdown(socket.SHUT_RDWR)
        assert selector.select(30)
        assert channel.receive() == b""


def test_a_plain_channel_waits_in_the_same_way():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = PlainChannel(ours)
        assert channel.receive() is None
        assert channel.send([memoryview(b"ab"), memoryview(b"c")]) == 3
        assert theirs.recv(10) == b"abc"
        while channel.send([memoryview(SENT)]):
            pass
        assert channel.waits(has_unsent=True) == selectors.EVENT_READ | selectors.EVENT_WRITE
        theirs.close()
