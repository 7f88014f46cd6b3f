"""A client that asks a broker for another one's partition is told who leads it (KIP-951)."""

from uuid import uuid4

import pytest

from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.await_brokers import await_brokers
from millrace_support.raw import RawConnection

TOPIC = "elsewhere"


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory, zookeeper):
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    folder = tmp_path_factory.mktemp("brokers")
    with (
        BrokerProcess(folder / "1", zookeeper=chroot, broker_id=1) as first,
        BrokerProcess(folder / "2", zookeeper=chroot, broker_id=2) as second,
    ):
        await_brokers({1, 2}, first, second)
        with RawConnection(second.bootstrap) as raw:
            topic = {
                "name": TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": [],
                "assignments": [{"partition_index": 0, "broker_ids": [2]}],
            }  # fmt: skip
            fields = {"topics": [topic], "timeout": 60_000, "validate_only": False}
            assert raw.request(ApiKey.CREATE_TOPICS, 7, fields).topics[0].error_code == 0
        yield first, second


@pytest.fixture
def first(two_brokers):
    """A connection to the broker that does not lead, once it knows the topic; and the other's port."""
    fields = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
    with RawConnection(two_brokers[0].bootstrap) as raw:
        while raw.request(ApiKey.METADATA, 4, fields).topics[0].error_code:
            pass
        yield raw, int(two_brokers[1].bootstrap.rsplit(":", 1)[1])


@pytest.mark.parametrize("version", [3, 9, 10, 12])
def test_produce_to_the_wrong_broker(first, version):
    raw, port = first
    data = [{"index": 0, "records": encode_batch([NewRecord(b"v")])}]
    fields = {"transactional_id": None, "acks": 1, "timeout": 100,
              "topic_data": [{"name": TOPIC, "partition_data": data}]}  # fmt: skip
    answer = raw.request(ApiKey.PRODUCE, version, fields)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert partition.current_leader.leader_id == 2
        assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(2, port)]


@pytest.mark.parametrize("version", [4, 12])
def test_fetch_and_look_up_at_the_wrong_broker(first, version):
    raw, _ = first
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
    fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 100, "isolation_level": 0,
              "topics": [{"topic": TOPIC, "partitions": [wanted]}], "forgotten_topics_data": []}  # fmt: skip
    answer = raw.request(ApiKey.FETCH, version, fields)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [asked]}]}
    listed = raw.request(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0]
    assert listed.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_log_of_another_broker_is_not_there_to_be_moved(first):
    raw, _ = first
    path = raw.request(ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": []}).results[0].log_dir
    for topic, code in ((TOPIC, ErrorCode.REPLICA_NOT_AVAILABLE), ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        fields = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [0]}]}]}
        answer = raw.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields)
        assert answer.results[0].partitions[0].error_code == code
