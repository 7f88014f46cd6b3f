"""Transactions of `Producer` beside librdkafka's, on Millrace and on Apache Kafka, also a secured one."""

import random
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest

from millrace import Producer
from millrace.addresses import LOOPBACK, Address
from millrace.client import Admin, Cluster, Groups, SimpleConsumer
from millrace.client.groups import GroupOffset, describe_transactions
from millrace.client.producer import FatalTransactionError, ProducerFencedError, TransactionFailedError
from millrace.client.simple_consumer import IsolationLevel
from millrace.errors import DeliveryTimeoutError
from millrace.ports import free_port
from millrace.security.client_security import ClientSecurity
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.await_brokers import await_coordinators
from millrace_support.lossy_relay import Fate, Losses, LossyRelay
from millrace_support.secured_kafka import SecuredKafka
from millrace_support.waiting import until

PATIENCE_S = 60
PARTITIONS = 2
RECORDS = 8000
LOSSES = (
    ApiKey.FIND_COORDINATOR, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN,
)  # fmt: skip
COPIER = Path(__file__).parents[1] / "crash" / "copiers" / "copy_with_millrace.py"
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
pytestmark = pytest.mark.peers


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def broker(request, find_peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "millrace":
        with BrokerProcess(folder, properties=QUICK_ABORTS) as started:
            yield started
        return
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
    with KafkaBroker(find_peer(request.param), folder, zookeeper=zookeeper, properties=QUICK_ABORTS) as started:
        await_coordinators(started)
        yield started


@pytest.fixture
def topic(broker):
    return created(f"t-{uuid4().hex}", broker.bootstrap)


def created(name, bootstrap, security=ClientSecurity.PLAINTEXT):
    with Cluster(bootstrap, security=security) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


def ours(bootstrap, name, **properties):
    producer = Producer(broker_list=bootstrap, producer_type="async", transactional_id=name, **properties)
    producer.init_transactions()
    return producer


def theirs(bootstrap, name):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    return producer


def committed_by_ours(bootstrap, topic, security=ClientSecurity.PLAINTEXT):
    """Returns (value, partition) of all committed records, once no transaction is open."""
    committed = IsolationLevel.READ_COMMITTED
    with SimpleConsumer(bootstrap, security=security) as consumer:
        for index in range(PARTITIONS):
            until(lambda at=index: consumer.latest(topic, at, committed) == consumer.latest(topic, at))
        return sorted(
            (record.value, index)
            for index in range(PARTITIONS)
            for record in consumer.messages(topic, index, isolation=committed)
        )


def committed_by_theirs(bootstrap, topic):
    """Returns the same, as librdkafka sees it."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"{topic}-readers", "isolation.level": "read_committed",
        "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found, ended = [], set()
    while len(ended) < PARTITIONS:
        for one in consumer.consume(1000, 0.2):
            if one.error() is None:
                found.append((one.value(), one.partition()))
            else:
                assert one.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, one.error()
                ended.add(one.partition())
    consumer.close()
    return sorted(found)


def test_an_offset_keeps_its_metadata_and_leader_epoch(broker, topic):
    plain, sent = GroupOffset(3, "plain", 0), GroupOffset(5, '{"in": "a transaction"}', 4)
    with ours(broker.bootstrap, topic) as producer, Cluster(broker.bootstrap) as cluster:
        groups = Groups(cluster)
        groups.commit(topic, {(topic, 0): plain, (topic, 1): plain._replace(leader_epoch=-1)})
        with producer.transaction():
            producer.send_offsets_to_transaction({(topic, 0): sent}, topic)
        expected = {(topic, 0): sent, (topic, 1): plain._replace(leader_epoch=-1)}
        assert groups.offsets(topic, expected) == expected
        assert groups.offsets(topic) == expected
        groups.commit(topic, {(topic, 1): plain})
        assert groups.offsets(topic)[topic, 1] == plain


def test_each_sees_what_the_other_has_committed_and_nothing_else(broker, topic):
    bootstrap, expected = broker.bootstrap, []
    with ours(bootstrap, f"{topic}-ours") as our_producer:
        their_producer = theirs(bootstrap, f"{topic}-theirs")
        for number in range(20):
            is_commit, values = number % 3 != 1, [b"%d-%d" % (number, index) for index in range(5)]
            our_producer.begin_transaction()
            their_producer.begin_transaction()
            for index, value in enumerate(values):
                our_producer.send(topic, b"ours-" + value, partition=index % PARTITIONS)
                their_producer.produce(topic, b"theirs-" + value, partition=index % PARTITIONS)
            our_producer.flush()
            assert their_producer.flush(PATIENCE_S) == 0
            if is_commit:
                our_producer.commit_transaction()
                their_producer.commit_transaction(PATIENCE_S)
                expected += [
                    (whose + value, index % PARTITIONS)
                    for whose in (b"ours-", b"theirs-")
                    for index, value in enumerate(values)
                ]
            else:
                our_producer.abort_transaction()
                their_producer.abort_transaction(PATIENCE_S)
    assert committed_by_ours(bootstrap, topic) == sorted(expected)
    assert committed_by_theirs(bootstrap, topic) == sorted(expected)


def test_ours_is_fenced_by_theirs(broker, topic):
    with ours(broker.bootstrap, topic) as former:
        former.begin_transaction()
        former.send(topic, b"former", partition=0).result()
        later = theirs(broker.bootstrap, topic)
        with pytest.raises(ProducerFencedError):
            former.commit_transaction()
        later.begin_transaction()
        later.produce(topic, b"later", partition=0)
        later.commit_transaction(PATIENCE_S)
        with pytest.raises(FatalTransactionError):
            former.begin_transaction()
    assert committed_by_ours(broker.bootstrap, topic) == [(b"later", 0)]


def test_ours_that_goes_on_sending_is_fenced_by_theirs(broker, topic):
    def go_on(former):
        with former.transaction():
            former.send(topic, b"former", partition=0).result()
            later = theirs(broker.bootstrap, topic)
            later.begin_transaction()
            later.produce(topic, b"later", partition=0)
            later.commit_transaction(PATIENCE_S)
            former.send(topic, b"former still", partition=0).result()

    with ours(broker.bootstrap, topic) as former, pytest.raises(ProducerFencedError):
        go_on(former)
    assert committed_by_ours(broker.bootstrap, topic) == [(b"later", 0)]


def test_theirs_is_fenced_by_ours(broker, topic):
    former = theirs(broker.bootstrap, topic)
    former.begin_transaction()
    former.produce(topic, b"former", partition=0)
    assert former.flush(PATIENCE_S) == 0
    with ours(broker.bootstrap, topic) as later:
        with pytest.raises(confluent_kafka.KafkaException, match="FENCED"):
            former.commit_transaction(PATIENCE_S)
        with later.transaction():
            later.send(topic, b"later", partition=0)
    assert committed_by_theirs(broker.bootstrap, topic) == [(b"later", 0)]


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker, topic):
    """The producer may go on where the broker gives it the next epoch, and is told that it can't where not."""
    with ours(broker.bootstrap, topic, transaction_timeout_ms=500) as producer, Cluster(broker.bootstrap) as cluster:
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0).result()
        until(lambda: describe_transactions(cluster, [topic])[0].state, "CompleteAbort".__eq__)
        assert producer.send(topic, b"later", partition=0).report().error is not None
        with pytest.raises(TransactionFailedError):
            producer.commit_transaction()
        try:
            producer.abort_transaction()
        except ProducerFencedError:
            assert describe_transactions(cluster, [topic])[0].state == "CompleteAbort"
    with ours(broker.bootstrap, topic) as again, again.transaction():
        again.send(topic, b"in time", partition=0)
    assert committed_by_ours(broker.bootstrap, topic) == [(b"in time", 0)]


