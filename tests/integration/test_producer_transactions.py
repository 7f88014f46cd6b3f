"""Transactions of `Producer`: all or nothing, whatever is lost, late, fenced or killed."""

import random
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer

from millrace import Producer
from millrace.addresses import parse_address
from millrace.client import Admin, Cluster, Groups, SimpleConsumer
from millrace.client.groups import GroupOffset, describe_transactions
from millrace.client.producer import (
    CallbackHandler,
    FatalTransactionError,
    GroupMetadata,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionStateError,
    TransactionTimeoutError,
)
from millrace.client.simple_consumer import IsolationLevel
from millrace.errors import (
    BrokerError,
    DeliveryTimeoutError,
    InvalidConfigError,
    ProducerClosedError,
    RecordTooLargeError,
)
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.lossy_relay import Fate, Losses, LossyRelay
from millrace_support.waiting import until

PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 3


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("transactions"), properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def topic(served, request):
    return created(served.bootstrap, request.node.name.replace("[", "-").replace("]", "").replace(" ", "-"))


def created(bootstrap, name):
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


def transactional(bootstrap, name, **properties):
    producer = Producer(broker_list=bootstrap, producer_type="async", transactional_id=name, **properties)
    producer.init_transactions()
    return producer


def committed(bootstrap, topic):
    """Returns the values that a reader of committed records gets, once no transaction is open there any more."""
    found = []
    with SimpleConsumer(bootstrap) as consumer:
        for index in range(PARTITIONS):
            end = consumer.latest(topic, index)
            until(lambda at=index: consumer.latest(topic, at, IsolationLevel.READ_COMMITTED), end.__eq__)
            records = consumer.messages(topic, index, isolation=IsolationLevel.READ_COMMITTED)
            found += [record.value for record in records]
    return sorted(found)


def offset_of(bootstrap, group, topic):
    with Cluster(bootstrap) as cluster:
        found = Groups(cluster).offsets(group, [(topic, 0)])
    return found[topic, 0].offset


def send_each(producer, topic, *values):
    return [producer.send(topic, value, partition=index % PARTITIONS) for index, value in enumerate(values)]


def test_records_and_offsets_count_together(served, topic):
    with transactional(served.bootstrap, topic) as producer:
        with producer.transaction():
            send_each(producer, topic, b"a", b"b", b"c", b"d")
            producer.send_offsets_to_transaction({(topic, 0): 7}, topic)
        producer.begin_transaction()
        send_each(producer, topic, b"e", b"f")
        producer.send_offsets_to_transaction({(topic, 0): GroupOffset(9, "told")}, GroupMetadata(topic))
        producer.flush()
        assert committed_before_the_end(served.bootstrap, topic) == [b"a", b"b", b"c", b"d"]
        producer.abort_transaction()
        assert offset_of(served.bootstrap, topic, topic) == 7
        with producer.transaction():
            send_each(producer, topic, b"g")
            producer.send_offsets_to_transaction({(topic, 0): GroupOffset(8, "told")}, topic)
    assert committed(served.bootstrap, topic) == [b"a", b"b", b"c", b"d", b"g"]
    assert offset_of(served.bootstrap, topic, topic) == 8


def committed_before_the_end(bootstrap, topic):
    with SimpleConsumer(bootstrap) as consumer:
        return sorted(
            record.value
            for index in range(PARTITIONS)
            for record in consumer.messages(
                topic, index, until_offset=consumer.latest(topic, index, IsolationLevel.READ_COMMITTED),
                isolation=IsolationLevel.READ_COMMITTED,
            )
        )  # fmt: skip


@pytest.mark.parametrize("producer_type", ["sync", "async"])
def test_an_error_in_the_block_aborts_what_was_sent(served, topic, producer_type):
    with Producer(broker_list=served.bootstrap, transactional_id=topic, producer_type=producer_type) as producer:
        producer.init_transactions()

        def send_and_fail():
            with producer.transaction():
                send_each(producer, topic, b"a", b"b")
                producer.flush()
                raise LookupError("of the application")

        with pytest.raises(LookupError, match="of the application"):
            send_and_fail()
        with producer.transaction():
            pass  # nothing to commit
        with producer.transaction():
            send_each(producer, topic, b"c")
    assert committed(served.bootstrap, topic) == [b"c"]


def test_what_waits_is_dropped_by_an_abort_without_being_sent(served, topic):
    with transactional(served.bootstrap, topic, queue_time=60_000) as producer:
        producer.begin_transaction()
        deliveries = send_each(producer, topic, b"a", b"b")
        producer.abort_transaction()
        assert [type(one.report().error) for one in deliveries] == [TransactionAbortedError] * 2
        with SimpleConsumer(served.bootstrap) as consumer:
            assert [consumer.latest(topic, index) for index in range(PARTITIONS)] == [0] * PARTITIONS


