"""Properties of topics while they are written to, those of groups on the wire, and how long offsets are kept."""

import json
import re
import signal
import time
import urllib.request

import pytest
from confluent_kafka import admin as confluent

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.errors import ErrorCode
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.compression import Codec
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.encoder import Encoder
from millrace_support.admin_requests import change_request
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

SESSION_MIN_MS, SESSION_MAX_MS = 1000, 20_000
PROPERTIES = {
    "group.min.session.timeout.ms": str(SESSION_MIN_MS),
    "group.max.session.timeout.ms": str(SESSION_MAX_MS),
    "group.initial.rebalance.delay.ms": "500",
    "group.max.size": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "50",
}
JOIN_VERSION, COMMIT_VERSION = 2, 1
LONG_AGO_MS = 1_000_000_000_000
DYNAMIC_BROKER = 2  # the source of a broker's own live properties


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("obeyed"), properties=PROPERTIES) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(broker.bootstrap) as running:
        with RawConnection(broker.bootstrap) as raw:  # which has the topic of groups made
            raw.request(ApiKey.FIND_COORDINATOR, 0, {"key": "any"})
        yield running


@pytest.fixture
def topic(request, cluster):
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)
    Admin(cluster).create_topic(name, 2)
    return name


def set_live(broker, name, *, kind="topic", **properties):
    entries = [
        confluent.ConfigEntry(key.replace("_", "."), value, incremental_operation=confluent.AlterConfigOpType.SET)
        for key, value in properties.items()
    ]
    resource = confluent.ConfigResource(kind, name, incremental_configs=entries)
    admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def stored(cluster, topic):
    """Every batch, from segment to segment."""
    reader = SimpleConsumer(cluster)
    offset, end, batches = reader.earliest(topic, 0), reader.latest(topic, 0), b""
    while offset < end:
        found = bytes(reader.fetch(topic, 0, offset).records)
        offset = max(header.next_offset for _, header in walk(found))
        batches += found
    return batches


def test_the_type_of_times_is_obeyed_live(broker, cluster, topic):
    producer = SyncProducer(cluster)
    producer.send(topic, 0, [NewRecord(b"v", None, LONG_AGO_MS)])
    set_live(broker, topic, message_timestamp_type="LogAppendTime")
    producer.send(topic, 0, [NewRecord(b"v", None, LONG_AGO_MS)])
    set_live(broker, topic, message_timestamp_type="CreateTime")
    producer.send(topic, 0, [NewRecord(b"v", None, LONG_AGO_MS)])
    batches = stored(cluster, topic)
    assert [header.is_log_append_time for _, header in walk(batches)] == [False, True, False]
    assert [one.timestamp_ms == LONG_AGO_MS for one in decode_records(batches)] == [True, False, True]


def test_the_codec_of_a_topic_is_obeyed_live(broker, cluster, topic):
    producer = SyncProducer(cluster)
    for codec in ("producer", "gzip", "zstd", "uncompressed"):
        set_live(broker, topic, compression_type=codec)
        producer.send(topic, 0, [NewRecord(b"v")], codec=Codec.LZ4)
    codecs = [Codec(header.codec_id) for _, header in walk(stored(cluster, topic))]
    assert codecs == [Codec.LZ4, Codec.GZIP, Codec.ZSTD, Codec.NONE]


