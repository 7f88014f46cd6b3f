"""Transaction markers, written and read."""

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatch

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.records.batch import CRC_POSITION, read_header
from millrace.records.control import (
    ControlType,
    EndTransactionMarker,
    decode_marker,
    decode_marker_batch,
    encode_marker_batch,
)
from millrace.records.record import NewRecord, Record, decode_records, encode_batch


def marker_batch(kind=ControlType.COMMIT):
    return encode_marker_batch(
        EndTransactionMarker(kind, 17),
        producer_id=9,
        producer_epoch=3,
        timestamp_ms=1234,
        base_offset=40,
        leader_epoch=6,
    )


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_comes_back(kind):
    batch = marker_batch(kind)
    header = read_header(batch)
    assert decode_marker_batch(header, memoryview(batch)) == EndTransactionMarker(kind, 17)
    assert header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.record_count, header.partition_leader_epoch) == (40, 1, 6)
    assert (header.base_timestamp, header.max_timestamp) == (1234, 1234)


@pytest.mark.parametrize("kind", ControlType)
def test_kafka_python_reads_it(kind):
    batch = DefaultRecordBatch(marker_batch(kind))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = batch
    assert (record.version, record.type) == (0, kind)
    assert record.value == struct.pack(">hi", 0, 17)


def test_applications_never_see_it():
    assert list(decode_records(marker_batch() + encode_batch([NewRecord(b"x")]))) == [Record(0, -1, None, b"x")]


def test_later_versions_may_append_fields():
    record = Record(0, 0, struct.pack(">hhq", 1, 0, 5), struct.pack(">hiq", 2, 8, 5))
    assert decode_marker(record) == EndTransactionMarker(ControlType.ABORT, 8)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, struct.pack(">hi", 0, 0), CorruptRecordError),
        (b"\0\0\0", struct.pack(">hi", 0, 0), CorruptRecordError),
        (struct.pack(">hh", 0, 1), None, CorruptRecordError),
        (struct.pack(">hh", 0, 1), b"\0\0\0\0\0", CorruptRecordError),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 0), CorruptRecordError),
        (struct.pack(">hh", 0, 2), b"", InvalidRecordError),
    ],
)
def test_what_is_no_marker(key, value, error):
    with pytest.raises(error):
        decode_marker(Record(0, 0, key, value))


def test_batches_that_are_none():
    plain = encode_batch([NewRecord(b"x")])
    with pytest.raises(InvalidRecordError, match="no control batch"):
        decode_marker_batch(read_header(plain), memoryview(plain))
    broken = bytearray(marker_batch())
    broken[CRC_POSITION] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC-32C"):
        decode_marker_batch(read_header(broken), memoryview(broken))
