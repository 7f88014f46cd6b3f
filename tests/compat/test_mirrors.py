"""Mirrors between Millrace, Apache Kafka 3.9 and 4.1: each side is read by librdkafka, and the records are the same."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_support.await_brokers import await_coordinators
from millrace_support.mirrored_records import begun_producer, contents, read, write, write_transactions

PARTITIONS = 3
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PAIRS = [
    ("millrace", "millrace", Way.FOLLOW),
    ("3.9", "millrace", Way.FOLLOW),
    ("4.1", "millrace", Way.FOLLOW),
    ("millrace", "millrace", Way.COPY),
    ("millrace", "3.9", Way.COPY),
    ("millrace", "4.1", Way.COPY),
    ("3.9", "4.1", Way.COPY),
]
pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory, request):
    """Starts each broker when it is first asked for: by its kind, and whether it is a source or a target."""
    started = {}
    with ExitStack() as stack:

        def broker(kind, role):
            if (kind, role) not in started:
                folder = tmp_path_factory.mktemp(f"{kind}-{role}")
                if kind == "millrace":
                    one = stack.enter_context(BrokerProcess(folder, properties=QUICK))
                else:
                    address = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}"
                    kafka = KafkaBroker(
                        find_peer(kind), folder, zookeeper=address if kind == "3.9" else None, properties=QUICK
                    )
                    one = stack.enter_context(kafka)
                    await_coordinators(one)
                started[kind, role] = one
            return started[kind, role]

        yield broker


class Pair:
    """A source, a target, and a topic of their own."""

    def __init__(self, source, target, way):
        self.source, self.target, self.way = source.bootstrap, target.bootstrap, way
        self.topic = f"t{uuid4().hex[:8]}"
        self.name = f"{way}-{uuid4().hex[:6]}"
        self.mirrored = f"{self.name}.{self.topic}"

    def create(self, **config):
        with Cluster(self.source) as cluster:
            named = {name.replace("_", "."): value for name, value in config.items()}
            Admin(cluster).create_topic(self.topic, PARTITIONS, config=named)

    def settings(self, **given):
        source = Source(name=self.name, bootstrap=self.source, topics=(self.topic,))
        return MirrorSettings(target=Side(bootstrap=self.target), sources=(source,), way=self.way, **given)

    def mirror(self, **given):
        told = []
        with MirrorService(self.settings(**given), tell=told.append) as service:
            service.run(once=True)
        return told

    def compare(self):
        """Asserts that both sides have the same committed records, at the same offsets where they are followed."""
        for partition in range(PARTITIONS):
            ours, theirs = read(self.target, self.mirrored, partition), read(self.source, self.topic, partition)
            if self.way is Way.FOLLOW:
                assert ours == theirs
            assert contents(ours) == contents(theirs)
        return len(theirs)


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request, brokers):
    source, target, way = request.param
    return Pair(brokers(source, "source"), brokers(target, "target"), way)


def test_each_kind_of_record_is_mirrored_once(pair):
    pair.create()
    write(pair.source, pair.topic, PARTITIONS, 60, seed=1)
    write_transactions(pair.source, pair.topic, PARTITIONS, "cacca", seed=2)
    assert pair.mirror() == []
    count = pair.compare()
    write_transactions(pair.source, pair.topic, PARTITIONS, "ac", seed=3)
    write(pair.source, pair.topic, PARTITIONS, 30, seed=4)
    assert pair.mirror() == []
    assert pair.compare() > count


def test_an_open_transaction_holds_back_its_partition_alone(pair):
    pair.create()
    write(pair.source, pair.topic, PARTITIONS, 9, seed=1)
    producer = begun_producer(pair.source, pair.topic)
    producer.begin_transaction()
    producer.produce(pair.topic, b"late", partition=0)
    producer.flush()
    write(pair.source, pair.topic, PARTITIONS, 9, seed=2)
    assert pair.mirror() == []
    pair.compare()
    producer.commit_transaction()
    assert pair.mirror() == []
    pair.compare()
    assert b"late" in [one.value for one in read(pair.target, pair.mirrored, 0)]


def raw(bootstrap, topic, partition):
    """Returns the batches of a log, from their attributes on, which no broker changes, with their offsets."""
    with Cluster(bootstrap) as cluster:
        consumer, found, offset = SimpleConsumer(cluster), [], 0
        end = consumer.latest(topic, partition)
        while offset < end:
            for batch in consumer.fetch(topic, partition, offset).batches():
                found.append((batch.header.base_offset, bytes(batch.data[16:])))
                offset = batch.header.next_offset
        return found


@pytest.mark.parametrize("kind", ["millrace", "3.9", "4.1"])
def test_followed_logs_are_equal_but_for_leader_epochs(brokers, kind):
    pair = Pair(brokers(kind, "source"), brokers("millrace", "target"), Way.FOLLOW)
    pair.create()
    write(pair.source, pair.topic, PARTITIONS, 40, seed=1)
    write_transactions(pair.source, pair.topic, PARTITIONS, "ca", seed=2)
    assert pair.mirror() == []
    for partition in range(PARTITIONS):
        assert raw(pair.target, pair.mirrored, partition) == raw(pair.source, pair.topic, partition)
