"""`millrace consume` as a user runs it: transactions, groups, formats, schemas."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.schema_registry import SchemaRegistryServer

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def topic(request):
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)


@pytest.fixture
def run(broker, warm_millrace):
    """Runs a command to its end."""

    def command(*arguments, stdin=b""):
        given = [warm_millrace, *arguments, "--bootstrap", broker.bootstrap]
        return subprocess.run(given, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)

    return command


@pytest.fixture
def millrace(run):
    """Runs a command that must succeed and say nothing on stderr; its stdout."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, stdin=stdin)
        assert (result.returncode, result.stderr) == (0, b"")
        return result.stdout

    return command


@pytest.fixture
def refused(run):
    """Runs a command that must fail and print nothing; its one line of stderr."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, stdin=stdin)
        assert (result.returncode, result.stdout) == (1, b"")
        (line,) = result.stderr.decode().splitlines()
        assert line.startswith("millrace: ")
        return line

    return command


@pytest.fixture
def send(broker, topic):
    """Sends values to the topic's first partition; returns its name."""

    def values(*given):
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send(topic, 0, [NewRecord(value) for value in given])
        return topic

    return values


@pytest.fixture
def transactions(broker, topic, millrace):
    """A topic with a committed record, an aborted one and an open one; the producer."""
    millrace("topics", "create", topic, "--partitions", "1")
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.init_transactions(60)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        end(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    return producer


def test_only_committed_records_are_printed_up_to_the_last_stable_offset(millrace, topic, transactions):
    assert millrace("consume", topic) == b"kept\n"
    assert millrace("consume", topic, "--from", "latest") == b""
    assert millrace("consume", topic, "--isolation-level", "read_uncommitted") == b"kept\ndropped\nopen\n"
    transactions.commit_transaction(60)
    assert millrace("consume", topic) == b"kept\nopen\n"


def test_following_goes_on_when_an_open_transaction_ends(broker, topic, transactions):
    command = [MILLRACE, "consume", topic, "--follow", "--max-messages", "2", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"kept\n"
        transactions.commit_transaction(60)
        assert follower.communicate(timeout=TIMEOUT_S)[0] == b"open\n"
        assert follower.returncode == 0


def test_the_last_records_are_counted_without_markers_and_aborted_ones(millrace, topic, transactions):
    assert millrace("consume", topic, "--last", "1") == b"kept\n"
    transactions.commit_transaction(60)
    assert millrace("consume", topic, "--last", "1") == b"open\n"
    assert millrace("consume", topic, "--last", "2") == b"kept\nopen\n"
    assert millrace("consume", topic, "--last", "9") == b"kept\nopen\n"


def exported(millrace, group):
    return [json.loads(line)["offset"] for line in millrace("offsets", "export", group).splitlines()]


def test_a_groups_offsets_go_past_what_was_aborted(millrace, topic, transactions):
    assert millrace("consume", topic, "--group", topic) == b"kept\n"
    assert exported(millrace, topic) == [4]  # record and marker, twice
    assert millrace("consume", topic, "--group", topic) == b""
    transactions.commit_transaction(60)
    assert millrace("consume", topic, "--group", topic) == b"open\n"
    assert exported(millrace, topic) == [6]


def test_a_group_stays_where_it_began(millrace, topic):
    millrace("produce", topic, stdin=b"one\n")
    assert millrace("consume", topic, "--group", topic, "--from", "latest") == b""
    millrace("produce", topic, stdin=b"two\n")
    assert millrace("consume", topic, "--group", topic, "--from", "latest") == b"two\n"


def test_a_group_whose_offsets_are_gone_goes_on_at_the_nearest_end(run, millrace, topic):
    millrace("produce", topic, stdin=b"one\ntwo\nthree\n")
    assert millrace("consume", topic, "--group", topic, "--max-messages", "1") == b"one\n"
    millrace("topics", "delete-records", topic, "--before", "2")
    went_on = run("consume", topic, "--group", topic)
    assert (went_on.returncode, went_on.stdout) == (0, b"three\n")
    assert went_on.stderr.decode() == f"millrace: {topic}-0 has no offset 1: it begins at 2, and is read from there\n"


def test_what_is_printed_is_committed_before_more_is_read(broker, millrace, topic):
    millrace("produce", topic, stdin=b"one\n")
    command = [MILLRACE, "consume", topic, "--group", topic, "--follow", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"one\n"
        millrace("produce", topic, stdin=b"two\n")
        assert follower.stdout.readline() == b"two\n"
        follower.kill()
    assert millrace("consume", topic, "--group", topic) in {b"two\n", b""}  # at least once


def test_a_group_with_members_is_refused(broker, millrace, refused, topic):
    millrace("produce", topic, stdin=b"one\n")
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    member.subscribe([topic])
    assert member.poll(60).value() == b"one"
    assert "has live members" in refused("consume", topic, "--group", topic)
    member.close()


def test_a_topic_with_all_that_a_record_may_hold_is_replayed_exactly(broker, millrace, topic):
    copy = f"{topic}-copy"
    for name in (topic, copy):
        millrace("topics", "create", name, "--partitions", "2")
    records = [
        NewRecord(b"\xff\x00", "ключ".encode(), 1, (("h", b"1"), ("h", None), ("h", b"\xfe"), ("", b""))),
        NewRecord(None, b"k", 2),
        NewRecord(b"", b"", 3),
        NewRecord(b"a\nb\r", None, 4),
        NewRecord(b'{"json": [1, null]}', b"\xff", 5),
    ]
    with Cluster(broker.bootstrap) as cluster:
        for partition in (0, 1):
            SyncProducer(cluster).send(topic, partition, records[partition:])
        saved = millrace("consume", topic, "--json")
        millrace("produce", copy, "--input", "json", stdin=saved)
        for partition in (0, 1):
            found = list(SimpleConsumer(cluster).messages(copy, partition))
            assert [NewRecord(one.value, one.key, one.timestamp_ms, one.headers) for one in found] == records[
                partition:
            ]


POINT = {
    "type": "record",
    "name": "Point",
    "fields": [
        {"name": "x", "type": ["null", "int", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}
PLACE = 'syntax = "proto3"; message Other { int32 a = 1; } message Place { string first_name = 1; int64 number = 2; }'


@pytest.fixture
def registry():
    with SchemaRegistryServer() as server:
        yield server


def test_values_are_decoded_by_the_registrys_schemas(send, millrace, registry, topic):
    avro = registry.register("t", json.dumps(POINT))
    protobuf = registry.register("t", PLACE, "PROTOBUF")
    plain = registry.register("t", '{"type": "object"}', "JSON")
    values = [
        struct.pack(">bI", 0, avro) + b"\x04\x04hi\x02\x02\xff",  # branch 2: "hi"; 1 ms; one byte
        struct.pack(">bI", 0, protobuf) + b"\x02\x02" + b"\x0a\x03Ada\x10\x07",  # the path [1]: Place
        struct.pack(">bI", 0, plain) + b'{"a": "\xc3\xa4"}',
        None,
    ]
    send(*values)
    expected = [
        {"x": "hi", "at": "1970-01-01T00:00:00.001000+00:00", "raw": {"base64": "/w=="}},
        {"first_name": "Ada", "number": "7"},
        {"a": "ä"},
        None,
    ]
    decoded = ("consume", topic, "--schema-registry", registry.url)
    assert [json.loads(line) for line in millrace(*decoded).splitlines()] == expected
    assert [json.loads(line)["value"] for line in millrace(*decoded, "--json").splitlines()] == expected
    assert millrace(*decoded, "--from", "2", "--format", "%o %v;") == '2 {"a": "ä"};3 null;'.encode()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"plain", "the value is not in Confluent's wire format"),
        (b"\0\0\0\0\x63{}", "its schema 99 can't be used: "),
        (b"\0\0\0\0\x01\x04", "the value is not of its schema 1: "),
        (b"\0\0\0\0\x01\x00\x02\x00\x00", "the value is not of its schema 1: bytes after the value's end"),
        (b"\0\0\0\0\x02\x00\xff", "the value is not of its schema 2: "),
        (b"\0\0\0\0\x03{", "the value is not of its schema 3: "),
    ],
)
def test_a_value_that_is_not_of_its_schema_is_named_by_its_offset(send, refused, registry, value, words):
    registry.register("t", json.dumps(POINT))
    registry.register("t", PLACE, "PROTOBUF")
    registry.register("t", "{}", "JSON")
    topic = send(value)
    error = refused("consume", topic, "--schema-registry", registry.url)
    assert error.startswith(f"millrace: {topic}-0 at offset 0: {words}")


def test_what_is_no_registry_is_said(refused, topic):
    assert "not the address of a schema registry" in refused("consume", topic, "--schema-registry", "ftp://x")
