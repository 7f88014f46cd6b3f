"""What `ConsumerConnector` hands out of transactions, by `isolation.level`."""

from contextlib import suppress

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster
from millrace.client.consumer import ConsumerConnector, ConsumerTimeoutError, Partition
from millrace.client.consumer.group_offsets import describe_zookeeper_group, open_session
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

ON_A_BUSY_MACHINE = {"zookeeper.session.timeout.ms": "60000", "zookeeper.connection.timeout.ms": "60000"}
LONGEST_TRANSACTION_MS = 600_000


@pytest.fixture(scope="module")
def connect(zookeeper):
    return f"{zookeeper.address}/committed"


@pytest.fixture(scope="module")
def broker(connect, tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), zookeeper=connect) as process:
        yield process


@pytest.fixture
def topic(broker, request):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(request.node.originalname, 1)
    return request.node.originalname


@pytest.fixture
def producer(broker, topic):
    """Sends transactions of one record; `end` is None for one that stays open."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": LONGEST_TRANSACTION_MS}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.init_transactions(60)

    def transaction(value, end):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        if end is not None:
            end(60)

    transaction.commit, transaction.abort = producer.commit_transaction, producer.abort_transaction
    return transaction


@pytest.fixture
def stream(connect, topic):
    """Opens the stream of a member of a group of the topic's name."""
    connectors = []

    def opened(**properties):
        given = {name.replace("_", "."): value for name, value in properties.items()}
        own = {"group.id": topic, "zookeeper.connect": connect, "auto.offset.reset": "smallest"}
        connectors.append(ConsumerConnector({**ON_A_BUSY_MACHINE, **own, "consumer.timeout.ms": "2000", **given}))
        (found,) = connectors[-1].create_message_streams({topic: 1})[topic]
        found.shutdown, found.connector = connectors[-1].shutdown, connectors[-1]
        return found

    yield opened
    for connector in connectors:
        connector.shutdown()


def read_all(stream, count):
    """Waits for `count` values, reads on until nothing comes for a while, and returns them all."""
    values = []

    def has_come():
        with suppress(ConsumerTimeoutError):
            values.extend(next(stream).value for _ in range(count - len(values)))
        return len(values) >= count

    until(has_come)
    with pytest.raises(ConsumerTimeoutError):
        values.extend(message.value for message in stream)
    return values


def has_begun(stream, topic):
    """Returns whether the stream has got the offset of the first message that it will read."""
    feed = stream.connector._consumer._feeds.get(Partition(topic, 0))
    return feed is not None and feed.fetch_offset is not None


def test_aborted_records_are_not_handed_out_and_positions_go_past_them(topic, producer, stream, connect):
    producer(b"kept", producer.commit)
    producer(b"dropped", producer.abort)
    reader = stream()
    assert read_all(reader, 1) == [b"kept"]
    reader.shutdown()
    session = open_session(connect)
    try:
        assert describe_zookeeper_group(session, topic).offsets == {Partition(topic, 0): 4}
    finally:
        session.close()


def test_a_stream_waits_for_the_end_of_a_transaction(producer, stream):
    producer(b"first", producer.commit)
    producer(b"open", None)
    reader = stream()
    assert read_all(reader, 1) == [b"first"]
    producer.commit(60)
    assert read_all(reader, 1) == [b"open"]


def test_largest_is_the_last_stable_offset(topic, producer, stream):
    producer(b"before", producer.commit)
    producer(b"open", None)
    reader = stream(auto_offset_reset="largest")
    until(lambda: has_begun(reader, topic))
    assert read_all(reader, 0) == []
    producer.commit(60)
    assert read_all(reader, 1) == [b"open"]


def test_uncommitted_reads_have_everything_but_the_markers(producer, stream):
    producer(b"kept", producer.commit)
    producer(b"dropped", producer.abort)
    producer(b"open", None)
    reader = stream(isolation_level="read_uncommitted")
    assert read_all(reader, 3) == [b"kept", b"dropped", b"open"]