def test_offsets_of_a_member_are_those_that_librdkafka_sees(broker, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    with ours(broker.bootstrap, topic) as producer, producer.transaction():
        producer.send(topic, b"copied", partition=0)
        producer.send_offsets_to_transaction({(topic, 0): 3, (topic, 1): 4}, topic)
    ends = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]

    def committed():
        return [one.offset for one in consumer.committed(ends, timeout=PATIENCE_S)]

    assert until(committed, [3, 4].__eq__) == [3, 4]
    consumer.close()


def test_a_copier_that_is_killed_at_random_copies_each_record_once(broker):
    name, chance = f"c-{uuid4().hex}", random.Random(7)
    source, destination = (created(f"{name}-{end}", broker.bootstrap) for end in ("in", "out"))
    with Producer(broker_list=broker.bootstrap, producer_type="async") as producer:
        for number in range(RECORDS):
            producer.send(source, b"%d" % number, partition=number % PARTITIONS)
    command = [sys.executable, str(COPIER), broker.bootstrap, name]

    def copied():
        with Cluster(broker.bootstrap) as cluster:
            return sum(one.offset for one in Groups(cluster).offsets(name).values())

    kills, before = 0, 0
    while before < RECORDS:
        process = subprocess.Popen(command)
        if kills < 12:
            until(copied, lambda count, least=before: count > least)
            threading.Event().wait(chance.random() / 10)
        else:
            until(copied, lambda count: count >= RECORDS)
        process.kill()
        process.wait()
        kills, before = kills + 1, copied()
    assert kills > 3
    with Cluster(broker.bootstrap) as cluster:  # what the last one left open
        ours(broker.bootstrap, name).close()
        assert describe_transactions(cluster, [name])[0].state == "Empty"
    expected = sorted((b"%d" % number, number % PARTITIONS) for number in range(RECORDS))
    assert committed_by_ours(broker.bootstrap, destination) == expected
    assert committed_by_theirs(broker.bootstrap, destination) == expected


