"""What a hostile or broken peer sends: its own connection pays, others never notice."""

import socket
import struct
import urllib.request
from pathlib import Path
from random import Random

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.errors import ErrorCode, RecordTooLargeError
from millrace.records.batch import CRC_POSITION, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, compute_crc
from millrace.records.compression import Codec
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header, has_tagged_response_header


class RawConnection:
    """A socket, and the bare protocol over it."""

    def __init__(self, broker):
        host, port = broker.bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.correlation_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, api_key, version, fields):
        self.correlation_id += 1
        header = encode_request_header(api_key, version, self.correlation_id, "raw")
        self.socket.sendall(framed(header, encode(api_key, version, Direction.REQUEST, fields)))

    def receive(self, api_key, version):
        (size,) = struct.unpack(">i", self.exactly(4))
        frame = self.exactly(size)
        assert struct.unpack_from(">i", frame)[0] == self.correlation_id
        skip = 5 if has_tagged_response_header(api_key, version) else 4
        return decode(api_key, version, Direction.RESPONSE, frame[skip:])

    def request(self, api_key, version, fields):
        self.send(api_key, version, fields)
        return self.receive(api_key, version)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, "the broker closed the connection"
            data += chunk
        return data

    def is_closed_by_peer(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests: what one sends must not harm the tests after it, either."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def own_broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def raw(broker):
    with RawConnection(broker) as connection:
        yield connection


def produce_fields(topic, records, acks=-1, transactional_id=None):
    partition = {"index": 0, "records": records}
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 60_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


def still_serves(broker):
    with RawConnection(broker) as other:
        answer = other.request(ApiKey.API_VERSIONS, 0, {})
        return answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("what", "frame"),
    [
        ("an unknown API key", framed(struct.pack(">hhih", 999, 0, 1, -1))),
        ("a negative API key", framed(struct.pack(">hhih", -7, 0, 1, -1))),
        ("an unknown version", framed(struct.pack(">hhih", ApiKey.FETCH, 99, 1, -1) + b"\x00")),
        ("a version from before what is served", framed(struct.pack(">hhih", ApiKey.CREATE_TOPICS, -1, 1, -1))),
        ("an oversized frame", struct.pack(">i", 2**31 - 1)),
        ("a negative size", struct.pack(">i", -5)),
        ("a header cut short", framed(b"\x00\x01\x02")),
        ("a client id that runs over", framed(struct.pack(">hhih", 18, 0, 1, 500) + b"ab")),
        ("a body cut short", framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + b"\x00\x00")),
        ("an array of two billion", framed(struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 2**31 - 1))),
        ("text of another protocol", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_request_closes_its_connection_only(broker, raw, what, frame):
    logged = len(broker.read_log())
    raw.socket.sendall(frame)
    assert raw.is_closed_by_peer(), what
    assert still_serves(broker)
    assert "closing the connection" in broker.read_log()[logged:]


def test_an_unknown_version_of_api_versions_is_answered_with_what_is_served(raw):
    raw.correlation_id = 9
    raw.socket.sendall(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 77, 9, -1) + b"\x00"))
    answer = raw.receive(ApiKey.API_VERSIONS, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(ApiKey.API_VERSIONS, 0, 4)]


