"""Peers that mean harm, or are broken: random and damaged requests over sockets, slow ones, floods of connections, and
small requests that ask for much. The broker goes on serving, within bounded memory, and its logs stay whole.
"""

import json
import re
import select
import socket
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_broker.handlers.registry import APIS
from millrace_support.admin_requests import change_request
from millrace_support.held_brokers import HeldDoor
from millrace_support.random_requests import RequestFuzzer
from millrace_support.random_words import TOPICS, Words
from millrace_support.raw import RawConnection
from millrace_support.waiting import awaited

INPUTS_OF_A_CONNECTION = 50
CONNECTIONS_OF_A_ROUND = 60
PAUSE_S = 0.005
FIRST_ANSWER_S = 2.0  # on a busy machine; once there was an answer, nothing is waited for so long
MAX_GROWTH_BYTES = 400 << 20
DYNAMIC = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}  # could lower max.connections, as is their right
API_VERSIONS = framed(encode_request_header(ApiKey.API_VERSIONS, 0, 1, "peer"))
DROPPED_CONNECTIONS = 3000
TIMEOUT_MS = 60_000


def topic(name, partitions=1):
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A broker with a topic."""
    properties = {"auto.create.topics.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("attacked"), properties=properties) as process:
        with RawConnection(process.bootstrap) as raw:
            wanted = [topic(name) for name in (*TOPICS[:-1], "kept")]
            raw.request(ApiKey.CREATE_TOPICS, 4, {"topics": wanted, "timeout": TIMEOUT_MS, "validate_only": False})
        yield process


def ensure_coordinator(broker, group):
    """Wait until the group's partition of committed offsets is made and loaded."""
    with RawConnection(broker.bootstrap) as raw:
        raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": group, "key_type": 0})
        while raw.request(ApiKey.OFFSET_FETCH, 5, {"group_id": group, "topics": []}).error_code:
            pass


