"""Offsets and times of a batch are those of its records, whatever its codec and wherever its chunks are cut."""

from random import Random

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import read_header
from millrace.records.bodies import record_times
from millrace.records.compression import CHUNK_BYTES, Codec
from millrace.records.record import NewRecord, decode_batch, encode_batch

BASE_MS = 1_700_000_000_000
SHAPES = {
    "none has a value": [NewRecord(None, timestamp_ms=BASE_MS)] * 30_000,
    "of every size": [
        NewRecord(Random(number).randbytes(number), timestamp_ms=BASE_MS + number % 7) for number in range(1500)
    ],
    "larger than a chunk": [NewRecord(bytes(size), timestamp_ms=BASE_MS - size) for size in (3 * CHUNK_BYTES, 1, 90)],
    "around the end of a chunk": [
        NewRecord(bytes(CHUNK_BYTES - 40 + number), timestamp_ms=BASE_MS) for number in range(60)
    ],
}


def told(batch):
    return list(record_times(read_header(batch), memoryview(batch)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("records", SHAPES.values(), ids=SHAPES)
def test_they_are_those_of_the_records(records, codec):
    batch = encode_batch(records, codec=codec)
    whole = decode_batch(read_header(batch), memoryview(batch))
    assert told(batch) == [(one.timestamp_ms, one.offset) for one in whole]


@pytest.mark.parametrize("lost", [1, 5, 100])
def test_a_batch_that_is_cut_short_is_corrupt(lost):
    batch = encode_batch([NewRecord(None)] * 1000)
    with pytest.raises(CorruptRecordError):
        list(record_times(read_header(batch), memoryview(batch)[: -lost * 8]))
