"""What waits for a commit: the bounds of a batch, and what a rebalance changes in it."""

import pyarrow as pa
import pytest

from millrace.client.consumer import Message
from millrace_pipelines.downstream.job import MicroBatchJob, Pending, from_offset


def message(offset, partition=0, value=b"12345"):
    return Message("t", partition, offset, None, value, 0, ())


@pytest.fixture
def pending():
    job = MicroBatchJob(
        name="j", topic="t", schema=pa.schema([]), process=lambda rows, _: rows,
        max_records=3, max_bytes=100, max_wait_ms=1_000,
    )  # fmt: skip
    return Pending(job)


def offsets(pending):
    return {one: [message.offset for message in messages] for one, messages in pending.messages.items()}


def test_a_batch_is_full_at_its_first_bound(pending):
    assert not pending.is_full(10**9)
    pending.add(message(0), 5_000)
    assert not pending.is_full(5_999)
    assert pending.is_full(6_000)
    pending.add(message(1, value=b"x" * 95), 5_001)
    assert pending.is_full(5_001)
    pending.clear()
    for offset in range(3):
        assert not pending.is_full(7_000)
        pending.add(message(offset, value=None), 7_000)
    assert pending.is_full(7_000)


def test_what_is_dropped_counts_no_more(pending):
    pending.add(message(8, 0, b"x" * 99), 0)
    pending.add(message(7, 1, b"y"), 0)
    assert pending.is_full(0)
    pending.add(message(3, 0, b"x"), 0)
    assert offsets(pending) == {0: [3], 1: [7]}
    assert not pending.is_full(0)


def test_a_partition_that_comes_back_begins_again(pending):
    """It begins at the output's offset, which may lie below, within, or right behind what waits."""
    for offset in (10, 11):
        pending.add(message(offset), 0)
    pending.add(message(11), 0)
    assert offsets(pending) == {0: [11]}
    pending.add(message(5), 0)
    assert offsets(pending) == {0: [5]}
    pending.add(message(6), 0)
    pending.add(message(20), 0)
    assert offsets(pending) == {0: [5, 6, 20]}


def test_what_the_output_has_is_left_out():
    messages = [message(offset) for offset in (3, 4, 7)]
    assert [one.offset for one in from_offset(messages, 3)] == [3, 4, 7]
    assert [one.offset for one in from_offset(messages, 5)] == [7]
    assert from_offset(messages, 8) == []
    assert from_offset([], 0) == []