def test_threads_share_a_transaction(served, topic):
    with transactional(served.bootstrap, topic, batch_size=7) as producer, producer.transaction():
        threads = [
            threading.Thread(target=send_each, args=(producer, topic, *(b"%d-%d" % (one, n) for n in range(200))))
            for one in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = sorted(b"%d-%d" % (one, number) for one in range(4) for number in range(200))
    assert committed(served.bootstrap, topic) == expected


LOSSES = [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE]
LOSSES += [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """A relay, and behind it a broker whose requests and answers get lost."""
    with (
        LossyRelay(Losses()) as relay,
        BrokerProcess(tmp_path_factory.mktemp("lossy"), properties=PROPERTIES | relay.properties) as broker,
    ):
        relay.target = parse_address(broker.bootstrap)
        yield relay


@pytest.mark.parametrize("fate", [Fate.IS_LOST, Fate.LOSES_ITS_ANSWER])
@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("is_commit", [True, False])
def test_nothing_is_doubled_or_skipped_when_one_is_lost(lossy, lost, fate, is_commit):
    bootstrap, losses = str(lossy.address), lossy.losses
    topic = created(bootstrap, f"{lost.name}-{fate.name}-{is_commit}")
    if lost in (ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID):
        losses.once(lost, fate)
    with transactional(bootstrap, topic) as producer:
        losses.once(lost, fate)
        producer.begin_transaction()
        send_each(producer, topic, b"a", b"b", b"c")
        producer.flush()
        producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
        producer.commit_transaction() if is_commit else producer.abort_transaction()
        assert lost in losses.seen
        with producer.transaction():
            send_each(producer, topic, b"d", b"e", b"f")
    assert committed(bootstrap, topic) == ([b"a", b"b", b"c"] if is_commit else []) + [b"d", b"e", b"f"]
    assert offset_of(bootstrap, topic, topic) == (5 if is_commit else -1)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_doubled_or_skipped_when_many_are_lost(lossy, seed):
    """Every transaction that is said to be committed counts, and no other; a twentieth of all requests goes wrong."""
    bootstrap, losses = str(lossy.address), lossy.losses
    topic, chance, expected = created(bootstrap, f"many-{seed}"), random.Random(seed), []
    with transactional(bootstrap, topic, retry_backoff_ms=5) as producer:
        losses.often(LOSSES, 0.05, chance)
        for number in range(60):
            producer.begin_transaction()
            values = [b"%d-%d" % (number, index) for index in range(chance.randint(1, 9))]
            send_each(producer, topic, *values)
            producer.send_offsets_to_transaction({(topic, 0): number + 1}, topic)
            if chance.random() < 0.3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                expected += values
                last = number + 1
        losses.end()
    assert committed(bootstrap, topic) == sorted(expected)
    assert offset_of(bootstrap, topic, topic) == last


def test_a_batch_that_comes_after_its_abort_is_refused(lossy):
    """Under the former epoch the broker would take it into the next transaction, or the next one's record for it."""
    bootstrap, losses = str(lossy.address), lossy.losses
    topic = created(bootstrap, "late-batch")
    with transactional(bootstrap, topic, delivery_timeout_ms=300, retry_backoff_ms=100) as producer:
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).result()
        losses.always(ApiKey.PRODUCE, Fate.COMES_LATE)
        late = producer.send(topic, b"late", partition=0)
        assert isinstance(late.report().error, DeliveryTimeoutError)
        losses.end()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next", partition=0).result()
            assert lossy.deliver_late() > 0
    assert committed(bootstrap, topic) == [b"next"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_that_comes_late_does_not_get_into_the_next_transaction(lossy, is_commit):
    bootstrap, losses = str(lossy.address), lossy.losses
    topic = created(bootstrap, f"late-offset-{is_commit}")
    with transactional(bootstrap, topic) as producer:
        losses.once(ApiKey.TXN_OFFSET_COMMIT, Fate.COMES_LATE)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
        producer.commit_transaction() if is_commit else producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({(topic, 0): 9}, topic)
            assert lossy.deliver_late() == 1
        assert offset_of(bootstrap, topic, topic) == 9
        with producer.transaction():
            send_each(producer, topic, b"a")
    assert offset_of(bootstrap, topic, topic) == 9


def test_a_commit_that_comes_twice_does_not_commit_the_next_transaction(lossy):
    bootstrap, losses = str(lossy.address), lossy.losses
    topic = created(bootstrap, "late-commit")
    with transactional(bootstrap, topic) as producer:
        losses.once(ApiKey.END_TXN, Fate.COMES_LATE)
        with producer.transaction():
            send_each(producer, topic, b"a")
        producer.begin_transaction()
        producer.send(topic, b"not yet", partition=0).result()
        assert lossy.deliver_late() == 1
        assert committed_before_the_end(bootstrap, topic) == [b"a"]
        producer.abort_transaction()
    assert committed(bootstrap, topic) == [b"a"]


def test_a_commit_that_is_not_answered_in_time_is_repeated(lossy):
    bootstrap, losses = str(lossy.address), lossy.losses
    topic = created(bootstrap, "late")
    with transactional(bootstrap, topic, max_block_ms=200) as producer:
        producer.begin_transaction()
        send_each(producer, topic, b"a")
        losses.always(ApiKey.END_TXN, Fate.LOSES_ITS_ANSWER)
        with pytest.raises(TransactionTimeoutError):
            producer.commit_transaction()
        with pytest.raises(TransactionStateError, match="call commit_transaction again"):
            producer.abort_transaction()
        with pytest.raises(TransactionStateError, match="call commit_transaction again"):
            producer.send(topic, b"b")
        losses.end()
        producer.commit_transaction()
    assert committed(bootstrap, topic) == [b"a"]


def test_a_later_producer_with_the_id_fences_the_former_one(served, topic):
    with transactional(served.bootstrap, topic) as former:
        former.begin_transaction()
        send_each(former, topic, b"a", b"b", b"c")
        former.flush()
        with transactional(served.bootstrap, topic) as later:
            with pytest.raises(ProducerFencedError):
                former.commit_transaction()
            with pytest.raises(ProducerFencedError):
                former.begin_transaction()
            with later.transaction():
                send_each(later, topic, b"d")
    assert committed(served.bootstrap, topic) == [b"d"]


def test_a_former_producer_that_goes_on_sending_is_told_by_its_block(served, topic):
    with transactional(served.bootstrap, topic) as former:

        def go_on():
            with former.transaction():
                former.send(topic, b"a", partition=0).result()
                with transactional(served.bootstrap, topic) as later, later.transaction():
                    send_each(later, topic, b"d")
                former.send(topic, b"b", partition=0).result()

        with pytest.raises(ProducerFencedError):
            go_on()
        with pytest.raises(FatalTransactionError):
            former.send(topic, b"e")
    assert committed(served.bootstrap, topic) == [b"d"]


def test_after_a_transaction_that_was_open_for_too_long_the_producer_goes_on(served, topic):
    with (
        transactional(served.bootstrap, topic, transaction_timeout_ms=1) as producer,
        Cluster(served.bootstrap) as cluster,
    ):
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0)
        producer.flush()
        until(lambda: describe_transactions(cluster, [topic])[0].state, "CompleteAbort".__eq__)
        assert producer.send(topic, b"later", partition=0).report().error is not None
        with pytest.raises(TransactionFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        assert describe_transactions(cluster, [topic])[0].producer_epoch == 1, "that of the coordinator's abort"
    with transactional(served.bootstrap, topic) as producer, producer.transaction():
        send_each(producer, topic, b"in time")
    assert committed(served.bootstrap, topic) == [b"in time"]


def test_a_record_that_is_refused_takes_its_whole_transaction_with_it(served, topic):
    with transactional(served.bootstrap, topic) as producer:
        with pytest.raises(TransactionFailedError) as raised, producer.transaction():
            deliveries = send_each(producer, topic, b"a", bytes(2_000_000), b"b")
        assert isinstance(raised.value.__cause__, RecordTooLargeError)
        assert isinstance(deliveries[1].report().error, RecordTooLargeError)
        with producer.transaction():
            send_each(producer, topic, b"c", b"d", b"e")
    assert committed(served.bootstrap, topic) == [b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("changed", "is_taken"),
    [
        ({}, True),
        ({"generation_id": 2}, False),
        ({"member_id": "a former one"}, False),
        ({"group_instance_id": "another"}, False),
    ],
)
def test_a_group_takes_offsets_of_its_members_alone(served, topic, changed, is_taken):
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) or consumer.assignment())
    member = GroupMetadata(topic, 1, consumer.memberid())._replace(**changed)
    with transactional(served.bootstrap, topic) as producer:
        producer.begin_transaction()
        send_each(producer, topic, b"a")
        if is_taken:
            producer.send_offsets_to_transaction({(topic, 0): 1}, member)
            producer.commit_transaction()
        else:
            with pytest.raises(TransactionFailedError, match=f"group {topic}"):
                producer.send_offsets_to_transaction({(topic, 0): 1}, member)
            with pytest.raises(TransactionFailedError):
                producer.commit_transaction()
            producer.abort_transaction()
    assert offset_of(served.bootstrap, topic, topic) == (1 if is_taken else -1)
    consumer.close()


