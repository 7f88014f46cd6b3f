"""Damage of Millrace's log heals from Apache Kafka's replica, whichever of the two leads the partition."""

import json
import urllib.request
from uuid import uuid4

import pytest

from millrace.client import Admin, SyncProducer
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace_support.admin_requests import change_request
from millrace_support.mixed_clusters import Software, mixed_cluster
from millrace_support.waiting import until

KAFKA, MILLRACE = Software
TOPIC = "t"
BATCHES, RECORDS = 60, 10
SETTINGS = {"log.segment.bytes": "4000", "log.index.interval.bytes": "500", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def brokers(kafka, tmp_path_factory, zookeeper):
    """Broker 1 is Apache Kafka, broker 2 is Millrace; each leads one of two partitions and follows the other."""
    start, chroot = {1: KAFKA, 2: MILLRACE}, f"{zookeeper.address}/{uuid4().hex}"
    with mixed_cluster(kafka, tmp_path_factory.mktemp("mixed"), chroot, start, SETTINGS) as cluster:
        with cluster.connect() as client:
            Admin(client).create_topic(TOPIC, 2, replication_factor=2)
            for index in range(2):
                cluster.until(lambda one: len(one.isr) == 2, TOPIC, index)
                producer = SyncProducer(client)
                for first in range(0, BATCHES * RECORDS, RECORDS):
                    values = [NewRecord(b"%d:" % offset + b"v" * 30) for offset in range(first, first + RECORDS)]
                    producer.send(TOPIC, index, values)
        yield cluster


def verify(broker):
    with urllib.request.urlopen(change_request(broker, "maintenance/verify"), timeout=60) as answer:
        return {one["partition"]: one["findings"] for one in json.load(answer)["partitions"] if one["topic"] == TOPIC}


@pytest.mark.broker_errors(r"segments\.damage_search: ")
@pytest.mark.parametrize("leader", [KAFKA, MILLRACE])
def test_damage_heals_from_kafkas_replica(brokers, leader):
    ids = {KAFKA: 1, MILLRACE: 2}
    (index,) = [one for one in range(2) if brokers.partition(TOPIC, one).leader == ids[leader]]
    expected = brokers.equal_logs(TOPIC, index)
    millrace = brokers.brokers[ids[MILLRACE]]
    segment = sorted((millrace.data_dir / f"{TOPIC}-{index}").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    position, header = list(walk(bytes(content)))[2]
    content[position + header.size_bytes - 2] ^= 1
    segment.write_bytes(content)
    assert verify(millrace.process)[index]
    until(lambda: not verify(millrace.process)[index])
    assert brokers.equal_logs(TOPIC, index) == expected
