"""A test's servers end with it, however it ends, and ports that they keep are no connection's."""

import socket
import subprocess
import sys

import psutil
import pytest

from millrace import ports
from millrace.addresses import LOOPBACK

STARTS = {
    "a broker": "from millrace.testing.broker import BrokerProcess as Server; server = Server(sys.argv[1])",
    "a command": """
from millrace.lifeline import start_with_lifeline
server = start_with_lifeline(["sh", "-c", "echo it runs; exec sleep 600"], stdout=subprocess.PIPE)
server.stdout.readline()
""",
}


@pytest.mark.parametrize("kind", STARTS)
def test_a_server_ends_with_the_process_that_started_it(tmp_path, kind):
    code = f"import subprocess, sys\n{STARTS[kind]}\nprint(server.pid, flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        server = psutil.Process(int(parent.stdout.readline()))
        watchers = [one for one in server.children() if one.name() == "sh"]
        parent.kill()
        assert psutil.wait_procs([server, *watchers], timeout=60)[1] == []
    assert len(watchers) == 1


def test_a_free_port_is_below_those_of_connections():
    first = int(ports.RANGE_OF_CONNECTIONS.read_text().split()[0])
    assert all(ports.FIRST_PORT <= ports.free_port() < first for _ in range(20))


@pytest.mark.parametrize("said", ["1024\t65535\n", "", "nonsense"])
def test_a_free_port_whatever_the_system_says(tmp_path, monkeypatch, said):
    said_by = tmp_path / "range"
    said_by.write_text(said)
    monkeypatch.setattr(ports, "RANGE_OF_CONNECTIONS", said_by)
    assert ports.free_port() > 0


def test_a_port_is_given_once_and_a_server_can_listen_at_it(tmp_path, monkeypatch):
    port = ports.free_port()
    only_this = tmp_path / "range"
    only_this.write_text(f"{port + 1} 60999")
    monkeypatch.setattr(ports, "RANGE_OF_CONNECTIONS", only_this)
    monkeypatch.setattr(ports, "FIRST_PORT", port)
    assert ports.free_port() != port  # although nobody listens there
    with socket.create_server((LOOPBACK, port)):
        assert ports.free_port() != port
    with socket.create_server(("0.0.0.0", port)):
        pass


def test_reservations_are_bounded():
    for _ in range(ports.RESERVED_PORTS + 1):
        ports.free_port()
    assert len(ports._reservations) == ports.RESERVED_PORTS