def test_the_policy_of_cleaning_is_obeyed_live(broker, cluster, topic):
    producer = SyncProducer(cluster)
    set_live(broker, topic, segment_bytes="1000")
    for number in range(20):
        producer.send(topic, 0, [NewRecord(b"%d" % number * 100, b"key")])
    compact(broker)
    assert len(list(decode_records(stored(cluster, topic)))) == 20
    set_live(broker, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    compact(broker)
    assert len(list(decode_records(stored(cluster, topic)))) < 20


def compact(broker):
    request = change_request(broker, "maintenance/compaction")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def join_fields(group, session_timeout_ms=SESSION_MIN_MS, member_id=""):
    return {
        "group_id": group, "session_timeout": session_timeout_ms, "rebalance_timeout": 10_000, "member_id": member_id,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (SESSION_MIN_MS - 1, ErrorCode.INVALID_SESSION_TIMEOUT),
        (SESSION_MIN_MS, ErrorCode.NONE),
        (SESSION_MAX_MS, ErrorCode.NONE),
        (SESSION_MAX_MS + 1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_sessions_are_as_long_as_they_may_be(broker, cluster, topic, timeout_ms, code):
    with RawConnection(broker.bootstrap) as raw:
        assert raw.request(ApiKey.JOIN_GROUP, JOIN_VERSION, join_fields(topic, timeout_ms)).error_code == code


def join_together(broker, group, members):
    """So many new members, each on a connection of its own; the broker sleeps until all have asked."""
    connections = [RawConnection(broker.bootstrap) for _ in range(members)]
    for one in connections:  # accepted, so that the requests of all are read together
        one.request(ApiKey.API_VERSIONS, 0, {})
    body = encode(ApiKey.JOIN_GROUP, JOIN_VERSION, Direction.REQUEST, join_fields(group, SESSION_MAX_MS))
    broker.send_signal(signal.SIGSTOP)
    for one in connections:
        one.send(ApiKey.JOIN_GROUP, JOIN_VERSION, body)
    broker.send_signal(signal.SIGCONT)
    answers = [
        decode(ApiKey.JOIN_GROUP, JOIN_VERSION, Direction.RESPONSE, one.receive(ApiKey.JOIN_GROUP, JOIN_VERSION))
        for one in connections
    ]
    for one in connections:
        one.close()
    return answers


def test_the_first_rebalance_waits_for_more_members(broker, cluster, topic):
    answers = join_together(broker, topic, 2)
    assert [one.error_code for one in answers] == [0, 0]
    assert {one.generation_id for one in answers} == {1}
    assert sorted(len(one.members) for one in answers) == [0, 2]


def test_a_group_is_as_large_as_it_may_be(broker, cluster, topic):
    answers = join_together(broker, topic, 3)
    assert sorted(one.error_code for one in answers) == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_offsets_are_kept_as_long_as_their_retention_says(broker, cluster, topic):
    """Two commits of OffsetCommit v1, whose client gives the time: one of two minutes ago, one of a minute to come."""
    now_ms = time.time_ns() // 1_000_000
    committed = {0: now_ms - 120_000, 1: now_ms + 60_000}
    with RawConnection(broker.bootstrap) as raw:
        out = Encoder(flexible=False)
        out.string(topic)
        out.int32(-1)
        out.string("")
        out.array_length(1)
        out.string(topic)
        out.array_length(len(committed))
        for index, time_ms in committed.items():
            out.int32(index)
            out.int64(5)
            out.int64(time_ms)
            out.string("")
        raw.exchange(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, out.joined())
        fields = {"group_id": topic, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}
        deadline = time.monotonic() + 60
        while True:
            [found] = raw.request(ApiKey.OFFSET_FETCH, 1, fields).topics
            if [one.committed_offset for one in found.partitions] == [-1, 5]:
                break
            assert time.monotonic() < deadline


VERIFICATION = "transaction.partition.verification.enable"
RELOGIN = "sasl.kerberos.min.time.before.relogin"
STORED = {VERIFICATION: "false", RELOGIN: "7", f"listener.name.plaintext.{RELOGIN}": "8"}
NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
           ErrorCode.NOT_LEADER_OR_FOLLOWER)  # fmt: skip


def of_broker(broker):
    """The properties of the broker that are set live."""
    resource = confluent.ConfigResource("broker", "1")
    admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_configs([resource])[resource].result(60)
    return {one.name: one.value for one in found.values() if one.source == DYNAMIC_BROKER}


def produced_in_no_transaction(broker, topic):
    """Sends a record of a transaction that nobody has begun; returns the error code once the broker can tell."""
    batch = encode_batch([NewRecord(b"v")], producer=BatchProducer(7, 0, 0), flags=TRANSACTIONAL_FLAG)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": "nobody", "acks": -1, "timeout": 60_000, "topic_data": data}
    with RawConnection(broker.bootstrap) as raw:
        raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": "nobody", "key_type": 1})
        return until(
            lambda: raw.request(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code,
            lambda code: code not in NOT_YET,
        )


def test_what_is_set_live_holds_at_once_and_after_the_next_start(tmp_path):
    with BrokerProcess(tmp_path / "data", properties={"transaction.state.log.num.partitions": "1"}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for name in ("before", "after"):
                Admin(cluster).create_topic(name, 1)
        assert produced_in_no_transaction(broker, "before") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        set_live(broker, "1", kind="broker", **STORED)
        assert of_broker(broker) == STORED
        assert produced_in_no_transaction(broker, "before") == ErrorCode.NONE
        broker.restart()
        assert of_broker(broker) == STORED
        assert produced_in_no_transaction(broker, "after") == ErrorCode.NONE