def connect(broker):
    host, port = broker.bootstrap.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def resident_bytes(broker):
    status = Path(f"/proc/{broker.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


def findings(broker):
    request = change_request(broker, "maintenance/verify")
    report = json.loads(urllib.request.urlopen(request).read())
    return [one for one in report["partitions"] if one["findings"]]


def serves(broker):
    """Returns whether the broker takes a record."""
    with Cluster(broker.bootstrap) as cluster:
        offset = SyncProducer(cluster).send("kept", 0, [NewRecord(b"still here")])
        return SimpleConsumer(cluster).latest("kept", 0) == offset + 1


def send_in_pieces(connection, data, random):
    while data:
        cut = random.choice((1, 3, 4, 5, 17, 1000, len(data)))
        connection.sendall(data[:cut])
        data = data[cut:]


def drained(connection, pause_s=PAUSE_S):
    """Returns how many bytes the broker sends until it closes the connection or is silent for a while."""
    received = 0
    connection.settimeout(pause_s)
    with suppress(TimeoutError, ConnectionError):
        while chunk := connection.recv(1 << 16):
            received += len(chunk)
    return received


@pytest.mark.soak(rounds=2, minutes=2.5)
def test_random_requests_over_sockets(attacked, rounds, record_property):
    apis = {key: VersionRange(api.versions.minimum, api.versions.maximum) for key, api in APIS.items()}
    random = Random(1)
    fuzzer = RequestFuzzer(random, {key: one for key, one in apis.items() if key not in DYNAMIC}, Words())
    before, inputs, answered_bytes = resident_bytes(attacked), 0, 0
    for _ in rounds:
        for _ in range(CONNECTIONS_OF_A_ROUND):
            with connect(attacked) as connection, suppress(ConnectionError, TimeoutError):
                for _ in range(random.randint(1, INPUTS_OF_A_CONNECTION)):
                    inputs += 1
                    send_in_pieces(connection, framed(fuzzer.frame()), random)
                answered_bytes += drained(connection, PAUSE_S if answered_bytes else FIRST_ANSWER_S)
        ensure_topic(attacked)
        assert serves(attacked)
    record_property("inputs", inputs)
    record_property("bytes answered", answered_bytes)
    record_property("MB before", before >> 20)
    record_property("MB after", resident_bytes(attacked) >> 20)
    assert answered_bytes
    assert resident_bytes(attacked) - before < MAX_GROWTH_BYTES
    assert findings(attacked) == []
    log = attacked.read_log()
    assert [line for line in log.splitlines() if "Traceback" in line or "Fatal error" in line] == []


def ensure_topic(broker):
    """Creates the topic `kept` again, where a random request has deleted it."""
    with RawConnection(broker.bootstrap) as raw:
        raw.request(ApiKey.CREATE_TOPICS, 4, {"topics": [topic("kept")], "timeout": TIMEOUT_MS, "validate_only": False})


def test_thousands_of_connections_opened_and_dropped(attacked):
    before = resident_bytes(attacked)
    for number in range(DROPPED_CONNECTIONS):
        with connect(attacked) as connection, suppress(ConnectionError):
            connection.sendall((API_VERSIONS, API_VERSIONS[:7], b"", b"\x00")[number % 4])
    assert serves(attacked)
    assert resident_bytes(attacked) - before < 64 << 20


def test_half_frames_and_slow_peers_keep_no_one_waiting(attacked):
    before = resident_bytes(attacked)
    with ExitStack() as slow:
        peers = [slow.enter_context(connect(attacked)) for _ in range(500)]
        claim = (64 << 20).to_bytes(4, "big")
        for number, peer in enumerate(peers):
            peer.sendall((API_VERSIONS[:-1], claim + b"\x00" * 10)[number % 2])
        for byte in range(5):
            for peer in peers[1::2]:
                peer.sendall(bytes((byte,)))
            assert serves(attacked)
        assert resident_bytes(attacked) - before < 128 << 20
        for peer in peers[::2]:
            peer.sendall(API_VERSIONS[-1:])
            assert len(peer.recv(4)) == 4
    assert serves(attacked)


def test_half_frames_that_use_up_the_memory_are_closed_once_others_wait_for_it(tmp_path):
    half = (500_000).to_bytes(4, "big") + bytes(400_000)
    with BrokerProcess(tmp_path / "data") as broker:
        ensure_topic(broker)
        with ExitStack() as stack:
            peers = [stack.enter_context(connect(broker)) for _ in range(1100)]
            for peer in peers:
                peer.setblocking(False)
                with suppress(BlockingIOError):
                    peer.send(half)
            awaited(lambda: "memory for requests are used up" in broker.read_log() or None, "the memory is used up")
            with Cluster(broker.bootstrap) as cluster:
                SyncProducer(cluster).send("kept", 0, [NewRecord(bytes(900_000))])
            assert "connections: nothing has come of their requests for 10 s" in broker.read_log()


def test_a_request_for_more_partitions_than_are_made_in_one_go_is_refused(attacked):
    ensure_topic(attacked)
    halves = [topic("half", 6_000), topic("other-half", 6_000)]
    more = {"topics": [{"name": "kept", "count": 10_002, "assignments": None}], "timeout": 1000, "validate_only": False}
    with RawConnection(attacked.bootstrap) as raw:
        for topics in ([topic("vast", 10_001)], halves):
            answer = raw.request(ApiKey.CREATE_TOPICS, 4, {"topics": topics, "timeout": 1000, "validate_only": False})
            assert {one.error_code for one in answer.topics} == {ErrorCode.POLICY_VIOLATION}
        answer = raw.request(ApiKey.CREATE_PARTITIONS, 1, more)
        assert [one.error_code for one in answer.results] == [ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize(
    ("key", "version", "fields", "answered"),
    [
        (ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["g"] * 50_000, "include_authorized_operations": False},
         lambda answer: answer.groups),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": ["g"] * 50_000, "include_authorized_operations": False},
         lambda answer: answer.groups),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}] * 50_000, "require_stable": False},
         lambda answer: answer.groups),
        (ApiKey.OFFSET_FETCH, 5, {"group_id": "g", "topics": [{"name": "kept", "partition_indexes": [0] * 50_000}]},
         lambda answer: answer.topics[0].partitions),
        (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [{"resource_type": 2, "resource_name": "kept",
                                                     "configuration_keys": None}] * 50_000, "include_synonyms": True},
         lambda answer: answer.results),
        (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "kept", "partition_indexes": [0] * 50_000}]},
         lambda answer: answer.topics[0].partitions),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)  # fmt: skip
