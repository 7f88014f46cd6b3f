"""systemd is told by a real broker when it serves, that it lives, that it no longer does, and that it stops."""

import json
import socket
import urllib.error
import urllib.request

import pytest

from millrace.client import Cluster, SyncProducer
from millrace.errors import MillraceError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import awaited

INTERVAL_MS = 40
QUIET_S = 0.5
FAILING = """
import os, sys
from millrace.fs import OsFileSystem
from millrace_broker.__main__ import main

fsync = OsFileSystem.fsync


def failing(self, fd):
    if os.path.exists({broken!r}):
        raise OSError(5, "Input/output error")
    return fsync(self, fd)


OsFileSystem.fsync = failing
sys.exit(main())
"""


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """The socket at which a service manager listens; it wants to hear often."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(2 * INTERVAL_MS * 1_000))
        yield receiver


@pytest.fixture
def broken(tmp_path):
    """Where this file is, the disk fails."""
    return tmp_path / "broken"


@pytest.fixture
def broker(manager, broken, tmp_path):
    program = ("-c", FAILING.format(broken=str(broken)))
    with BrokerProcess(tmp_path / "data", properties={"log.flush.interval.messages": "1"}, program=program) as process:
        yield process


def told(manager):
    return manager.recv(4096).decode().splitlines()


def failure_of(broker):
    """Returns what /healthz says of a broker that has failed; None while it has not tried to write yet."""
    try:
        urllib.request.urlopen(f"{broker.admin_url}/healthz", timeout=60).close()
    except urllib.error.HTTPError as failed:
        return failed
    return None


def falls_silent(manager):
    """Whether nothing is told any more, once what was told before has been heard."""
    for _ in range(1_000):
        try:
            told(manager)
        except TimeoutError:
            return True
    return False


def test_a_service_is_ready_lives_and_stops(manager, broker):
    assert told(manager) == ["READY=1", f"STATUS=listening at {broker.bootstrap}"]
    assert [told(manager) for _ in range(3)] == [["WATCHDOG=1"]] * 3
    assert broker.stop() == 0
    last = told(manager)
    while last == ["WATCHDOG=1"]:
        last = told(manager)
    assert last == ["STOPPING=1", "STATUS=stopping"]


@pytest.mark.broker_errors(r"storage\.failures: \S+ is offline: \S+\.log: Input/output error")
def test_a_broker_whose_folders_have_failed_is_silent(manager, broker, broken):
    assert told(manager)[0] == "READY=1"
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("t", 0, [NewRecord(b"kept")])
    broken.touch()
    with Cluster(broker.bootstrap, timeout_s=1) as cluster, pytest.raises(MillraceError):
        SyncProducer(cluster).send("t", 0, [NewRecord(b"lost")])
    failure = awaited(lambda: failure_of(broker), "the broker says that it has failed")
    assert json.load(failure)["status"] == "failed"
    manager.settimeout(QUIET_S)
    assert falls_silent(manager)
