"""What the broker does of itself: transactions that are open for too long end, ids and producers are forgotten."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millrace.client import Admin, Cluster
from millrace.errors import ErrorCode
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

TIMEOUT_S = 120
LONG_MS = "600000"  # for transactions that stay open for as long as a test takes
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}


@pytest.fixture
def broker_with(tmp_path):
    """A broker with a topic, by its properties."""
    running = []

    def start(**properties):
        named = {name.replace("_", "."): value for name, value in properties.items()}
        broker = BrokerProcess(tmp_path / "data", properties=PROPERTIES | named)
        running.append(broker)
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1)
        return broker

    yield start
    for broker in running:
        broker.close()


def transactional(broker, name, **properties):
    named = {key.replace("_", "."): value for key, value in properties.items()}
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "transactional.id": name, "reconnect.backoff.max.ms": 500, **named,
    })  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    return producer


def write_in_transaction(producer):
    producer.begin_transaction()
    producer.produce("events", b"in a transaction", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def first_committed(broker):
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition("events", 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    return message.value()


def known(raw):
    """Returns the state of each transactional id, once the broker has loaded them."""
    fields = {"state_filters": [], "producer_id_filters": []}
    listed = raw.request(ApiKey.LIST_TRANSACTIONS, 0, fields)
    while listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        listed = raw.request(ApiKey.LIST_TRANSACTIONS, 0, fields)
    assert not listed.error_code
    return {one.transactional_id: one.transaction_state for one in listed.transaction_states}


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker_with):
    """Readers go on after it, its producer is fenced, and no producer may ask for a longer timeout than is allowed."""
    broker = broker_with(transaction_max_timeout_ms="1000")
    with pytest.raises(KafkaException) as refused:
        transactional(broker, "patient", transaction_timeout_ms=1001)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    slow = transactional(broker, "slow", transaction_timeout_ms=1000)
    write_in_transaction(slow)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce("events", b"plain", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    assert first_committed(broker) == b"plain"
    with RawConnection(broker.bootstrap) as raw:
        assert known(raw) == {"slow": "CompleteAbort"}
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)
    transactional(broker, "slow", transaction_timeout_ms=1000)


def test_an_id_that_nobody_uses_is_forgotten(broker_with, tmp_path):
    """An id with an open transaction is not forgotten, and a forgotten one can be used again.

    The transaction begins while ids are not forgotten, as on a busy machine its own requests may be far apart.
    """
    patient = broker_with()
    busy = transactional(patient, "busy", transaction_timeout_ms=LONG_MS)
    write_in_transaction(busy)
    transactional(patient, "idle")
    assert patient.stop() == 0
    forgetful = PROPERTIES | {"transactional.id.expiration.ms": "300"}
    with (
        BrokerProcess(tmp_path / "data", listen=patient.bootstrap, properties=forgetful) as broker,
        RawConnection(broker.bootstrap) as raw,
    ):
        while "idle" in known(raw):
            pass
        assert known(raw) == {"busy": "Ongoing"}
        busy.commit_transaction(TIMEOUT_S)
        while known(raw):
            pass
        assert first_committed(broker) == b"in a transaction"
        transactional(broker, "idle")


def producers(broker):
    topics = [{"name": "events", "partition_indexes": [0]}]
    with RawConnection(broker.bootstrap) as raw:
        (partition,) = raw.request(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics}).topics[0].partitions
    assert not partition.error_code
    return {one.producer_id for one in partition.active_producers}


def test_a_producer_that_says_nothing_is_forgotten(broker_with):
    """A producer with an open transaction is not forgotten, even after a crash; a forgotten one can go on."""
    broker = broker_with(producer_id_expiration_ms="300", producer_id_expiration_check_interval_ms="50")
    busy = transactional(broker, "busy", transaction_timeout_ms=LONG_MS)
    write_in_transaction(busy)
    (kept,) = producers(broker)
    silent = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    delivered = []
    for number in range(2):
        silent.produce("events", b"%d" % number, partition=0, on_delivery=lambda error, _: delivered.append(error))
        assert silent.flush(TIMEOUT_S) == 0
        while producers(broker) != {kept}:
            pass
    broker.kill()
    broker.start()
    assert producers(broker) == {kept}
    assert delivered == [None, None]
    busy.commit_transaction(TIMEOUT_S)
    while producers(broker):
        pass
