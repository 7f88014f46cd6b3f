"""Addresses, and a port that is taken."""

import socket

import pytest

from millrace.errors import SetupError
from millrace.ports import free_port
from millrace_ops.platform.ports import is_listening, require_free_port, split_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9092", ("127.0.0.1", 9092)), ("[::1]:0", ("::1", 0)), ("host:65535", ("host", 65535))],
)
def test_split_address(text, address):
    assert split_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "9092", ":9092", "host", "host:", "host:x", "host:65536", "host:-1", "h:" + "9" * 5000]
)
def test_split_address_refuses(text):
    with pytest.raises(SetupError, match="expected HOST:PORT"):
        split_address(text)


def test_a_taken_port_is_named_with_the_option_that_changes_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} of 127\.0\.0\.1 is in use; choose another with --listen"):
            require_free_port("127.0.0.1", port, "--listen")


def test_an_address_of_another_machine_can_not_be_listened_on():
    with pytest.raises(SetupError, match=r"can't listen on 192\.0\.2\.1:9092"):
        require_free_port("192.0.2.1", 9092, "--listen")


def test_listening():
    port = free_port()
    require_free_port("127.0.0.1", port, "--listen")
    assert not is_listening("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        assert is_listening("127.0.0.1", port)
