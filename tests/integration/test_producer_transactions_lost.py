"""Transactions of `Producer` where requests and answers get lost, or come late: nothing is doubled or skipped."""

import random

import pytest

from millrace.addresses import parse_address
from millrace.client.producer import TransactionStateError, TransactionTimeoutError
from millrace.errors import DeliveryTimeoutError
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.committed_topics import (
    PROPERTIES,
    committed,
    committed_before_the_end,
    created,
    offset_of,
    send_each,
    transactional,
)
from millrace_support.lossy_relay import Fate, Losses, LossyRelay

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
