"""Order and sequence numbers of one partition's batches, whatever becomes of each."""

import random
from itertools import count as count_from

import pytest

from millrace.client.producer.accumulator import PartitionQueue
from millrace.client.producer.batch import NOBODY, Batch, Identity
from millrace.client.producer.link import ErrorAction, action_for
from millrace.clock import SystemClock
from millrace.errors import ErrorCode
from millrace.records.compression import Codec
from millrace.records.record import decode_records

ALICE = Identity(7, 0)


def queue_of(*counts):
    """Batches of so many records, each of which has a value of its own."""
    queue, values = PartitionQueue("t", 0), count_from(0)
    for count in counts:
        batch = Batch("t", 0, base_timestamp_ms=0, ready_s=0, deadline_s=0, clock=SystemClock())
        batch.records = [(index, 0, None, b"%d" % next(values), ()) for index in range(count)]
        queue.waiting.append(batch)
    return queue


def values_of(batch):
    return [record.value for record in decode_records(batch.encode(Codec.NONE))]


def test_batches_get_consecutive_numbers():
    queue = queue_of(3, 2, 1)
    assert [queue.take(ALICE).sequence for _ in range(3)] == [0, 3, 5]
    assert [batch.identity for batch in queue.in_flight] == [ALICE] * 3


def test_without_idempotence_there_are_none():
    batch = queue_of(3).take(NOBODY)
    assert (batch.sequence, batch.identity) == (-1, NOBODY)


def test_a_returned_batch_stops_the_partition_until_those_behind_are_answered():
    queue = queue_of(1, 1, 1)
    first, second = queue.take(ALICE), queue.take(ALICE)
    queue.returned(first)
    assert queue.is_stopped
    queue.returned(second)
    assert not queue.is_stopped
    assert [queue.take(ALICE).sequence for _ in range(3)] == [0, 1, 2]


def test_after_a_batch_that_is_given_up_the_others_start_from_0_under_the_next_epoch():
    queue = queue_of(2, 2, 2)
    first, second = queue.take(ALICE), queue.take(ALICE)
    queue.given_up(first)
    assert queue.is_stopped
    assert not queue.needs_epoch
    queue.returned(second)
    assert queue.needs_epoch
    assert queue.renumber() == []
    bob = Identity(7, 1)
    assert [queue.take(bob).sequence for _ in range(2)] == [0, 2]
    assert queue.in_flight[0] is second


def test_a_batch_that_may_be_appended_gets_no_other_number():
    queue = queue_of(1, 1)
    first, second = queue.take(ALICE), queue.take(ALICE)
    second.may_be_appended = True
    queue.given_up(first)
    queue.returned(second)
    assert queue.renumber() == [second]


def test_another_identity_waits_until_nothing_is_in_flight_under_the_first():
    queue = queue_of(1, 1, 1)
    other = Identity(7, 1)
    queue.take(ALICE)
    assert queue.take(other).identity == ALICE
    for batch in list(queue.in_flight):
        queue.acknowledged(batch)
    assert (queue.take(other).identity, queue.in_flight[0].sequence) == (other, 0)


@pytest.mark.parametrize("seed", range(50))
def test_a_broker_takes_every_record_once_and_in_order_whatever_is_lost_or_too_large(seed):
    """A broker that checks sizes, then numbers as KIP-98 says, over links that lose requests and answers."""
    chance = random.Random(seed)
    queue = queue_of(*(chance.randint(1, 9) for _ in range(30)))
    wanted = [value for batch in queue.waiting for value in values_of(batch)]
    appended, values, expected, identity, limit = [], [], 0, ALICE, chance.randint(1, 9)
    while not queue.is_idle:
        while queue.waiting and not queue.is_stopped and len(queue.in_flight) < 5:
            queue.take(identity)
        is_broken = False
        for batch in list(queue.in_flight):
            is_broken = is_broken or chance.random() < 0.2
            reaches = not is_broken or chance.random() < 0.5
            if reaches and batch.sequence == expected and batch.count <= limit:
                appended.append(batch)
                values += values_of(batch)
                expected += batch.count
            if is_broken:
                batch.may_be_appended = True
                queue.returned(batch)
            elif batch.count > limit:
                queue.split(batch, batch.split(Codec.NONE))
            elif batch in appended:
                queue.acknowledged(batch)
            else:
                assert not queue.is_first(batch)
                queue.returned(batch)
    assert values == wanted


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorAction.REFUSED),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorAction.TOO_LARGE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorAction.AGAIN),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorAction.UNSURE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorAction.OUT_OF_LINE),
    ],
)
def test_what_an_error_code_means_for_a_batch(code, action):
    assert action_for(code) is action
