"""Which batches a reader of committed records passes over, of transactions that interleave."""

import random

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.arrow import PassedOver, decode_to_arrow
from millrace.records.batch import TRANSACTIONAL_FLAG, placed, read_header
from millrace.records.control import AbortedTransactions, ControlType, EndTransactionMarker, encode_marker
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from millrace_support.read_committed import committed_records

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class LogOfTransactions:
    """A log's bytes, and what a broker would name as aborted in the answer to a fetch of all of it."""

    def __init__(self):
        self.batches = b""
        self.next_offset = 0
        self.aborted = []
        self.open = {}

    def add(self, batch):
        header = read_header(batch)
        self.batches += placed(header, self.next_offset, 0) + batch[16:]
        self.next_offset += header.last_offset_delta + 1

    def write(self, producer_id, *values):
        self.open.setdefault(producer_id, self.next_offset)
        records = [NewRecord(value) for value in values]
        self.add(encode_batch(records, producer=BatchProducer(producer_id, 0, 0), flags=TRANSACTIONAL_FLAG))

    def write_plainly(self, value, producer=NO_PRODUCER):
        self.add(encode_batch([NewRecord(value)], producer=producer))

    def end(self, producer_id, control_type):
        first_offset = self.open.pop(producer_id, None)
        if control_type is ABORT and first_offset is not None:
            self.aborted.append((producer_id, first_offset))
        self.add(
            encode_marker(
                EndTransactionMarker(control_type, 1), producer_id=producer_id, producer_epoch=0, timestamp_ms=0
            )
        )


def values_of(log, aborted=None, **wanted):
    chosen = log.aborted if aborted is None else aborted
    return [
        value
        for block in decode_to_arrow(log.batches, aborted=chosen, **wanted)
        for value in block.column("value").to_pylist()
    ]


@pytest.fixture
def two_producers():
    log = LogOfTransactions()
    log.write(1, b"a0", b"a1")
    log.write(2, b"b0")
    log.write_plainly(b"plain")
    log.write(1, b"a2")
    log.end(1, ABORT)
    log.write(1, b"a3")
    log.end(2, COMMIT)
    log.end(1, COMMIT)
    return log


def test_aborted_batches_and_markers_are_passed_over_and_counted(two_producers):
    passed_over = PassedOver()
    assert values_of(two_producers, passed_over=passed_over) == [b"b0", b"plain", b"a3"]
    assert passed_over == PassedOver(control=[(5, 6), (7, 8), (8, 9)], aborted=[(0, 2), (4, 5)])


def test_an_uncommitted_read_gives_all_but_the_markers(two_producers):
    assert values_of(two_producers, aborted=()) == [b"a0", b"a1", b"b0", b"plain", b"a2", b"a3"]


def test_what_lies_outside_of_the_range_decides_too_and_is_not_counted(two_producers):
    passed_over = PassedOver()
    assert values_of(two_producers, from_offset=1, until_offset=6, passed_over=passed_over) == [b"b0", b"plain"]
    assert passed_over == PassedOver(control=[(5, 6)], aborted=[(1, 2), (4, 5)])
    assert values_of(two_producers, from_offset=5) == [b"a3"]


def test_a_producer_s_records_outside_of_transactions_stay():
    log = LogOfTransactions()
    log.write(1, b"aborted")
    log.write_plainly(b"idempotent", BatchProducer(1, 0, 1))
    log.end(1, ABORT)
    assert values_of(log) == [b"idempotent"]


def test_a_marker_that_decides_is_checked():
    log = LogOfTransactions()
    log.write(1, b"aborted")
    log.end(1, ABORT)
    filtered = AbortedTransactions([(1, 0)])
    first = log.batches[: read_header(log.batches).size_bytes]
    assert filtered.has_aborted(read_header(first), memoryview(first))
    marker = bytearray(log.batches[len(first) :])
    marker[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        filtered.has_aborted(read_header(marker), memoryview(marker))


def test_random_logs_read_as_kafka_s_consumer_reads_them():
    chance = random.Random(3)
    for _ in range(200):
        log = LogOfTransactions()
        for number in range(chance.randrange(40)):
            producer_id = chance.randrange(4)
            match chance.randrange(5):
                case 0:
                    log.end(producer_id, chance.choice([COMMIT, ABORT]))
                case 1:
                    log.write_plainly(b"%d" % number)
                case _:
                    log.write(producer_id, *(b"%d" % number for _ in range(chance.randint(1, 3))))
        for producer_id in list(log.open):
            log.end(producer_id, ABORT)
        chance.shuffle(log.aborted)
        assert values_of(log) == [record.value for record in committed_records(log.batches, log.aborted)]
