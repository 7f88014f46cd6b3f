"""Produce requests that are sent without waiting: handled together, answered one by one, in order."""

import socket
import struct

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header, has_tagged_response_header

VERSION = 9


def produce(number, parts, *, version=VERSION, acks=-1):
    """A request; `parts` are (topic, partition, records)."""
    topics = [{"name": topic, "partition_data": [{"index": index, "records": data}]} for topic, index, data in parts]
    fields = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": topics}
    header = encode_request_header(ApiKey.PRODUCE, version, number, "pipe")
    return framed(header, encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields))


def batch(value):
    return encode_batch([NewRecord(value)])


def partitions(message):
    return [one for topic in message.responses for one in topic.partition_responses]


class Pipe:
    """A connection on which requests are sent in one go."""

    def __init__(self, broker):
        host, port = broker.bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.stream = self.socket.makefile("rb")

    def answer(self, version=VERSION):
        """(correlation id, the partitions of the answer)."""
        frame = self.stream.read(int.from_bytes(self.stream.read(4), "big"))
        skip = 5 if has_tagged_response_header(ApiKey.PRODUCE, version) else 4
        message = decode(ApiKey.PRODUCE, version, Direction.RESPONSE, frame[skip:])
        return struct.unpack_from(">i", frame)[0], partitions(message)


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def pipe(broker, cluster):
    for topic in ("left", "right"):
        Admin(cluster).create_topic(topic, 2)
    pipe = Pipe(broker)
    with pipe.socket:
        yield pipe


def stored(cluster, topic, partition):
    data = SimpleConsumer(cluster).fetch(topic, partition, 0).records
    return [record.value for record in decode_records(data)]


def test_answers_come_in_order_with_offsets_that_follow_one_another(pipe, cluster):
    count = 300
    pipe.socket.sendall(b"".join(produce(n, [("left", 0, batch(b"%d" % n))]) for n in range(count)))
    for number in range(count):
        correlation_id, (one,) = pipe.answer()
        assert (correlation_id, one.error_code, one.base_offset) == (number, ErrorCode.NONE, number)
    assert stored(cluster, "left", 0) == [b"%d" % n for n in range(count)]


def test_topics_partitions_and_versions_may_take_turns(pipe, cluster):
    requests, expected = [], []
    ends = {("left", 0): 0, ("left", 1): 0, ("right", 1): 0}
    for number in range(60):
        places = list(ends)[: 1 + number % 3]
        version = (3, 7, 9, 12)[number // 7 % 4]
        requests.append(produce(number, [(*place, batch(b"%d" % number)) for place in places], version=version))
        expected.append((version, [ends[place] for place in places]))
        for place in places:
            ends[place] += 1
    pipe.socket.sendall(b"".join(requests))
    for number, (version, offsets) in enumerate(expected):
        correlation_id, answered = pipe.answer(version)
        assert (correlation_id, [one.base_offset for one in answered]) == (number, offsets)
    assert stored(cluster, "right", 1) == [b"%d" % n for n in range(60) if n % 3 == 2]


def test_a_request_that_is_refused_leaves_its_neighbours_alone(pipe, cluster):
    broken = batch(b"broken")[:-1] + b"?"
    sent = [batch(b"a"), broken, batch(b"b"), b"", batch(b"c")]
    requests = [produce(number, [("left", 0, data)]) for number, data in enumerate(sent)]
    requests += [produce(5, [("nowhere", 0, batch(b"d"))]), produce(6, [("left", 0, batch(b"e"))], acks=5)]
    pipe.socket.sendall(b"".join([*requests, produce(7, [("left", 0, batch(b"f"))])]))
    codes = [pipe.answer()[1][0].error_code for _ in range(8)]
    assert codes[:3] == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert codes[3] is not ErrorCode.NONE
    assert codes[4:] == [
        *(ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        *(ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.NONE),
    ]
    assert stored(cluster, "left", 0) == [b"a", b"b", b"c", b"f"]


def test_what_came_before_nonsense_is_answered_and_then_the_connection_ends(pipe, cluster):
    header = encode_request_header(ApiKey.PRODUCE, VERSION, 2, "pipe")
    requests = [produce(number, [("left", 0, batch(b"%d" % number))]) for number in range(2)]
    pipe.socket.sendall(b"".join([*requests, framed(header, b"\xff" * 20), *requests]))
    assert [pipe.answer()[0] for _ in range(2)] == [0, 1]
    assert pipe.stream.read() == b""
    assert stored(cluster, "left", 0) == [b"0", b"1"]


def test_no_acks_no_answer_and_a_failure_ends_the_connection(pipe, cluster):
    requests = [produce(number, [("left", 0, batch(b"%d" % number))], acks=number % 2) for number in range(6)]
    pipe.socket.sendall(b"".join([*requests, produce(6, [("nowhere", 0, batch(b"lost"))], acks=0)]))
    assert [(number, one[0].base_offset) for number, one in (pipe.answer() for _ in range(3))] == [
        (1, 1),
        (3, 3),
        (5, 5),
    ]
    assert pipe.stream.read() == b""
    assert stored(cluster, "left", 0) == [b"%d" % n for n in range(6)]