def test_a_broker_that_dies_neither_doubles_nor_skips(tmp_path):
    with BrokerProcess(tmp_path, properties=PROPERTIES) as broker:
        topic, chance = created(broker.bootstrap, "kills"), random.Random(1)
        with transactional(broker.bootstrap, "kills") as producer:
            for number in range(8):
                with producer.transaction():
                    send_each(producer, topic, *(b"%d-%d" % (number, index) for index in range(50)))
                    producer.send_offsets_to_transaction({(topic, 0): number + 1}, topic)
                    reboot = threading.Timer(chance.random() / 50, lambda: (broker.kill(), broker.start()))
                    reboot.start()
                reboot.join()
        expected = sorted(b"%d-%d" % (number, index) for number in range(8) for index in range(50))
        assert committed(broker.bootstrap, topic) == expected
        assert offset_of(broker.bootstrap, topic, topic) == 8


def test_closing_aborts_what_is_open(served, topic):
    producer = transactional(served.bootstrap, topic)
    producer.begin_transaction()
    producer.send(topic, b"a", partition=0)
    producer.flush()
    producer.close()
    assert committed(served.bootstrap, topic) == []
    with Cluster(served.bootstrap) as cluster:
        assert describe_transactions(cluster, [topic])[0].state == "CompleteAbort"
    with pytest.raises(ProducerClosedError):
        producer.begin_transaction()