def test_a_frame_in_single_bytes_is_understood(raw):
    raw.correlation_id = 3
    for byte in framed(encode_request_header(ApiKey.API_VERSIONS, 0, 3, "slow")):
        raw.socket.sendall(bytes((byte,)))
    assert raw.receive(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE


def test_requests_in_a_row_are_answered_in_their_order(raw):
    count = 5000
    frames = b"".join(framed(encode_request_header(ApiKey.API_VERSIONS, 0, n, "row")) for n in range(count))
    raw.socket.sendall(frames)
    for n in range(count):
        raw.correlation_id = n
        raw.receive(ApiKey.API_VERSIONS, 0)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_wrong_crc_is_the_protocols_error(raw, version):
    topic = f"crc-{version}"
    raw.request(ApiKey.METADATA, 4, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
    batch = bytearray(encode_batch([NewRecord(b"value")]))
    batch[CRC_POSITION] ^= 0xFF
    answer = raw.request(ApiKey.PRODUCE, version, produce_fields(topic, bytes(batch)))
    partition = answer.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    good = raw.request(ApiKey.PRODUCE, version, produce_fields(topic, encode_batch([NewRecord(b"value")])))
    assert good.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (produce_fields("nowhere", encode_batch([NewRecord(b"v")])), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_fields("nowhere", encode_batch([NewRecord(b"v")]), acks=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_fields("events", encode_batch([NewRecord(b"v")]), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce_fields("events", b""), ErrorCode.INVALID_RECORD),
        (produce_fields("events", 2 * encode_batch([NewRecord(b"v")])), ErrorCode.INVALID_RECORD),
        (produce_fields("nowhere", None, transactional_id="t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["unknown topic", "acks=2 to an unknown topic", "acks=2", "no batch", "two batches", "a transaction"],
)
def test_produce_refused(raw, fields, code):
    raw.request(ApiKey.METADATA, 4, {"topics": [{"name": "events"}], "allow_auto_topic_creation": True})
    answer = raw.request(ApiKey.PRODUCE, 9, fields)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == code
    assert partition.error_message


def test_a_batch_above_the_limit_is_refused_and_nothing_is_stored(broker):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        producer.send("small", 0, [NewRecord(b"fits")])
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            producer.send("small", 0, [NewRecord(bytes(2 << 20))])
        assert SimpleConsumer(cluster).latest("small", 0) == 1


@pytest.mark.parametrize("topic", ["nowhere", "unheard"])
@pytest.mark.parametrize(
    "batch",
    [encode_batch([NewRecord(b"v")]), encode_batch([NewRecord(Random(0).randbytes(200_000))], codec=Codec.GZIP)],
    ids=["checked at once", "checked on a thread"],
)
def test_a_failed_produce_without_acks_closes_the_connection(broker, raw, topic, batch):
    if topic == "unheard":
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send(topic, 0, [NewRecord(b"it is there")])
    lying = batch if topic == "nowhere" else with_a_wrong_count(batch)
    raw.send(ApiKey.PRODUCE, 9, produce_fields(topic, lying, acks=0))
    assert raw.is_closed_by_peer()
    assert still_serves(broker)


def with_a_wrong_count(batch):
    lying = bytearray(batch)
    struct.pack_into(">i", lying, 23, 4)  # the last offset delta
    struct.pack_into(">i", lying, 57, 5)
    struct.pack_into(">I", lying, CRC_POSITION, compute_crc(lying, 0, len(lying)))
    return bytes(lying)


def fetch_fields(topic, offset, partition=0):
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
            "topics": [{"topic": topic, "partitions": [wanted]}], "forgotten_topics_data": []}  # fmt: skip


def test_fetch_errors_are_per_partition(broker, raw):
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("fetched", 0, [NewRecord(b"v")])
    for fields, code in [
        (fetch_fields("fetched", 0), ErrorCode.NONE),
        (fetch_fields("fetched", 1), ErrorCode.NONE),
        (fetch_fields("fetched", 2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_fields("fetched", -1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_fields("fetched", 0, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_fields("nowhere", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]:
        answer = raw.request(ApiKey.FETCH, 12, fields)
        assert answer.responses[0].partitions[0].error_code == code


def test_a_waiting_fetch_is_woken_by_a_produce_and_holds_back_later_replies(broker, raw):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        producer.send("awaited", 0, [NewRecord(b"first")])
        raw.send(ApiKey.FETCH, 12, fetch_fields("awaited", 1) | {"max_wait": 60_000})
        raw.send(ApiKey.API_VERSIONS, 0, {})
        producer.send("awaited", 0, [NewRecord(b"second")])
    raw.correlation_id = 1
    answer = raw.receive(ApiKey.FETCH, 12)
    assert answer.responses[0].partitions[0].high_watermark == 2
    assert b"second" in answer.responses[0].partitions[0].records
    raw.correlation_id = 2
    raw.receive(ApiKey.API_VERSIONS, 0)


def test_sigterm_answers_a_waiting_fetch_and_exits_0(own_broker):
    with Cluster(own_broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(b"only")])
    with RawConnection(own_broker) as raw:
        raw.send(ApiKey.FETCH, 12, fetch_fields("events", 1) | {"max_wait": 60_000})
        raw.send(ApiKey.API_VERSIONS, 0, {})  # a second request, which waits in line behind the fetch
        metrics = f"{own_broker.admin_url}/metrics"
        while "millrace_purgatory_size 1.0" not in urllib.request.urlopen(metrics).read().decode():
            pass
        assert own_broker.stop() == 0
        raw.correlation_id = 1
        assert raw.receive(ApiKey.FETCH, 12).responses[0].partitions[0].error_code == ErrorCode.NONE
        raw.correlation_id = 2
        raw.receive(ApiKey.API_VERSIONS, 0)
        assert raw.is_closed_by_peer()
    assert "cutting off" not in own_broker.read_log()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "bad name!", "num_partitions": 1}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a" * 250, "num_partitions": 1}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "t", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "num_partitions": 1, "replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "num_partitions": 1, "configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        (
            {"name": "t", "num_partitions": 1, "configs": [{"name": "retention.ms", "value": "soon"}]},
            ErrorCode.INVALID_CONFIG,
        ),
        ({"name": "t", "num_partitions": 2}, ErrorCode.NONE),
    ],
)
def test_create_topics_checks_what_it_is_given(raw, topic, code):
    fields = {"replication_factor": 1, "assignments": [], "configs": [], **topic}
    answer = raw.request(ApiKey.CREATE_TOPICS, 7, {"topics": [fields], "timeout": 60_000, "validate_only": False})
    assert answer.topics[0].error_code == code
    assert bool(answer.topics[0].error_message) == (code != ErrorCode.NONE)


def resident_mebibytes(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024


def test_a_peer_that_asks_and_never_reads_costs_a_bounded_part_of_memory(own_broker):
    with Cluster(own_broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for _ in range(20):
            producer.send("events", 0, [NewRecord(bytes(900_000))])
    before = resident_mebibytes(own_broker.pid)
    with RawConnection(own_broker) as greedy:
        for _ in range(300):  # answers of some 5 GB in all
            greedy.send(ApiKey.FETCH, 12, fetch_fields("events", 0) | {"max_bytes": 40 << 20})
        assert still_serves(own_broker)
        assert resident_mebibytes(own_broker.pid) - before < 60


def test_an_idempotent_producers_batches_are_taken_once_and_in_order(raw, broker):
    def send(sequence, value, *, epoch=0, flags=0):
        batch = encode_batch([NewRecord(value)], producer=BatchProducer(7, epoch, sequence), flags=flags)
        answer = raw.request(ApiKey.PRODUCE, 9, produce_fields("idempotent", batch))
        (partition,) = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("idempotent", 0, [NewRecord(b"first")])
        assert [send(sequence, b"%d" % sequence, epoch=1) for sequence in (0, 1, 1, 0, 2)] == [
            (0, 1), (0, 2), (0, 2), (0, 1), (0, 3),
        ]  # fmt: skip
        assert send(4, b"gap", epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(3, b"old", epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        refused = send(3, b"transactional", epoch=1, flags=TRANSACTIONAL_FLAG)
        assert refused[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert SimpleConsumer(cluster).latest("idempotent", 0) == 4


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_only_the_log_says_that_a_time_is_its_own(broker, raw, timestamp_type):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(timestamp_type, 1, config={"message.timestamp.type": timestamp_type})
    batch = encode_batch([NewRecord(b"v", b"k", 7)], flags=TIMESTAMP_TYPE_FLAG)
    (refused,) = raw.request(ApiKey.PRODUCE, 9, produce_fields(timestamp_type, batch)).responses[0].partition_responses
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    with Cluster(broker.bootstrap) as cluster:
        assert SimpleConsumer(cluster).latest(timestamp_type, 0) == 0
        assert SyncProducer(cluster).send(timestamp_type, 0, [NewRecord(b"v")]) == 0