def test_what_is_named_often_is_told_once(attacked, key, version, fields, answered):
    ensure_topic(attacked)
    ensure_coordinator(attacked, "g")
    before = resident_bytes(attacked)
    with RawConnection(attacked.bootstrap) as raw:
        assert len(answered(raw.request(key, version, fields))) == 1
    assert resident_bytes(attacked) - before < 128 << 20


def test_a_partition_is_looked_for_in_all_folders_once_for_a_whole_request(attacked):
    ensure_topic(attacked)
    path = {"path": "/", "topics": [{"name": "kept", "partitions": list(range(60_000))}]}
    with RawConnection(attacked.bootstrap) as raw:
        answer = raw.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": [path]})
    assert len(answer.results[0].partitions) == 60_000
    assert serves(attacked)


def test_an_array_that_claims_four_billion_closes_its_connection_only(attacked):
    header = encode_request_header(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, "peer")
    with connect(attacked) as connection:
        connection.sendall(framed(header, b"\xff\xff\xff\xff\x0f"))
        assert connection.recv(1) == b""
    assert serves(attacked)


def test_an_error_that_repeats_a_long_name_is_answered(attacked):
    name = "z" * 32_767
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    with RawConnection(attacked.bootstrap) as raw:
        fields = {"topics": [topic(name)], "timeout": TIMEOUT_MS, "validate_only": False}
        (created,) = raw.request(ApiKey.CREATE_TOPICS, 4, fields).topics
        fields = {"components": [{"entity_type": name, "match_type": 0, "match": None}], "strict": False}
        quotas = raw.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, fields)
        fields = {"resources": [resource], "include_synonyms": False}
        (described,) = raw.request(ApiKey.DESCRIBE_CONFIGS, 1, fields).results
    assert created.error_code == described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert quotas.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_member_of_a_client_with_a_long_name_is_given_an_id_that_can_be_told(attacked):
    fields = {"group_id": "long", "session_timeout": 6000, "rebalance_timeout": 100, "member_id": "",
              "group_instance_id": "i" * 32_000, "protocol_type": "consumer",
              "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    with RawConnection(attacked.bootstrap) as raw:
        raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": "long", "key_type": 0})
        while (
            answer := raw.request(ApiKey.JOIN_GROUP, 5, fields)
        ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
    assert answer.error_code == ErrorCode.NONE
    assert len(answer.member_id) < 2000


def test_others_are_served_while_many_logs_are_made(tmp_path):
    door = HeldDoor(tmp_path, "/wide-150/")
    fields = {"topics": [topic("wide", 300)], "timeout": TIMEOUT_MS, "validate_only": False}
    with (
        BrokerProcess(tmp_path / "data", program=door.program) as broker,
        RawConnection(broker.bootstrap) as raw,
        connect(broker) as creating,
    ):
        header = encode_request_header(ApiKey.CREATE_TOPICS, 4, 1, "peer")
        creating.sendall(framed(header, encode(ApiKey.CREATE_TOPICS, 4, Direction.REQUEST, fields)))
        while not door.is_reached:
            raw.request(ApiKey.API_VERSIONS, 0, {})
        served = sum(raw.request(ApiKey.API_VERSIONS, 0, {}).error_code == 0 for _ in range(20))
        assert served > 10
        assert not select.select([creating], [], [], 0)[0]
        door.open()
        while not select.select([creating], [], [], 0)[0]:
            raw.request(ApiKey.API_VERSIONS, 0, {})
