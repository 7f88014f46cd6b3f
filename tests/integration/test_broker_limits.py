"""Limits of connections, idle time and memory: who passes them pays with its own connection, others go on; the log."""

import json
import re
import socket
import struct
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from millrace.client import Configs, ResourceKind
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.ports import free_port
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header

TIMEOUT_S = 60
API_VERSIONS = framed(encode_request_header(ApiKey.API_VERSIONS, 0, 1, "limits"))


@pytest.fixture
def start(tmp_path):
    """Starts a broker with the given properties."""
    with ExitStack() as brokers:
        yield lambda **properties: brokers.enter_context(
            BrokerProcess(tmp_path / "broker", properties={n.replace("_", "."): str(v) for n, v in properties.items()})
        )


def connect(broker, source="127.0.0.1"):
    host, port = broker.bootstrap.split(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=(source, 0))


def is_served(connection):
    """Whether a request is answered on it."""
    try:
        connection.sendall(API_VERSIONS)
        return len(connection.recv(4)) == 4
    except ConnectionError:
        return False


def is_closed_by_peer(connection):
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


def metric(broker, name):
    text = urllib.request.urlopen(f"{broker.admin_url}/metrics").read().decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def test_connections_above_a_limit_are_closed_and_the_others_stay(start):
    broker = start(max_connections=6, max_connections_per_ip=2, max_connections_per_ip_overrides="127.0.0.3:1")
    with ExitStack() as open_connections:

        def served(source):
            return is_served(open_connections.enter_context(connect(broker, source)))

        assert [served("127.0.0.1") for _ in range(3)] == [True, True, False]
        assert [served("127.0.0.3") for _ in range(2)] == [True, False]
        assert [served(f"127.0.0.{n}") for n in range(4, 8)] == [True, True, True, False]
    log = broker.read_log()
    for limit in ("max.connections.per.ip=2", "max.connections.per.ip=1", "max.connections=6"):
        assert limit in log


def test_a_listener_has_a_limit_of_its_own_which_changes_live(start):
    name, port = "listener.name.other.max.connections", free_port()
    broker = start(
        listeners=f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{port}",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        listener_name_other_max_connections=1,
    )
    with ExitStack() as opened, Cluster(broker.bootstrap) as cluster:

        def served():
            return is_served(opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)))

        assert [served(), served()] == [True, False]
        Configs(cluster).change(ResourceKind.BROKER, "", {name: "2"})
        assert [served(), served()] == [True, False]
        Configs(cluster).change(ResourceKind.BROKER, "1", {name: "3"})
        assert [served(), served()] == [True, False]
        assert all(is_served(opened.enter_context(connect(broker))) for _ in range(10))
    for limit in (1, 2, 3):
        assert f"on listener OTHER: max.connections={limit} of listener OTHER" in broker.read_log()


def test_a_closed_connection_makes_room(start):
    broker = start(max_connections=1)
    with connect(broker) as first:
        assert is_served(first)
    while True:
        with connect(broker) as second:
            if is_served(second):
                return


def test_a_connection_that_does_nothing_is_closed_and_one_that_waits_is_not(start):
    broker = start(connections_max_idle_ms=2000)
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(b"first")])
    with ExitStack() as opened, connect(broker) as halfway, Cluster(broker.bootstrap) as waiting:
        while not is_served(idle := opened.enter_context(connect(broker))):
            pass  # it was idle for too long before its first request
        with suppress(ConnectionError):  # likewise
            halfway.sendall(API_VERSIONS[:-1])
        found = SimpleConsumer(waiting).fetch("events", 0, 1, max_wait_ms=4000)
        assert found.high_watermark == 1
        assert is_closed_by_peer(halfway)
        while not is_closed_by_peer(idle):
            pass
    assert metric(broker, "millrace_connections_idle_closed_total") >= 2
    assert "idle for" in broker.read_log()


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


