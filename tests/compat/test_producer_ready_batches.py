"""`Producer.send_batch` on Millrace and on Apache Kafka: batches of one topic go to another as they are."""

from typing import NamedTuple
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.addresses import LOOPBACK, Address, parse_address
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.producer import TransactionFailedError
from millrace.client.simple_consumer import IsolationLevel
from millrace.errors import InvalidConfigError, InvalidRecordError, RecordTooLargeError
from millrace.ports import free_port
from millrace.records.batch import HEADER_BYTES
from millrace.records.compression import Codec
from millrace.records.rebatch import producible
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.await_brokers import await_coordinators
from millrace_support.lossy_relay import Fate, Losses, LossyRelay

pytestmark = pytest.mark.peers
COMMITTED = IsolationLevel.READ_COMMITTED


class Reached(NamedTuple):
    """A broker, and what loses its requests on their way."""

    bootstrap: str
    losses: Losses


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def broker(request, find_peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with LossyRelay(Losses()) as relay:
        if request.param == "millrace":
            with BrokerProcess(folder, properties=relay.properties) as started:
                relay.target = parse_address(started.bootstrap)
                yield Reached(str(relay.address), relay.losses)
            return
        zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
        relay.target = Address(LOOPBACK, free_port())
        listens = {"listen": str(relay.target), "properties": relay.properties}
        with KafkaBroker(find_peer(request.param), folder, zookeeper=zookeeper, **listens) as started:
            await_coordinators(started)
            yield Reached(str(relay.address), relay.losses)


def created(broker, partitions=1, **config):
    name = f"t-{uuid4().hex}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(
            name, partitions, config={key.replace("_", "."): one for key, one in config.items()}
        )
    return name


def batch_of(*values, codec=Codec.NONE):
    records = [NewRecord(value, b"k", 1_700_000_000_000 + at, (("h", None),)) for at, value in enumerate(values)]
    return encode_batch(records, base_offset=900, codec=codec)


def batches_in(broker, topic, partition=0):
    """Returns the batches of a partition with records of their own, in their order."""
    found, offset = [], 0
    with SimpleConsumer(broker.bootstrap) as consumer:
        end = consumer.latest(topic, partition)
        while offset < end:
            for batch in consumer.fetch(topic, partition, offset).batches():
                offset = batch.header.next_offset
                if not batch.header.is_control:
                    found.append(batch)
    return found


def committed(broker, topic, partition=0):
    with SimpleConsumer(broker.bootstrap) as consumer:
        return [record.value for record in consumer.messages(topic, partition, isolation=COMMITTED)]


def test_records_and_codec_stay_as_they_are(broker):
    topic = created(broker)
    sent = [batch_of(b"a" * 300, b"b" * 300, b"c", codec=codec) for codec in Codec]
    with Producer(broker_list=broker.bootstrap, producer_type="async") as producer:
        producer.send(topic, b"before", partition=0)
        deliveries = [producer.send_batch(topic, 0, memoryview(one)) for one in sent]
        producer.send(topic, b"after", partition=0)
        offsets = [one.result().offset for one in deliveries]
    found = batches_in(broker, topic)
    assert [bytes(one.data[HEADER_BYTES:]) for one in found[1:-1]] == [one[HEADER_BYTES:] for one in sent]
    assert [one.header.codec_id for one in found[1:-1]] == list(Codec)
    assert [one.header.base_offset for one in found[1:-1]] == offsets
    assert committed(broker, topic) == [b"before", *[b"a" * 300, b"b" * 300, b"c"] * len(Codec), b"after"]


def test_in_a_transaction_batches_count_by_its_commit_alone(broker):
    topic = created(broker)
    with Producer(broker_list=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, ends in ((b"dropped", producer.abort_transaction), (b"kept", producer.commit_transaction)):
            producer.begin_transaction()
            producer.send_batch(topic, 0, batch_of(value, codec=Codec.ZSTD))
            producer.send(topic, value, partition=0)
            ends()
    assert committed(broker, topic) == [b"kept", b"kept"]


def test_a_batch_that_is_too_large_fails_whole_and_says_how_large_it_is(broker):
    topic, narrow = created(broker), created(broker, max_message_bytes="2000")
    large = batch_of(*[b"x" * 900] * 3)
    with Producer(broker_list=broker.bootstrap) as producer:
        with pytest.raises(RecordTooLargeError, match=f"{narrow}-0 of a ready batch of {len(large)} bytes"):
            producer.send_batch(narrow, 0, large)
        assert producer.send_batch(narrow, 0, batch_of(b"small")).result().offset == 0
    with Producer(broker_list=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_batch(topic, 0, batch_of(b"with it"))
        with pytest.raises(RecordTooLargeError):
            producer.send_batch(narrow, 0, large)
        producer.abort_transaction()
        with producer.transaction():
            producer.send_batch(topic, 0, batch_of(b"without it"))
    assert committed(broker, topic) == [b"without it"]
    assert committed(broker, narrow) == [b"small"]


def test_an_async_failure_fails_the_transaction(broker):
    topic = created(broker, max_message_bytes="2000")
    with Producer(broker_list=broker.bootstrap, transactional_id=topic, producer_type="async") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        refused = producer.send_batch(topic, 0, batch_of(*[b"x" * 900] * 3))
        with pytest.raises(TransactionFailedError, match=f"{topic}-0"):
            producer.commit_transaction()
        assert isinstance(refused.report().error, RecordTooLargeError)
        producer.abort_transaction()
    assert committed(broker, topic) == []


def test_nothing_wrong_is_sent(broker):
    topic = created(broker)
    with Producer(broker_list=broker.bootstrap) as producer:
        with pytest.raises(InvalidRecordError, match=f"a batch for {topic}-0 is not sent"):
            producer.send_batch(topic, 0, b"no batch")
        with pytest.raises(InvalidConfigError, match="has no partition 7"):
            producer.send_batch(topic, 7, batch_of(b"v"))
    assert batches_in(broker, topic) == []


@pytest.mark.parametrize("fate", [Fate.IS_LOST, Fate.LOSES_ITS_ANSWER])
def test_what_is_lost_is_sent_again_and_is_there_once_in_its_order(broker, fate):
    topic = created(broker)
    values = [b"%d" % number for number in range(20)]
    with Producer(broker_list=broker.bootstrap, producer_type="async") as producer:
        for at, value in enumerate(values):
            if not at % 5:
                broker.losses.once(ApiKey.PRODUCE, fate)
            producer.send_batch(topic, 0, batch_of(value, value))
        producer.flush()
    assert committed(broker, topic) == [value for value in values for _ in range(2)]


def test_a_compacted_or_stamped_batch_is_sent_after_rebatch(broker):
    source, target = created(broker, message_timestamp_type="LogAppendTime"), created(broker)
    with Producer(broker_list=broker.bootstrap) as producer:
        producer.send_batch(source, 0, batch_of(b"a", b"b", codec=Codec.GZIP))
        (stamped,) = batches_in(broker, source)
        assert stamped.header.is_log_append_time
        with pytest.raises(InvalidRecordError, match="rebatch"):
            producer.send_batch(target, 0, stamped.data)
        producer.send_batch(target, 0, producible(stamped.header, stamped.data).batch)
    (found,) = batches_in(broker, target)
    assert list(found.records()) == list(stamped.records())
    assert not found.header.is_log_append_time
