"""`/healthz` and `/readyz` of real brokers: what goes wrong makes them fail and is named, and passes."""

import json
import resource
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import MillraceError, StorageError
from millrace.ports import free_port
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.admin_requests import JSON

WAIT_S = 60
FAILING_DOOR = """
import os, sys, time
from millrace.fs import OsFileSystem

fsync, listdir = OsFileSystem.fsync, OsFileSystem.listdir


def failing(self, fd):
    if os.path.exists({broken!r}):
        raise OSError(5, "Input/output error")
    return fsync(self, fd)


def slow(self, path):
    while os.path.exists({held!r}):
        time.sleep(0.01)
    return listdir(self, path)


OsFileSystem.fsync, OsFileSystem.listdir = failing, slow
sys.argv += {arguments!r}
from millrace_broker.__main__ import main
sys.exit(main())
"""


def asked(url):
    """(status, the answer)."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metric(broker, name):
    """The values of a family by the values of its labels, as alert rules look at them."""
    with urllib.request.urlopen(f"{broker.admin_url}/metrics", timeout=WAIT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(one.labels.values()): one.value for one in found}


def until(url, status):
    """The answer, once it has this status."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            found, answer = asked(url)
        except (urllib.error.URLError, ConnectionError) as error:
            found, answer = None, error
        if found == status:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def program(tmp_path, *arguments):
    """A broker whose syncs fail while the file `broken` is there, and whose logs open once `held` is gone."""
    files = {"broken": str(tmp_path / "broken"), "held": str(tmp_path / "held")}
    return "-c", FAILING_DOOR.format(arguments=list(arguments), **files)


def test_a_broker_that_is_well_lists_its_checks(broker_session):
    for name in ("healthz", "readyz"):
        status, answer = asked(f"{broker_session.admin_url}/{name}")
        assert (status, answer["status"], answer["reasons"]) == (200, "ok", [])
        assert set(answer["checks"]) == {
            "data directories",
            "disk",
            "zookeeper",
            "metadata",
            "compaction",
            "damage",
            "loading",
            "stopping",
        }
        assert not any(answer["checks"].values())


@pytest.mark.broker_errors(r"storage\.failures: \S+/two is offline: \S+/two: File exists")
def test_a_folder_that_can_not_be_opened(tmp_path):
    (tmp_path / "two").write_text("no folder", encoding="utf-8")
    with BrokerProcess(tmp_path / "one", more_data_dirs=[tmp_path / "two"]) as broker:
        status, answer = asked(f"{broker.admin_url}/readyz")
        assert status == 503
        (reason,) = answer["reasons"]
        assert reason.startswith(f"data directory {tmp_path / 'two'} is offline: ")
        assert answer["checks"]["data directories"] == [reason]
        online = {(str(tmp_path / "one"),): 1, (str(tmp_path / "two"),): 0}
        assert metric(broker, "millrace_log_directory_online") == online
        assert asked(f"{broker.admin_url}/healthz")[0] == 200


@pytest.mark.broker_errors(r"storage\.failures: \S+ is offline: \S+\.log: Input/output error")
def test_the_only_folder_fails_and_a_restart_helps(tmp_path):
    settings = {"log.flush.interval.messages": "1"}
    with BrokerProcess(tmp_path / "data", properties=settings, program=program(tmp_path)) as broker:
        with Cluster(broker.bootstrap) as cluster, Cluster(broker.bootstrap, timeout_s=2) as hasty:
            SyncProducer(cluster).send("t", 0, [NewRecord(b"v")])
            assert asked(f"{broker.admin_url}/healthz")[0] == 200
            (tmp_path / "broken").touch()
            with pytest.raises(MillraceError):
                SyncProducer(hasty).send("t", 0, [NewRecord(b"v")])
        answer = until(f"{broker.admin_url}/healthz", 503)
        assert answer["status"] == "failed"
        assert answer["reasons"] == ["every data directory is offline; a restart opens them again"]
        assert "Input/output error" in asked(f"{broker.admin_url}/readyz")[1]["reasons"][0]
        assert [*metric(broker, "millrace_log_directory_online").values()] == [0]
        (tmp_path / "broken").unlink()
        broker.restart()
        assert asked(f"{broker.admin_url}/healthz")[0] == asked(f"{broker.admin_url}/readyz")[0] == 200