def push(connection, data):
    """Send until the peer takes no more."""
    connection.settimeout(0.05)
    try:
        connection.sendall(data)
    except TimeoutError:
        return


def test_a_flood_of_large_requests_that_never_end_costs_bounded_memory(start):
    limit, frame = 16 << 20, 40 << 20
    broker = start(queued_max_request_bytes=limit)
    with ExitStack() as flood, Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        producer.send("events", 0, [NewRecord(b"before")])
        before = resident_bytes(broker.pid)
        peers = [flood.enter_context(connect(broker)) for _ in range(20)]
        for peer in peers:
            push(peer, struct.pack(">i", frame) + bytes(frame // 2))
        assert metric(broker, "millrace_bytes_in_flight") <= 4 * limit + frame
        assert resident_bytes(broker.pid) - before < 4 * limit + frame
        producer.send("events", 0, [NewRecord(bytes(200_000))])
        assert SimpleConsumer(cluster).latest("events", 0) == 2
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(bytes(900_000))])
    while metric(broker, "millrace_bytes_in_flight") > 1 << 20:
        pass


def test_every_request_is_logged_where_that_is_asked_for(start):
    broker = start(request_log_slower_than_ms=0)
    with Cluster(broker.bootstrap, client_id="teller") as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(b"value")])
    assert re.search(
        r"PRODUCE v\d+ of 127\.0\.0\.1:\d+ client teller: \d+ bytes in, \d+ out, "
        r"ms: \d+\.\d+ in queue, \d+\.\d+ in handling, \d+\.\d+ in all",
        broker.read_log(),
    )


def test_requests_of_one_client_are_logged_while_that_is_asked_for(start):
    broker = start()

    def look(client_id):
        with Cluster(broker.bootstrap, client_id=client_id) as cluster:
            cluster.metadata([])

    with Cluster(broker.bootstrap, client_id="operator") as operator:
        configs = Configs(operator)
        configs.change(ResourceKind.BROKER, "", {"request.log.clients": "slow one,other"})
        look("quick one")
        look("slow one")
        configs.change(ResourceKind.BROKER, "", {}, ["request.log.clients"])
        look("slow one")
    logged = re.findall(r"(\w+) v\d+ of \S+ client (.+?): \d+ bytes in", broker.read_log())
    assert sorted(logged) == [("API_VERSIONS", "slow one"), ("METADATA", "slow one")]


def test_a_log_for_programs_is_one_object_on_each_line(start):
    broker = start(logging_format="json")
    name = 'x"}\n{"level": "INFO'
    with Cluster(broker.bootstrap, client_id=name) as cluster:
        Configs(cluster).change(ResourceKind.BROKER, "", {"request.log.slower.than.ms": "0"})
        cluster.metadata([])
    broker.stop()
    lines = [json.loads(line) for line in broker.read_log().splitlines()]
    assert all(one.keys() == {"time", "level", "logger", "message"} for one in lines)
    [line] = [one for one in lines if one["message"].startswith("METADATA")]
    assert (line["level"], line["logger"]) == ("INFO", "millrace_broker.requests")
    assert name in line["message"]


def test_metrics_count_bytes_and_times_of_each_api(start):
    broker = start()
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(bytes(1000))])
    text = urllib.request.urlopen(f"{broker.admin_url}/metrics").read().decode()
    values = {name: float(value) for name, value in re.findall(r'^(\w+)\{api="produce"\} (\S+)$', text, re.MULTILINE)}
    assert values["millrace_requests_total"] == 1
    assert 1000 < values["millrace_request_bytes_total"] < 1300
    assert 20 < values["millrace_response_bytes_total"] < 200
    phases = ("queue", "local", "remote", "send", "total")
    queue, local, remote, send, total = (values[f"millrace_request_{phase}_seconds_sum"] for phase in phases)
    assert min(queue, local, send) > remote == 0
    assert total == pytest.approx(queue + local + send)
    assert all(values[f"millrace_request_{phase}_seconds_count"] == 1 for phase in phases)
