"""What keeps a broker from starting, each in one clear line; and how it stops."""

import itertools
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from uuid import uuid4

import pytest
from kazoo.exceptions import ConnectionLoss

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.clock import SystemClock
from millrace.ports import free_port
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.zk import connects
from millrace.zk.codec import encode_config
from millrace.zk.operations import SetData
from millrace.zk.paths import broker as broker_node
from millrace.zk.paths import topic_config
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.metadata_image import BrokerInfo
from millrace_broker.cluster.store import Losses
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_support.admin_requests import change_request
from millrace_support.broker_properties import LASTING_SESSION
from millrace_support.log_faults import faults
from millrace_support.waiting import until
from millrace_support.zookeeper_sessions import started

pytestmark = pytest.mark.usefixtures("warm_path")


def run(*arguments):
    """Run a broker that can't start; (exit status, stderr)."""
    command = ["millrace", "broker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--zookeeper HOST:PORT or zookeeper.connect, or --standalone"),
        (["--standalone"], "give --data DIR"),
        (["--standalone", "--data", "{dir}", "--listen", "nonsense"], "'nonsense': expected HOST:PORT"),
        (["--standalone", "--data", "{dir}", "--set", "no.such.name=1"], "unknown property no.such.name"),
        (
            ["--standalone", "--data", "{dir}", "--set", "num.partitions=zero"],
            "Invalid value zero for configuration num.partitions: Not a number of type INT",
        ),
        (
            ["--standalone", "--data", "{dir}", "--set", "log.retention.ms=soon"],
            "soon for configuration log.retention.ms",
        ),
        (["--standalone", "--data", "{dir}", "--config", "{dir}/none"], "No such file"),
        (["--standalone", "--data", "{dir}", "--admin", "0.0.0.0:0", "--listen", "127.0.0.1:0"], "admin.token"),
        (["--standalone", "--data", "{dir}", "--listen", "192.0.2.1:1"], "192.0.2.1:1 can't be bound"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, arguments, words):
    status, stderr = run(*(argument.format(dir=tmp_path) for argument in arguments))
    assert status in (1, 2)
    assert words in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("option", ["--listen", "--admin"])
def test_a_port_in_use_is_named_and_leaves_no_folder(tmp_path, option):
    others = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = [word for pair in (others | {option: address}).items() for word in pair]
        status, stderr = run("--standalone", "--data", tmp_path / "data", *arguments)
    assert (status, stderr) == (1, f"millrace broker: address {address} is in use\n")
    assert not (tmp_path / "data").exists()


