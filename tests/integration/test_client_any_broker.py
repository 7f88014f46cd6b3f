"""The same client against Millrace and against librdkafka's own mock cluster of three brokers."""

import re

import confluent_kafka
import pytest

from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.client.fetched import starts_with_cut_batch
from millrace.errors import BrokerUnreachableError, OffsetOutOfRangeError, UnknownTopicError
from millrace.records.compression import Codec
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


@pytest.fixture(scope="module")
def mock_cluster():
    settings = {"bootstrap.servers": "unused:1", "test.mock.num.brokers": 3, "log_level": 3}
    owner = confluent_kafka.Producer(settings)
    yield ",".join(f"{one.host}:{one.port}" for one in owner.list_topics(timeout=60).brokers.values())
    del owner


@pytest.fixture(params=["millrace", "librdkafka mock"])
def cluster(request):
    bootstrap = (
        request.getfixturevalue("broker").bootstrap
        if request.param == "millrace"
        else request.getfixturevalue("mock_cluster")
    )
    with Cluster(bootstrap, timeout_s=60) as cluster:
        yield cluster


def new_records(count=50):
    return [
        NewRecord(b"value %d" % number * 3, b"key %d" % number, 1_700_000_000_000 + number, (("h", b"x"), ("n", None)))
        for number in range(count)
    ]


def read_all(consumer, topic, partition):
    """Every record; a broker may give one batch at a time."""
    records = []
    while len(records) < consumer.latest(topic, partition):
        records += decode_records(consumer.fetch(topic, partition, len(records), max_wait_ms=500).records)
    return records


@pytest.mark.parametrize("codec", Codec)
def test_what_is_sent_comes_back(cluster, codec, topic):
    sent = new_records()
    first = SyncProducer(cluster).send(topic, 0, sent, codec=codec)
    second = SyncProducer(cluster).send(topic, 0, sent, codec=codec)
    assert (first, second) == (0, 50)
    records = read_all(SimpleConsumer(cluster), topic, 0)
    assert [record.offset for record in records] == list(range(100))
    assert [NewRecord(one.value, one.key, one.timestamp_ms, one.headers) for one in records] == sent * 2


def test_offsets_of_a_log(cluster, topic):
    SyncProducer(cluster).send(topic, 0, new_records(7))
    consumer = SimpleConsumer(cluster)
    assert (consumer.earliest(topic, 0), consumer.latest(topic, 0)) == (0, 7)


def test_every_partition_is_reached_at_its_leader(cluster, topic):
    count = cluster.partition_count(topic, create_missing=True)
    for partition in range(count):
        SyncProducer(cluster).send(topic, partition, [NewRecord(b"%d" % partition)])
    consumer = SimpleConsumer(cluster)
    values = [next(decode_records(consumer.fetch(topic, one, 0).records)).value for one in range(count)]
    assert values == [b"%d" % partition for partition in range(count)]


def test_a_batch_above_the_limit_comes_whole(cluster, topic):
    SyncProducer(cluster).send(topic, 0, [NewRecord(bytes(100_000))])
    data = SimpleConsumer(cluster).fetch(topic, 0, 0, max_bytes=100)
    assert not starts_with_cut_batch(data.records)
    assert next(decode_records(data.records)).value == bytes(100_000)


def test_an_offset_that_is_not_there(cluster, topic):
    SyncProducer(cluster).send(topic, 0, new_records(1))
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 at offset 99"):
        SimpleConsumer(cluster).fetch(topic, 0, 99)


def test_a_topic_or_partition_that_is_not_there(cluster, topic):
    with pytest.raises(UnknownTopicError, match="topic nowhere does not exist"):
        SimpleConsumer(cluster).fetch("nowhere", 0, 0)
    assert "nowhere" not in cluster.metadata().topics
    cluster.partition_count(topic, create_missing=True)
    with pytest.raises(UnknownTopicError, match="has no partition 99"):
        SimpleConsumer(cluster).latest(topic, 99)


def test_one_living_bootstrap_address_is_enough(mock_cluster):
    with Cluster(f"127.0.0.1:1,{mock_cluster}") as cluster:
        assert len(cluster.metadata().brokers) == 3


def test_no_living_bootstrap_address_names_them_all():
    with Cluster("127.0.0.1:1,127.0.0.1:2") as cluster, pytest.raises(BrokerUnreachableError) as caught:
        cluster.metadata()
    assert "127.0.0.1:1" in str(caught.value)
    assert "127.0.0.1:2" in str(caught.value)
