"""A topic of hundreds of partitions: it is made and deleted as one, and one fetch waits for all of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.messages import FETCH

PARTITIONS = 300
VALUE = b"x" * 1000
PROPERTIES = {"log.segment.delete.delay.ms": "0", "log.flush.scheduler.interval.ms": "50"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("many") / "broker", properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def folders(broker, topic):
    return sorted(path.name for path in broker.data_dir.glob(f"{topic}-*"))


def fetch_all(bootstrap, topic, min_bytes):
    """One fetch of all partitions; the indexes of those that had records."""
    partitions = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1,
         "current_leader_epoch": -1}
        for index in range(PARTITIONS)
    ]  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait": 60_000, "min_bytes": min_bytes, "max_bytes": 1 << 26, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": partitions}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    with Cluster(bootstrap) as cluster:
        connection = cluster.leader_connection(topic, 0)
        answer = connection.request(FETCH, fields, wait_s=60)
        return [one.partition_index for one in answer.responses[0].partitions if one.records]


def test_a_fetch_of_all_partitions_waits_until_enough_has_come_to_any_of_them(broker, cluster):
    Admin(cluster).create_topic("waited-for", PARTITIONS)
    producer = SyncProducer(cluster)
    producer.send("waited-for", 3, [NewRecord(VALUE)])
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(fetch_all, broker.bootstrap, "waited-for", 3 * len(VALUE))
        for partition in (7, 250):
            producer.send("waited-for", partition, [NewRecord(VALUE)])
        assert found.result(timeout=60) == [3, 7, 250]


def test_a_topic_is_made_extended_deleted_and_made_again(broker, cluster):
    admin, producer = Admin(cluster), SyncProducer(cluster)
    admin.create_topic("again", PARTITIONS)
    assert folders(broker, "again") == sorted(f"again-{index}" for index in range(PARTITIONS))
    assert producer.send("again", PARTITIONS - 1, [NewRecord(VALUE)]) == 0
    admin.delete_topic("again")
    assert not [name for name in folders(broker, "again") if not name.endswith("-delete")]
    admin.create_topic("again", 2)
    assert producer.send("again", 1, [NewRecord(VALUE)]) == 0
    assert [name for name in folders(broker, "again") if not name.endswith("-delete")] == ["again-0", "again-1"]


def test_all_of_it_is_there_after_a_restart_and_after_a_kill(broker, cluster):
    Admin(cluster).create_topic("kept", PARTITIONS)
    producer = SyncProducer(cluster)
    for index in range(0, PARTITIONS, 100):
        producer.send("kept", index, [NewRecord(VALUE)])
    for end in (broker.stop, broker.kill):
        end()
        broker.restart()
        assert fetch_all(broker.bootstrap, "kept", 1) == list(range(0, PARTITIONS, 100))