def test_of_two_brokers_that_start_at_one_port_one_serves(tmp_path):
    """Both may bind the port before either listens there; the second one says so, without a traceback."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "millrace_ops", "broker", "--standalone", "--listen", address, "--data"]
    with ThreadPoolExecutor(2) as pool:
        both = [subprocess.Popen([*command, tmp_path / one], stderr=subprocess.PIPE, text=True) for one in "ab"]
        said = [pool.submit(broker.communicate, timeout=300) for broker in both]
        ended = wait(said, return_when=FIRST_COMPLETED).done.pop()
        for broker in both:
            broker.terminate()
    assert f"{address} is in use" in ended.result()[1]
    assert [faults(one.result()[1]) for one in said] == [[], []]


def test_a_data_directory_serves_one_broker(tmp_path):
    with BrokerProcess(tmp_path):
        status, stderr = run("--standalone", "--data", tmp_path, "--listen", "127.0.0.1:0")
    assert status == 1
    assert str(tmp_path) in stderr


def test_no_zookeeper_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for one in (address, "127.0.0.1:1"):  # which does not answer, and at which nothing listens
            status, stderr = run(
                "--zookeeper", one, "--data", tmp_path, "--listen", "127.0.0.1:0",
                "--set", "zookeeper.connection.timeout.ms=2000", "--set", "zookeeper.session.timeout.ms=2000",
            )  # fmt: skip
            assert status == 1
            assert stderr.startswith(f"millrace broker: no ZooKeeper answers at {one}")
            assert stderr.count("\n") == 1


def test_a_second_broker_with_the_id_is_refused(tmp_path, zookeeper):
    address = f"{zookeeper.address}/second-id"
    with BrokerProcess(tmp_path / "one", zookeeper=address, properties=LASTING_SESSION) as first:
        status, stderr = run(
            "--zookeeper", address, "--data", tmp_path / "two", "--listen", "127.0.0.1:0", "--id", 1,
            "--set", "zookeeper.session.timeout.ms=10000",
        )  # fmt: skip
        assert status == 1
        assert f"broker id 1 is held by a live broker at {first.bootstrap}" in stderr


def test_a_broker_with_zookeeper_comes_back_after_kill_9(tmp_path, zookeeper):
    address = f"{zookeeper.address}/comes-back"
    quick = {"zookeeper.session.timeout.ms": "10000"}
    with BrokerProcess(tmp_path, zookeeper=address, properties=quick) as broker:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"before")])
        broker.kill()
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            assert SyncProducer(cluster).send("events", 0, [NewRecord(b"after")]) == 1


def test_a_changed_topic_configuration_is_obeyed_at_once(tmp_path, zookeeper):
    address = f"{zookeeper.address}/live-configuration"
    with BrokerProcess(tmp_path, zookeeper=address) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1, config={"segment.bytes": "2000"})
            producer = SyncProducer(cluster)
            for _ in range(10):
                producer.send("events", 0, [NewRecord(bytes(900))])
        (kept,) = post(broker, "maintenance/retention")["partitions"]
        assert kept["deleted_segments"] == 0
        config = encode_config({"segment.bytes": "2000", "retention.bytes": "4000"})
        with started(address) as session:
            session.transact([SetData(topic_config("events"), config)])
        until(lambda: post(broker, "maintenance/retention")["partitions"][0]["deleted_segments"])


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def test_the_admin_endpoint_answers(broker):
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(b"v")])
    assert json.loads(get(f"{broker.admin_url}/healthz"))["status"] == "ok"
    metrics = get(f"{broker.admin_url}/metrics")
    assert 'millrace_requests_total{api="produce"} 1.0' in metrics
    assert 'millrace_log_end_offset{partition="0",topic="events"} 1\n' in metrics


def post(broker, path):
    with urllib.request.urlopen(change_request(broker, path), timeout=60) as answer:
        return json.load(answer)


@pytest.mark.broker_errors(r"segments\.damage_search: ")
def test_maintenance_on_request_says_what_it_did(tmp_path):
    settings = {"log.segment.bytes": "2000", "log.retention.bytes": "4000"}
    with BrokerProcess(tmp_path, properties=settings) as broker:
        with Cluster(broker.bootstrap) as cluster:
            producer = SyncProducer(cluster)
            for _ in range(10):
                producer.send("events", 0, [NewRecord(bytes(900))])
        (deleted,) = post(broker, "maintenance/retention")["partitions"]
        assert (deleted["topic"], deleted["partition"]) == ("events", 0)
        assert deleted["deleted_segments"] > 0
        verified = post(broker, "maintenance/verify")
        assert verified["action"] == "verify"
        assert [report["findings"] for report in verified["partitions"]] == [[]]
        segment = min(tmp_path.glob("events-0/*.log"))
        damaged = bytearray(segment.read_bytes())
        damaged[len(encode_batch([NewRecord(bytes(900))])) // 2] ^= 1
        segment.write_bytes(damaged)
        (report,) = post(broker, "maintenance/verify")["partitions"]
        assert len(report["findings"]) == 1
        assert segment.name in str(report["findings"][0])


def test_a_start_goes_on_where_an_answer_of_zookeeper_is_lost(zookeeper, monkeypatch):
    """The connection breaks after each call of the start in turn, which ZooKeeper has carried out by then."""
    answered, left = ZooKeeperSession._result, [0]

    def losing(session, result):
        answer = answered(session, result)
        if threading.current_thread() is threading.main_thread():
            left[0] -= 1
            if left[0] == 0:
                raise ConnectionLoss
        return answer

    monkeypatch.setattr(ZooKeeperSession, "_result", losing)
    monkeypatch.setattr(connects, "PAUSE_S", 0.0)
    for number in itertools.count(1):
        left[0] = number
        connect = f"{zookeeper.address}/lost-answers/{uuid4().hex}"
        store = ZooKeeperStore(connect, SystemClock(), session_timeout_ms=60_000, connection_timeout_ms=60_000)
        try:
            store.start(lambda _: None)
            assert len(store.image().cluster_id) == 22
            assert store.new_broker_id(1000) > 1000
            store.note_losses(1, Losses(has_new_disk=True, has_lost_power=True))
            store.register_broker(BrokerInfo(1, "localhost", 9092))
            assert store.topics() == set()
            has_lost, left[0] = left[0] <= 0, 0
            assert store.session.holds(store.session.nodes([broker_node(1)])[0])
        finally:
            store.close()
        if not has_lost:
            break
    assert number > 20
