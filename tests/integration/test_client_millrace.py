"""What only a Millrace (or Apache Kafka) cluster does: topics, times, large batches, restarts."""

import re

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    RecordTooLargeError,
    TopicExistsError,
    UnknownTopicError,
)
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def topic(request):
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def test_a_topic_is_created_described_and_deleted(cluster, topic):
    admin = Admin(cluster)
    admin.create_topic(topic, 3, config={"retention.ms": "60000"})
    described = admin.topics()[topic]
    assert list(described.partitions) == [0, 1, 2]
    assert described.topic_id is not None
    assert {(one.leader, one.replicas, one.isr) for one in described.partitions.values()} == {(1, (1,), (1,))}
    admin.delete_topic(topic)
    assert topic not in admin.topics()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("there", 1), TopicExistsError),
        (("bad name", 1), InvalidTopicError),
        (("t", 0), InvalidPartitionsError),
        (("t", 1, 5), InvalidReplicationFactorError),
        (("t", 1, 1, {"no.such.property": "1"}), InvalidConfigError),
    ],
)
def test_what_can_not_be_created(cluster, arguments, error):
    if "there" not in Admin(cluster).topics():
        Admin(cluster).create_topic("there", 1)
    before = Admin(cluster).topics()
    with pytest.raises(error, match=arguments[0]):
        Admin(cluster).create_topic(*arguments)
    assert Admin(cluster).topics() == before


def test_deleting_what_is_not_there(cluster):
    with pytest.raises(UnknownTopicError, match="nowhere"):
        Admin(cluster).delete_topic("nowhere")


def test_offsets_by_time(cluster, topic):
    for start in (0, 10):
        records = [NewRecord(b"v", timestamp_ms=1000 * number) for number in range(start, start + 10)]
        SyncProducer(cluster).send(topic, 0, records)
    consumer = SimpleConsumer(cluster)
    times = {1: 1, 1000: 1, 9001: 10, 19_000: 19, 19_001: None}
    assert {time: consumer.offset_for_time(topic, 0, time) for time in times} == times


def test_a_fetch_begins_with_the_batch_that_holds_the_offset(cluster, topic):
    SyncProducer(cluster).send(topic, 0, [NewRecord(b"%d" % number) for number in range(10)])
    records = list(decode_records(SimpleConsumer(cluster).fetch(topic, 0, 7).records))
    assert records[0].offset == 0
    assert records[7].value == b"7"


def test_a_waiting_fetch_returns_at_the_end_of_its_wait(cluster, topic):
    cluster.partition_count(topic, create_missing=True)
    data = SimpleConsumer(cluster).fetch(topic, 0, 0, max_wait_ms=50)
    assert (data.records, data.high_watermark, data.log_start_offset) == (b"", 0, 0)


def test_a_batch_above_the_brokers_limit(cluster, topic):
    with pytest.raises(RecordTooLargeError, match=f"{topic}-0"):
        SyncProducer(cluster).send(topic, 0, [NewRecord(bytes(2 << 20))])
    assert SimpleConsumer(cluster).latest(topic, 0) == 0


def test_sending_without_acknowledgement(cluster, topic):
    producer = SyncProducer(cluster)
    assert producer.send(topic, 0, [NewRecord(b"unheard")], acks=0) == -1
    assert producer.send(topic, 0, [NewRecord(b"heard")]) == 1


def test_a_restarted_broker_is_found_again(broker, cluster, topic):
    producer, consumer = SyncProducer(cluster), SimpleConsumer(cluster)
    producer.send(topic, 0, [NewRecord(b"before")])
    broker.restart()
    assert consumer.latest(topic, 0) == 1
    broker.restart()
    assert producer.send(topic, 0, [NewRecord(b"after")]) == 1


def test_a_killed_broker_is_unreachable_and_then_found_again(broker, cluster, topic):
    producer = SyncProducer(cluster)
    producer.send(topic, 0, [NewRecord(b"before")])
    broker.kill()
    with pytest.raises(BrokerUnreachableError, match=broker.bootstrap):
        cluster.metadata()
    broker.start()
    assert producer.send(topic, 0, [NewRecord(b"after")]) == 1


def test_a_lost_answer_is_not_sent_again(broker, cluster, monkeypatch, topic):
    """The answer is lost on the way: the record is there once, and the error says that nobody knows."""
    cluster.partition_count(topic, create_missing=True)
    connection = cluster.leader_connection(topic, 0)
    receive = connection._receive_frame

    def lose(*arguments):
        receive(*arguments)
        raise ConnectionResetError

    monkeypatch.setattr(connection, "_receive_frame", lose)
    with pytest.raises(AnswerLostError):
        SyncProducer(cluster).send(topic, 0, [NewRecord(b"once")])
    assert SimpleConsumer(cluster).latest(topic, 0) == 1
