"""What is no HTTP comes to the admin endpoint: it is refused, and the log has a sentence on it and no error."""

import re
import socket

import pytest

from millrace.addresses import parse_address
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

KINDS = {
    "a line that is too long": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "a header that is too long": b"GET / HTTP/1.1\r\nHost: " + b"x" * 100_000 + b"\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\n: secret\r\n\r\n",
    "another version": b"GET / HTTP/x.1\r\nHost: a\r\n\r\n",
    "bytes": b"GET /secret\x00\xff\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.mark.parametrize("sent", KINDS.values(), ids=KINDS)
def test_it_is_refused_in_a_sentence(broker, sent):
    logged = len(broker.read_log())
    with socket.create_connection(parse_address(broker.admin_url.removeprefix("http://")), timeout=60) as client:
        client.sendall(sent)
        assert client.makefile("rb").readline().split()[1:2] == [b"400"]
    said = until(lambda: broker.read_log()[logged:], lambda text: "aiohttp.server" in text)
    assert re.search(r"WARNING aiohttp\.server: refusing a request of 127\.0\.0\.1: \w+\n", said)
    assert "secret" not in broker.read_log()
