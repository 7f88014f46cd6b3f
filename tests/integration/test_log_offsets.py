"""The offsets of many partitions: few requests, and one answer for each partition whatever happens to the others."""

import socket
import struct
import threading
import time
from collections import Counter

import pytest

from millrace.client import Admin, Cluster, LogOffsets, SyncProducer, read_log_offsets
from millrace.client.connection import CLIENT_VERSIONS
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import PARTITIONS_PER_REQUEST, read_first_times
from millrace.errors import BrokerError, BrokerUnreachableError, ErrorCode, NotLeaderError, UnknownTopicError
from millrace.records.record import NewRecord
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.frame import framed
from millrace.wire.header import read_request_header
from millrace_support.response_headers import encode_response_header

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
EARLIEST = -2
OLD_EPOCH, LEADER_EPOCH = 3, 7  # the log's first batch was written under another leader
ROUND_TRIP_S = 0.005


class FakeBroker:
    """Answers every connection; each request costs a whole round trip, even where several are sent together."""

    def __init__(self, cluster, broker_id):
        self.cluster, self.id = cluster, broker_id
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.errors = {}
        self.ends_connection = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        with peer, peer.makefile("rb") as stream:
            while head := stream.read(4):
                frame = memoryview(stream.read(struct.unpack(">i", head)[0]))
                time.sleep(ROUND_TRIP_S)
                header = read_request_header(frame)
                if header.api_key == ApiKey.LIST_OFFSETS and self.ends_connection:
                    return
                fields = self._answer(ApiKey(header.api_key), header.api_version, frame[header.body_position :])
                answer = encode(ApiKey(header.api_key), header.api_version, Direction.RESPONSE, fields)
                prefix = encode_response_header(header.api_key, header.api_version, header.correlation_id)
                peer.sendall(framed(prefix, answer))

    def _answer(self, api_key, version, body):
        if api_key == ApiKey.API_VERSIONS:
            keys = [{"api_key": int(key), "min_version": 0, "max_version": 9} for key in CLIENT_VERSIONS]
            return {"error_code": 0, "api_keys": keys, "throttle_time": 0}
        request = decode(api_key, version, Direction.REQUEST, body)
        self.cluster.requests[api_key] += 1
        if api_key == ApiKey.METADATA:
            return self.cluster.metadata()
        return {"throttle_time": 0, "topics": [self._listed(topic, request) for topic in request.topics]}

    def _listed(self, topic, request):
        self.cluster.largest = max(self.cluster.largest, sum(len(one.partitions) for one in request.topics))
        return {"name": topic.name, "partitions": [self._offset(topic.name, one, request) for one in topic.partitions]}

    def _offset(self, topic, wanted, request):
        index = int(wanted.partition_index)
        leader = self.cluster.leaders[topic, index]
        code = self.errors.get((topic, index), 0 if leader == self.id else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        latest = 10 + index if request.isolation_level == COMMITTED else 20 + index
        offset = index if wanted.timestamp == EARLIEST else latest
        epoch = OLD_EPOCH if wanted.timestamp == EARLIEST else LEADER_EPOCH
        return {"partition_index": index, "error_code": code, "timestamp": -1, "offset": offset, "leader_epoch": epoch}


class FakeCluster:
    def __init__(self, brokers, leaders):
        self.leaders = leaders
        self.told_leaders = None
        self.requests = Counter()
        self.largest = 0
        self.brokers = [FakeBroker(self, number) for number in range(brokers)]
        self.bootstrap = f"127.0.0.1:{self.brokers[0].port}"

    def metadata(self):
        told, self.told_leaders = self.told_leaders or self.leaders, None
        topics = {}
        for (topic, index), leader in told.items():
            topics.setdefault(topic, []).append({
                "error_code": 0, "partition_index": index, "leader_id": leader, "leader_epoch": 0,
                "replica_nodes": (leader,), "isr_nodes": (leader,), "offline_replicas": (),
            })  # fmt: skip
        return {
            "throttle_time": 0, "cluster_id": "fake", "controller_id": 0,
            "brokers": [
                {"node_id": one.id, "host": "127.0.0.1", "port": one.port, "rack": None} for one in self.brokers
            ],
            "topics": [
                {"error_code": 0, "name": name, "topic_id": NO_TOPIC_ID, "is_internal": False,
                 "partitions": partitions, "topic_authorized_operations": 0}
                for name, partitions in topics.items()
            ],
        }  # fmt: skip

    def close(self):
        for broker in self.brokers:
            broker.server.close()


@pytest.fixture
def fake():
    made = []

    def make(brokers, leaders):
        made.append(FakeCluster(brokers, leaders))
        return made[-1]

    yield make
    for one in made:
        one.close()


def look(fake_cluster, partitions, isolation=COMMITTED):
    with Cluster(fake_cluster.bootstrap, timeout_s=60) as cluster:
        return read_log_offsets(cluster, partitions, isolation)


def test_ten_thousand_partitions_take_few_requests_of_bounded_size(fake):
    partitions = [(f"topic-{number}", index) for number in range(100) for index in range(100)]
    cluster = fake(1, dict.fromkeys(partitions, 0))
    began = time.perf_counter()
    found = look(cluster, partitions)
    seconds = time.perf_counter() - began
    assert list(found) == partitions
    assert found["topic-7", 3] == LogOffsets(3, 13, 23, LEADER_EPOCH)
    assert cluster.requests == {ApiKey.METADATA: 1, ApiKey.LIST_OFFSETS: 3 * 10_000 / PARTITIONS_PER_REQUEST}
    assert cluster.largest == PARTITIONS_PER_REQUEST
    assert seconds < ROUND_TRIP_S * 3 * len(partitions), "they take less than a round trip for each question"


def test_each_leader_is_asked_for_its_own_partitions_once_for_each_question(fake):
    leaders = {("events", index): index % 3 for index in range(30)}
    cluster = fake(3, leaders)
    found = look(cluster, leaders, UNCOMMITTED)
    assert found == {("events", index): LogOffsets(index, 20 + index, None, LEADER_EPOCH) for index in range(30)}
    assert cluster.requests == {ApiKey.METADATA: 1, ApiKey.LIST_OFFSETS: 2 * 3}


def test_a_leader_that_has_moved_is_looked_for_once_more(fake):
    leaders = {("events", index): 1 for index in range(4)}
    cluster = fake(2, leaders)
    cluster.told_leaders = leaders | {("events", 2): 0}
    assert look(cluster, leaders)["events", 2] == LogOffsets(2, 12, 22, LEADER_EPOCH)
    assert cluster.requests == {ApiKey.METADATA: 2, ApiKey.LIST_OFFSETS: 3 * 3}


def test_a_leader_that_does_not_have_the_partition_leaves_the_others_their_answers(fake):
    leaders = {("events", index): 0 for index in range(4)}
    cluster = fake(1, leaders)
    cluster.brokers[0].errors["events", 2] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = look(cluster, leaders)
    assert isinstance(found["events", 2], NotLeaderError)
    assert [one for one, offsets in found.items() if isinstance(offsets, LogOffsets)] == [
        ("events", 0),
        ("events", 1),
        ("events", 3),
    ]
    assert cluster.requests[ApiKey.METADATA] == 2


def test_partitions_without_a_leader_and_unknown_ones_have_errors(fake):
    cluster = fake(1, {("events", 0): 0, ("events", 1): -1})
    found = look(cluster, [("events", 0), ("events", 1), ("events", 7), ("nowhere", 0)])
    assert found["events", 0] == LogOffsets(0, 10, 20, LEADER_EPOCH)
    assert isinstance(found["events", 1], BrokerError)
    assert str(found["events", 1]).startswith("events-1 has no leader at present")
    assert isinstance(found["events", 7], UnknownTopicError)
    assert str(found["nowhere", 0]) == "topic nowhere does not exist"


def test_a_leader_that_is_away_takes_its_own_partitions_alone(fake):
    leaders = {("events", index): index % 2 for index in range(6)}
    cluster = fake(2, leaders)
    cluster.brokers[1].server.shutdown(socket.SHUT_RDWR)
    cluster.brokers[1].server.close()
    found = look(cluster, leaders)
    assert [isinstance(one, LogOffsets) for one in found.values()] == [True, False] * 3
    assert all(isinstance(found["events", index], BrokerUnreachableError) for index in (1, 3, 5))


def test_a_connection_that_breaks_during_the_answers_is_an_answer(fake):
    leaders = {("events", index): index % 2 for index in range(4)}
    cluster = fake(2, leaders)
    cluster.brokers[1].ends_connection = True
    found = look(cluster, leaders)
    assert [isinstance(one, LogOffsets) for one in found.values()] == [True, False] * 2


def test_without_any_broker_each_partition_says_so():
    with Cluster("127.0.0.1:1") as cluster:
        found = read_log_offsets(cluster, [("events", 0), ("events", 1)], COMMITTED)
    assert [type(one) for one in found.values()] == [BrokerUnreachableError] * 2


def test_nothing_is_asked_for_no_partitions():
    with Cluster("127.0.0.1:1") as cluster:
        assert read_log_offsets(cluster, [], COMMITTED) == {}


def test_a_real_broker_tells_the_offsets_of_each_partition(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 3)
        SyncProducer(cluster).send("events", 1, [NewRecord(b"a"), NewRecord(b"b")])
        Admin(cluster).delete_records("events", 1, 1)
        partitions = [("events", 2), ("events", 1), ("events", 3), ("events", 1)]
        found = read_log_offsets(cluster, partitions, COMMITTED, metadata=cluster.metadata())
    assert list(found) == [("events", 2), ("events", 1), ("events", 3)]
    assert found["events", 2] == LogOffsets(0, 0, 0, 0)
    assert found["events", 1] == LogOffsets(1, 2, 2, 0)
    assert isinstance(found["events", 3], UnknownTopicError)


def test_a_real_broker_tells_since_when_each_partition_has_records(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("aged", 3)
        producer = SyncProducer(cluster)
        producer.send("aged", 0, [NewRecord(b"a", timestamp_ms=5_000), NewRecord(b"b", timestamp_ms=4_000)])
        producer.send("aged", 1, [NewRecord(b"a", timestamp_ms=5_000), NewRecord(b"b", timestamp_ms=6_000)])
        Admin(cluster).delete_records("aged", 1, 1)
        found = read_first_times(cluster, [("aged", partition) for partition in range(4)])
    assert [found["aged", partition] for partition in range(3)] == [5_000, 6_000, None]
    assert isinstance(found["aged", 3], UnknownTopicError)
