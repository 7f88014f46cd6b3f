"""What the documented low-level consumer offers: multifetch, offsets before a time, iterators over message sets."""

from uuid import uuid4

import confluent_kafka
import pytest

from millrace import Producer, SimpleConsumer
from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.simple_consumer import EARLIEST, LATEST, FetchRequest
from millrace.clock import SystemClock
from millrace.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.zk.session import ZooKeeperSession

KEEPS_ALL = {"retention.ms": "-1"}  # of records of years ago, which the next look for old ones would delete


@pytest.fixture(scope="module")
def filled(broker_session):
    with Cluster(broker_session.bootstrap) as cluster:
        Admin(cluster).create_topic("simple-consumer", 3, config=KEEPS_ALL)
        producer = SyncProducer(cluster)
        for batch in range(5):
            records = [NewRecord(b"%d-%d" % (batch, number), None, 1000 * batch) for number in range(10)]
            producer.send("simple-consumer", 0, records)
        producer.send("simple-consumer", 1, [NewRecord(bytes(300_000))])
    return broker_session.bootstrap


@pytest.fixture
def consumer(filled):
    with SimpleConsumer(filled) as made:
        yield made


def test_messages_run_to_the_end_and_rewind(consumer):
    everything = list(consumer.messages("simple-consumer", 0))
    assert [record.offset for record in everything] == list(range(50))
    assert everything[13].value == b"1-3"
    assert list(consumer.messages("simple-consumer", 0, 13, until_offset=15)) == everything[13:15]
    assert list(consumer.messages("simple-consumer", 0, LATEST)) == []
    assert next(consumer.messages("simple-consumer", 0, EARLIEST)) == everything[0]


def test_a_message_set_leaves_out_its_tail_that_is_cut(consumer):
    fetched = consumer.fetch("simple-consumer", 0, 0)
    cut = fetched._replace(records=fetched.records[:-1])
    assert [record.offset for record in cut.messages(5)] == list(range(5, 40))


def test_a_message_above_the_fetch_size_comes_whole(consumer):
    (record,) = consumer.messages("simple-consumer", 1, max_bytes=100)
    assert len(record.value) == 300_000


def test_multifetch_answers_each_partition_by_itself(consumer):
    first, large, beyond, absent, empty = consumer.multifetch(
        [
            FetchRequest("simple-consumer", 0, 45),
            FetchRequest("simple-consumer", 1, 0, max_bytes=100),
            FetchRequest("simple-consumer", 0, 99),
            FetchRequest("simple-consumer", 7, 0),
            FetchRequest("simple-consumer", 2, 0),
        ]
    )
    assert isinstance(first, FetchedData)
    assert [record.offset for record in first.messages(45)] == list(range(45, 50))
    assert [len(record.value) for record in large.messages()] == [300_000]
    assert isinstance(beyond, OffsetOutOfRangeError)
    assert isinstance(absent, UnknownTopicError)
    assert empty.records == b""


@pytest.fixture(scope="module")
def segments(broker_session):
    """A topic whose segments begin at 0, 10, 20, 30 and 40, of the times 0, 1000, 2000, 3000 and 4000."""
    with Cluster(broker_session.bootstrap) as cluster:
        Admin(cluster).create_topic("segments", 1, config={"segment.bytes": "600", **KEEPS_ALL})
        for batch in range(5):
            SyncProducer(cluster).send("segments", 0, [NewRecord(bytes(40), None, 1000 * batch) for _ in range(10)])
    return "segments"


@pytest.mark.parametrize(
    ("time", "max_num_offsets", "found"),
    [
        (LATEST, 10, [50, 40, 30, 20, 10, 0]),
        (LATEST, 3, [50, 40, 30]),
        (EARLIEST, 10, [0]),
        (2000, 10, [20, 10, 0]),
        (2000, 2, [20, 10]),
        (1999, 10, [10, 0]),
        (-5000, 10, []),
        (2**62, 2, [50, 40]),
    ],
)
def test_offsets_before_a_time_are_the_starts_of_segments(consumer, segments, time, max_num_offsets, found):
    assert consumer.get_offsets_before(segments, 0, time, max_num_offsets) == found


def test_offsets_before_that_can_not_be_asked_for(consumer, segments):
    for wrong in (0, -1, 2**31):
        with pytest.raises(InvalidRequestError, match="max_num_offsets"):
            consumer.get_offsets_before(segments, 0, LATEST, wrong)
    with pytest.raises(UnknownTopicError, match="segments has no partition 7"):
        consumer.get_offsets_before(segments, 7, LATEST, 1)


