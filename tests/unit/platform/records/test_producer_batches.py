"""A producer's batches hold what was sent, by the compiled kernel and without it."""

import pytest

from millrace.client.producer import batch as module
from millrace.client.producer.accumulator import PartitionQueue
from millrace.client.producer.batch import MAX_SEQUENCE, NOBODY, Batch, Delivery, Identity, size_bytes_of
from millrace.clock import SystemClock
from millrace.errors import RecordTooLargeError
from millrace.records.batch import read_header
from millrace.records.compression import Codec
from millrace.records.record import decode_records

SENT = [
    (1000, b"k", b"v", ()),
    (990, None, None, (("h", None), ("ключ", b"x"))),
    (5000, b"", bytes(300), ()),
]


def filled():
    batch = Batch("t", 0, base_timestamp_ms=1000, ready_s=0, deadline_s=0, clock=SystemClock())
    for index, (time_ms, key, value, headers) in enumerate(SENT):
        batch.records.append((index, time_ms - 1000, key, value, headers))
    return batch


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_was_sent_is_in_the_batch(codec, is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(module, "native", None)
    batch = filled()
    batch.identity, batch.sequence = Identity(9, 2), 40
    encoded = batch.encode(codec)
    header = read_header(encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (9, 2, 40, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
    found = [(one.timestamp_ms, one.key, one.value, one.headers) for one in decode_records(encoded)]
    assert found == SENT


def test_sent_again_it_is_the_same_but_for_its_numbers():
    batch = filled()
    first = batch.encode(Codec.LZ4)
    assert batch.encode(Codec.LZ4) == first
    batch.sequence = 7
    again = batch.encode(Codec.LZ4)
    assert read_header(again).base_sequence == 7
    assert again[61:] == first[61:]


def test_times_are_known_before_and_after_it_is_sent():
    batch = filled()
    before = [batch.timestamp_of(index) for index in range(3)]
    batch.encode(Codec.NONE)
    assert before == [batch.timestamp_of(index) for index in range(3)] == [1000, 990, 5000]


def sent(*sizes, codec=Codec.NONE):
    batch = Batch("t", 0, base_timestamp_ms=7, ready_s=1, deadline_s=2, clock=SystemClock())
    for index, size in enumerate(sizes):
        batch.records.append((index, index, b"%d" % index, bytes(size), (("h", b"1"),)))
        batch.size_bytes += size_bytes_of(b"%d" % index, bytes(size), (("h", b"1"),))
    batch.identity, batch.sequence, batch.order = Identity(9, 2), MAX_SEQUENCE - 1, (3,)
    batch.encode(codec)
    return batch


@pytest.mark.parametrize("codec", Codec)
def test_a_split_batch_is_the_same_records_under_the_same_numbers(codec):
    batch, told = sent(10, 10, 10, 10, codec=codec), []
    batch.callbacks = [(index, told.append) for index in (0, 2, 3)]
    first, second = batch.split(codec)
    assert (first.sequence, second.sequence, first.identity, second.identity) == (
        MAX_SEQUENCE - 1,
        0,
        *[Identity(9, 2)] * 2,
    )
    assert first.size_bytes + second.size_bytes == batch.size_bytes
    assert [[index for index, _ in part.callbacks] for part in (first, second)] == [[0], [0, 1]]
    assert [batch.find(index) for index in range(4)] == [(first, 0), (first, 1), (second, 0), (second, 1)]
    found = [record for part in (first, second) for record in decode_records(part.encode(codec))]
    assert [(one.key, one.timestamp_ms) for one in found] == [(b"%d" % index, 7 + index) for index in range(4)]


@pytest.mark.parametrize(
    ("sizes", "counts"), [((5, 5), (1, 1)), ((900, 1, 1), (1, 2)), ((1, 1, 900), (2, 1)), ((1, 900, 1), (2, 1))]
)
def test_a_batch_is_split_where_half_its_bytes_are(sizes, counts):
    first, second = sent(*sizes).split(Codec.NONE)
    assert (first.count, second.count) == counts


def test_parts_are_split_again_and_go_in_their_order():
    queue = PartitionQueue("t", 0)
    whole, behind = sent(1, 1, 1, 1), sent(1)
    whole.order = behind.order = ()
    queue.waiting.extend((whole, behind))
    queue.take(NOBODY), queue.take(NOBODY)
    first, second = whole.split(Codec.NONE)
    queue.split(whole, (first, second))
    assert queue.is_stopped
    queue.returned(behind)
    assert [queue.take(NOBODY) for _ in range(3)] == [first, second, behind]
    first.encode(Codec.NONE)
    parts = first.split(Codec.NONE)
    queue.returned(second)
    queue.split(first, parts)
    queue.returned(behind)
    assert list(queue.waiting) == [*parts, second, behind]


def test_a_report_of_a_split_batch_is_that_of_its_part():
    batch = sent(1, 1, 1)
    deliveries = [Delivery(batch, index) for index in range(3)]
    first, second = batch.split(Codec.NONE)
    assert not any(delivery.done() for delivery in deliveries)
    error = RecordTooLargeError("too large")
    first.finish(error)
    assert [delivery.done() for delivery in deliveries] == [True] * first.count + [False] * second.count
    second.finish(None, 40, -1)
    reports = [delivery.report() for delivery in deliveries]
    assert [report.error for report in reports] == [error] * first.count + [None] * second.count
    assert reports[-1].offset == 40 + second.count - 1
    assert not batch.is_released
    first.release()
    second.release()
    assert batch.is_released