def test_the_interpreters_exit_aborts_what_is_open(served, topic):
    code = f"""
from millrace import Producer
producer = Producer(broker_list="{served.bootstrap}", transactional_id="{topic}")
producer.init_transactions()
producer.begin_transaction()
producer.send("{topic}", b"open", partition=0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with Cluster(served.bootstrap) as cluster:
        assert describe_transactions(cluster, [topic])[0].state == "CompleteAbort"
    assert committed(served.bootstrap, topic) == []


def test_a_forked_child_is_refused_and_the_parent_commits(served, topic):
    code = f"""
import os
from millrace import Producer
from millrace.errors import ProducerClosedError
producer = Producer(broker_list="{served.bootstrap}", transactional_id="{topic}")
producer.init_transactions()
producer.begin_transaction()
producer.send("{topic}", b"before", partition=0)
child = os.fork()
if not child:
    refused = 0
    for call in (producer.commit_transaction, producer.abort_transaction, lambda: producer.send("{topic}", b"child")):
        try:
            call()
        except ProducerClosedError:
            refused += 1
    producer.close()
    os._exit(refused)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
producer.send("{topic}", b"after", partition=0)
producer.commit_transaction()
producer.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert committed(served.bootstrap, topic) == [b"after", b"before"]


def test_closing_says_nothing_of_a_transaction_that_another_has_aborted(served, topic):
    with transactional(served.bootstrap, topic) as former:
        former.begin_transaction()
        former.send(topic, b"a", partition=0).result()
        with transactional(served.bootstrap, topic) as later, later.transaction():
            send_each(later, topic, b"b")
    assert committed(served.bootstrap, topic) == [b"b"]


def test_a_timeout_that_the_broker_does_not_allow_is_told(served, topic):
    with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms"):
        transactional(served.bootstrap, topic, transaction_timeout_ms=2**31 - 1)


def test_calls_out_of_their_turn_do_nothing(served, topic):
    def refused(call, *arguments, match):
        with pytest.raises(TransactionStateError, match=match):
            call(*arguments)

    with Producer(broker_list=served.bootstrap) as plain:
        refused(plain.begin_transaction, match="transactional.id is not set")
    with Producer(broker_list=served.bootstrap, producer_type="async", transactional_id=topic) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            refused(call, match="init_transactions has not been called")
        refused(producer.send, topic, b"a", match="init_transactions has not been called")
        producer.init_transactions()
        refused(producer.init_transactions, match="begin_transaction opens one")
        refused(producer.send, topic, b"a", match="begin_transaction opens one")
        refused(producer.send_offsets_to_transaction, {(topic, 0): 1}, topic, match="begin_transaction opens one")
        producer.begin_transaction()
        refused(producer.begin_transaction, match="a transaction is open")
        refused_there = []

        def commit_in_a_callback(_):
            try:
                producer.commit_transaction()
            except TransactionStateError as error:
                refused_there.append(error)

        producer.send(topic, b"b", partition=0, on_delivery=commit_in_a_callback)
        producer.flush()
        assert len(refused_there) == 1
        producer.commit_transaction()
    assert committed(served.bootstrap, topic) == [b"b"]


@pytest.mark.parametrize("wrong", [{"acks": 1}, {"enable_idempotence": False}, {"callback_handler": CallbackHandler()}])
def test_transactions_need_what_they_are_built_on(served, wrong):
    with pytest.raises(InvalidConfigError, match=r"transactional\.id"):
        Producer(broker_list=served.bootstrap, producer_type="async", transactional_id="x", **wrong)