@pytest.mark.parametrize("storage", ["kafka", "zookeeper"])
def test_offsets_are_committed_and_fetched(consumer, segments, storage):
    group = f"simple-{storage}"
    asked = [(segments, 0), ("simple-consumer", 2)]
    assert consumer.fetch_offsets(group, asked, storage=storage) == dict.fromkeys(asked)
    consumer.commit_offsets(group, {(segments, 0): 20}, storage=storage)
    consumer.commit_offsets(group, {(segments, 0): 30}, storage=storage)
    assert consumer.fetch_offsets(group, asked, storage=storage) == {(segments, 0): 30, ("simple-consumer", 2): None}
    with pytest.raises(UnknownTopicError, match="segments-7"):
        consumer.commit_offsets(group, {(segments, 7): 1}, storage=storage)
    with pytest.raises(InvalidRequestError, match="-1"):
        consumer.commit_offsets(group, {(segments, 0): -1}, storage=storage)


def test_offsets_have_two_places(tmp_path, zookeeper):
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    with BrokerProcess(tmp_path / "data", zookeeper=chroot) as broker, SimpleConsumer(broker.bootstrap) as consumer:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", 1)
        consumer.commit_offsets("g", {("t", 0): 5})
        consumer.commit_offsets("g", {("t", 0): 7}, storage="zookeeper")
        assert consumer.fetch_offsets("g", [("t", 0)]) == {("t", 0): 5}
        assert consumer.fetch_offsets("g", [("t", 0)], storage="zookeeper") == {("t", 0): 7}
        session = ZooKeeperSession(
            chroot,
            session_timeout_ms=18_000,
            connection_timeout_ms=18_000,
            on_change=lambda _: None,
            clock=SystemClock(),
        )
        session.start()
        assert session.get("/consumers/g/offsets/t/0") == b"7"
        session.close()


def test_out_of_range_is_not_an_unknown_partition(consumer):
    assert list(consumer.messages("simple-consumer", 0, 50)) == []
    with pytest.raises(OffsetOutOfRangeError):
        next(consumer.messages("simple-consumer", 0, 51))
    with pytest.raises(OffsetOutOfRangeError):
        consumer.fetch("simple-consumer", 0, 51)
    with pytest.raises(UnknownTopicError):
        consumer.fetch("simple-consumer", 9, 0)


def test_the_producers_idempotent_batches_are_read(filled, consumer):
    with Producer(broker_list=filled, compression_codec="zstd") as producer:
        producer.send("simple-consumer", b"v", b"k", partition=2)
    assert [record.key for record in consumer.messages("simple-consumer", 2)] == [b"k"]


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_messages_of_committed_transactions_alone(filled, consumer, max_bytes):
    name = f"committed-reads-{max_bytes}"
    with Cluster(filled) as cluster:
        Admin(cluster).create_topic(name, 1)
    settings = {"bootstrap.servers": filled, "compression.type": "lz4"}
    one, other = (
        confluent_kafka.Producer({**settings, "transactional.id": f"{name}-{who}"}) for who in ("one", "other")
    )
    one.init_transactions(60)
    other.init_transactions(60)

    def send(producer, *values):
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(60) == 0

    def values(**options):
        return [record.value for record in consumer.messages(name, 0, max_bytes=max_bytes, **options)]

    one.begin_transaction()
    other.begin_transaction()
    send(one, b"a1", b"a2")
    send(other, b"x1", b"x2")
    send(one, b"a3")
    one.commit_transaction(60)
    other.abort_transaction(60)
    with Producer(broker_list=filled) as plain:
        plain.send(name, b"p", partition=0)
    other.begin_transaction()
    send(other, b"b1")
    other.commit_transaction(60)
    one.begin_transaction()
    send(one, b"open")
    committed = {"isolation": IsolationLevel.READ_COMMITTED}
    assert values(**committed) == [b"a1", b"a2", b"a3", b"p", b"b1"]
    assert values() == [b"a1", b"a2", b"x1", b"x2", b"a3", b"p", b"b1", b"open"]
    with Producer(broker_list=filled) as plain:
        plain.send(name, b"behind", partition=0)
    assert values(**committed) == [b"a1", b"a2", b"a3", b"p", b"b1"]  # nothing behind what is open
    one.abort_transaction(60)
    assert values(**committed) == [b"a1", b"a2", b"a3", b"p", b"b1", b"behind"]
