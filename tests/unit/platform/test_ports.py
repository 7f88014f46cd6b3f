"""A port that is taken."""

import socket

import pytest

from millrace.errors import SetupError
from millrace.ports import free_port, is_listening, require_free_port


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