@pytest.mark.broker_errors(
    r"data_dirs\.log_checkpoints: \S+: \S+-checkpoint: No such file",
    r"storage\.failures: \S+ is offline: the folder is gone",
    r"admin\.chores: maintenance failed; tried again in \d+ ms: \S+-checkpoint: No such file",
)
def test_a_folder_that_is_taken_away(tmp_path):
    """Its files are open and take appends, which nobody would find again."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": "50"}
    one, two = tmp_path / "one", tmp_path / "two"
    with BrokerProcess(one, more_data_dirs=[two], properties=settings) as broker:
        with Cluster(broker.bootstrap) as cluster, Cluster(broker.bootstrap, timeout_s=2) as hasty:
            Admin(cluster).create_topic("t", 2)
            for partition in range(2):
                SyncProducer(cluster).send("t", partition, [NewRecord(b"v")])
            [there] = [int(folder.name[-1]) for folder in two.glob("t-?")]
            two.rename(tmp_path / "elsewhere")
            with suppress(MillraceError):  # once the broker has noticed it
                SyncProducer(hasty).send("t", there, [NewRecord(b"v")])
            (reason,) = until(f"{broker.admin_url}/readyz", 503)["reasons"]
            assert reason.startswith(f"data directory {two} is offline: the folder is gone: ")
            with pytest.raises(MillraceError):
                SyncProducer(hasty).send("t", there, [NewRecord(b"v")])
            SyncProducer(cluster).send("t", 1 - there, [NewRecord(b"v")])
        (tmp_path / "elsewhere").rename(two)
        broker.restart()
        assert asked(f"{broker.admin_url}/readyz")[0] == 200


def test_zookeeper_goes_and_comes(tmp_path):
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        settings = {"zookeeper.session.timeout.ms": "30000"}
        with BrokerProcess(tmp_path / "data", zookeeper=zookeeper.address, properties=settings) as broker:
            url = f"{broker.admin_url}/readyz"
            assert asked(url)[0] == 200
            zookeeper.stop()
            (reason,) = until(url, 503)["reasons"]
            assert zookeeper.address in reason
            assert metric(broker, "millrace_zookeeper_session_up") == {(): 0}
            assert asked(f"{broker.admin_url}/healthz")[0] == 200
            zookeeper.start()
            until(url, 200)
            assert metric(broker, "millrace_zookeeper_session_up") == {(): 1}
            with Cluster(broker.bootstrap) as cluster:
                Admin(cluster).create_topic("t", 1)


@pytest.mark.broker_errors(r"storage\.failures: \S+: the disk is full, and appends are refused: \[Errno \d+\]")
def test_a_full_disk(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        producer.send("t", 0, [NewRecord(bytes(1000))])
        (segment,) = (tmp_path / "data").glob("t-0/*.log")
        assert asked(f"{broker.admin_url}/readyz")[0] == 200
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (segment.stat().st_size + 500, hard))
        with pytest.raises(StorageError):
            producer.send("t", 0, [NewRecord(bytes(1000))])
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        status, answer = asked(f"{broker.admin_url}/readyz")
        assert status == 503
        assert answer["reasons"] == [f"the disk of {tmp_path / 'data'} is full: appends are refused"]
        assert metric(broker, "millrace_log_directory_refused_appends_total")[str(tmp_path / "data"),] >= 1
        assert asked(f"{broker.admin_url}/healthz")[0] == 200


def test_logs_that_are_opened_for_long(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("t", 0, [NewRecord(b"v")])
        broker.kill()
    (tmp_path / "held").touch()
    url = f"http://127.0.0.1:{(port := free_port())}"
    slow = program(tmp_path, "--admin", f"127.0.0.1:{port}")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(BrokerProcess, tmp_path / "data", program=slow)
        try:
            (reason,) = until(f"{url}/readyz", 503)["reasons"]
            assert reason == "the broker is starting: its logs are being opened and recovered"
            assert asked(f"{url}/healthz")[0] == 200
            token = (tmp_path / "data" / "admin.token").read_text(encoding="utf-8").strip()
            headers = JSON | {"Authorization": f"Bearer {token}"}
            maintenance = urllib.request.Request(f"{url}/maintenance/verify", headers=headers, method="POST")
            assert asked(maintenance) == (503, {"action": "verify", "error": "the broker is still starting"})
        finally:
            (tmp_path / "held").unlink()
        with starting.result(WAIT_S) as broker, Cluster(broker.bootstrap) as cluster:
            until(f"{url}/readyz", 200)
            assert broker.admin_url == url
            assert SyncProducer(cluster).send("t", 0, [NewRecord(b"v")]) == 1
