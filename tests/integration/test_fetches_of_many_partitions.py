"""Fetches of so many partitions that they are read in turns: what is appended meanwhile, or later, ends their wait."""

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.handlers.k01_fetch import MANY_PARTITIONS
from millrace_support.raw import RawConnection

TOPIC, PARTITIONS = "many", MANY_PARTITIONS + 100
VERSION = 12
WITHOUT_SESSION, NEW_SESSION = -1, 0
NEVER_MS = 600_000  # longer than a raw connection waits for an answer
ROUNDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("many") / "data") as running:
        with Cluster(running.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS)
        yield running


def fetch_from(offsets, epoch, max_wait_ms=NEVER_MS):
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1000}
        for index, offset in enumerate(offsets)
    ]
    return {
        "max_wait": max_wait_ms, "min_bytes": 1, "session_id": 0, "session_epoch": epoch,
        "topics": [{"topic": TOPIC, "partitions": partitions}], "forgotten_topics_data": [],
    }  # fmt: skip


def values_of(answer):
    partitions = [one for topic in answer.responses for one in topic.partitions]
    assert {one.error_code for one in partitions} <= {0}
    return {
        one.partition_index: [record.value for record in decode_records(one.records)]
        for one in partitions
        if one.records
    }


@pytest.mark.parametrize("epoch", [WITHOUT_SESSION, NEW_SESSION])
def test_what_is_appended_while_they_are_read_or_wait_ends_the_wait(broker, epoch):
    with RawConnection(broker.bootstrap) as reading, Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        ends = ends_of(reading)
        for number in range(ROUNDS):  # the append meets the request at any point of its reading
            partition, value = number * 7 % PARTITIONS, b"%d" % number
            fetch = encode(ApiKey.FETCH, VERSION, Direction.REQUEST, fetch_from(ends, epoch))
            reading.send(ApiKey.FETCH, VERSION, fetch)
            producer.send(TOPIC, partition, [NewRecord(value)])
            answer = decode(ApiKey.FETCH, VERSION, Direction.RESPONSE, reading.receive(ApiKey.FETCH, VERSION))
            assert values_of(answer) == {partition: [value]}
            ends[partition] += 1


def test_they_are_answered_without_records_when_their_time_is_over(broker):
    with RawConnection(broker.bootstrap) as reading:
        answer = reading.request(ApiKey.FETCH, VERSION, fetch_from(ends_of(reading), WITHOUT_SESSION, max_wait_ms=100))
        assert values_of(answer) == {}
        assert len(answer.responses[0].partitions) == PARTITIONS


def ends_of(connection):
    wanted = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in range(PARTITIONS)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": wanted}]}
    answer = connection.request(ApiKey.LIST_OFFSETS, 7, fields)
    return [one.offset for one in answer.topics[0].partitions]
