"""Transactions of `Producer`: all or nothing, whatever is lost, late, fenced or killed."""

import random
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer

from millrace import Producer
from millrace.client import Cluster, SimpleConsumer
from millrace.client.groups import GroupOffset, describe_transactions
from millrace.client.producer import (
    CallbackHandler,
    FatalTransactionError,
    GroupMetadata,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionStateError,
)
from millrace.errors import (
    BrokerError,
    InvalidConfigError,
    ProducerClosedError,
    RecordTooLargeError,
)
from millrace.testing.broker import BrokerProcess
from millrace_support.committed_topics import (
    PARTITIONS,
    PROPERTIES,
    committed,
    committed_before_the_end,
    created,
    offset_of,
    send_each,
    transactional,
)
from millrace_support.waiting import until


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("transactions"), properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def topic(served, request):
    return created(served.bootstrap, request.node.name.replace("[", "-").replace("]", "").replace(" ", "-"))


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


def test_what_waits_is_dropped_by_an_abort_without_being_sent(served, topic, caplog):
    with transactional(served.bootstrap, topic, queue_time=60_000) as producer:
        producer.begin_transaction()
        deliveries = send_each(producer, topic, b"a", b"b")
        producer.abort_transaction()
        assert [type(one.report().error) for one in deliveries] == [TransactionAbortedError] * 2
        with SimpleConsumer(served.bootstrap) as consumer:
            assert [consumer.latest(topic, index) for index in range(PARTITIONS)] == [0] * PARTITIONS
    assert caplog.messages == [], "the transaction's end tells of its batches"


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