@pytest.fixture(scope="module", params=["3.9", "4.1"])
def lossy_kafka(request, find_peer, tmp_path_factory):
    """A relay, and behind it a broker whose requests and answers get lost, also those that it sends itself."""
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
    with LossyRelay(Losses()) as relay:
        relay.target = Address(LOOPBACK, free_port())
        with KafkaBroker(
            find_peer(request.param),
            tmp_path_factory.mktemp(f"lossy-{request.param}"),
            zookeeper=zookeeper,
            listen=str(relay.target),
            properties=relay.properties,
        ) as started:
            await_coordinators(started)
            yield relay


def test_nothing_is_doubled_or_skipped_when_requests_and_answers_are_lost(lossy_kafka):
    """Every transaction that is said to be committed counts, and no other."""
    bootstrap, losses, chance = str(lossy_kafka.address), lossy_kafka.losses, random.Random(3)
    topic, expected, last = created(f"t-{uuid4().hex}", bootstrap), [], -1
    with ours(bootstrap, topic, retry_backoff_ms=5) as producer:
        losses.often(LOSSES, 0.05, chance)
        for number in range(100):
            producer.begin_transaction()
            values = [(b"%d-%d" % (number, index), index % PARTITIONS) for index in range(chance.randint(1, 9))]
            for value, index in values:
                producer.send(topic, value, partition=index)
            producer.send_offsets_to_transaction({(topic, 0): number + 1}, topic)
            if chance.random() < 0.3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                expected, last = expected + values, number + 1
        losses.end()
    assert losses.seen >= set(LOSSES)
    assert committed_by_ours(bootstrap, topic) == sorted(expected)
    with Cluster(bootstrap) as cluster:
        assert Groups(cluster).offsets(topic, [(topic, 0)])[topic, 0].offset == last


@pytest.mark.parametrize("late", [ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE])
def test_what_comes_late_does_not_get_into_the_next_transaction(lossy_kafka, late):
    bootstrap = str(lossy_kafka.address)
    topic = created(f"t-{uuid4().hex}", bootstrap)
    with ours(bootstrap, topic, delivery_timeout_ms=2000, retry_backoff_ms=100) as producer:
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).result()
        if late is ApiKey.PRODUCE:
            lossy_kafka.losses.always(late, Fate.COMES_LATE)
            assert isinstance(producer.send(topic, b"late", partition=0).report().error, DeliveryTimeoutError)
            lossy_kafka.losses.end()
            producer.abort_transaction()
        else:
            lossy_kafka.losses.once(late, Fate.COMES_LATE)
            producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"not yet", partition=0).result()
        producer.send_offsets_to_transaction({(topic, 0): 9}, topic)
        assert lossy_kafka.deliver_late() > 0
        producer.abort_transaction()
    committed = late is not ApiKey.PRODUCE
    assert committed_by_ours(bootstrap, topic) == ([(b"a", 0)] if committed else [])
    with Cluster(bootstrap) as cluster:
        assert Groups(cluster).offsets(topic, [(topic, 0)])[topic, 0].offset == (5 if committed else -1)


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_transactions_on_a_secured_kafka(request, find_peer, tmp_path, version):
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if version == "3.9" else None
    with SecuredKafka(find_peer(version), tmp_path, zookeeper) as kafka:
        bootstrap, properties = kafka.address("PASSWORDS"), kafka.passwords("SCRAM-SHA-512")
        security = ClientSecurity.from_properties(properties)
        topic = created("secured", bootstrap, security)
        given = {"broker.list": bootstrap, "producer.type": "async", "transactional.id": "secured", **properties}
        with Producer(given) as producer:
            producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                producer.send(topic, b"%d" % number, partition=0)
                producer.send_offsets_to_transaction({(topic, 0): number + 1}, "secured")
                producer.commit_transaction() if number % 2 else producer.abort_transaction()
        assert committed_by_ours(bootstrap, topic, security) == [(b"%d" % number, 0) for number in (1, 3, 5)]
        with Cluster(bootstrap, security=security) as cluster:
            assert Groups(cluster).offsets("secured", [(topic, 0)])[topic, 0].offset == 6
