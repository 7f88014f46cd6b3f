"""The admin endpoint of a mirror, and clients that do not wait for an answer."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from millrace.addresses import LOOPBACK, Address
from millrace_pipelines.mirror import admin
from millrace_pipelines.mirror.admin import Answer, served
from millrace_support.waiting import until

LARGE = bytes(20 << 20)  # more than sockets hold
AT_ONCE = struct.pack("ii", 1, 0)  # of SO_LINGER: a close resets the connection


def are_handled() -> bool:
    """Returns whether no request is being answered."""
    return not [one for one in threading.enumerate() if "process_request_thread" in one.name]


@pytest.fixture
def asked() -> threading.Event:
    return threading.Event()


@pytest.fixture
def port(asked: threading.Event) -> Iterator[int]:
    def large() -> Answer:
        asked.set()
        return Answer(200, "text/plain", LARGE)

    def broken() -> Answer:
        raise ValueError("no answer")

    with served(Address(LOOPBACK, 0), {"/large": large, "/broken": broken}) as port:
        yield port


def ask(port: int, path: str) -> socket.socket:
    one = socket.create_connection((LOOPBACK, port))
    one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    return one


@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_goes_away_is_no_error(
    port: int, asked: threading.Event, resets: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with ask(port, "/large") as client:
        assert asked.wait(60)
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    until(are_handled)
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_an_answer_that_fails_is_an_error(
    port: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with ask(port, "/broken") as client:
        assert client.recv(1) == b""
    until(are_handled)
    assert "ValueError: no answer" in caplog.text
    assert capfd.readouterr().err == ""


def test_a_silent_client_is_let_go(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(admin, "SILENCE_S", 0.05)
    with served(Address(LOOPBACK, 0), {}) as port, socket.create_connection((LOOPBACK, port)) as client:
        client.sendall(b"GET /me")
        assert client.recv(1) == b""
    until(are_handled)
    assert capfd.readouterr().err == ""
