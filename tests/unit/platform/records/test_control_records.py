"""Transaction markers, written and read."""

import struct
from uuid import UUID

import pytest
from kafka.record.default_records import DefaultRecordBatch

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.records.batch import CONTROL_FLAG, BatchHeader, read_header
from millrace.records.control import (
    ControlType,
    EndTransactionMarker,
    decode_marker,
    decode_mirror_end,
    encode_marker,
    encode_mirror_end,
)
from millrace.records.record import NewRecord, Record, decode_records, encode_batch, encode_records

VALUE = struct.pack(">hi", 0, 17)


def marker_batch(kind=ControlType.COMMIT):
    return encode_marker(EndTransactionMarker(kind, 17), producer_id=9, producer_epoch=3, timestamp_ms=1234)


def decoded(batch):
    return decode_marker(read_header(batch), memoryview(batch))


def control_batch(*records):
    return encode_batch([NewRecord(value, key) for key, value in records], flags=CONTROL_FLAG)


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_comes_back(kind):
    batch = marker_batch(kind)
    header = read_header(batch)
    assert decoded(batch) == EndTransactionMarker(kind, 17)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.record_count, header.base_timestamp, header.max_timestamp) == (1, 1234, 1234)


@pytest.mark.parametrize("kind", ControlType)
def test_kafka_python_reads_it(kind):
    batch = DefaultRecordBatch(marker_batch(kind))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = batch
    assert (record.version, record.type) == (0, kind)
    assert record.value == VALUE


def test_applications_never_see_it():
    assert list(decode_records(marker_batch() + encode_batch([NewRecord(b"x")]))) == [Record(0, -1, None, b"x")]


def test_later_versions_may_append_fields():
    batch = control_batch((struct.pack(">hhq", 1, 0, 5), struct.pack(">hiq", 2, 8, 5)))
    assert decoded(batch) == EndTransactionMarker(ControlType.ABORT, 8)


def test_no_marker_where_compaction_took_it_or_of_another_type():
    assert decoded(encode_records(BatchHeader(7, attributes=CONTROL_FLAG), [])) is None
    assert decoded(control_batch((struct.pack(">hh", 0, 2), b""))) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"\0\0\0", VALUE),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), VALUE[:-1]),
        (struct.pack(">hh", -1, 1), VALUE),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 0)),
    ],
)
def test_what_is_no_marker(key, value):
    with pytest.raises(CorruptRecordError):
        decoded(control_batch((key, value)))


def test_batches_that_are_none():
    with pytest.raises(InvalidRecordError, match="no control batch"):
        decoded(encode_batch([NewRecord(b"x")]))
    with pytest.raises(InvalidRecordError, match="holds 2 records"):
        decoded(control_batch((struct.pack(">hh", 0, 1), VALUE), (struct.pack(">hh", 0, 1), VALUE)))


def test_the_end_of_mirroring_comes_back_and_is_no_marker():
    batch = encode_mirror_end(UUID(int=9), timestamp_ms=1234)
    header = read_header(batch)
    assert decode_mirror_end(header, memoryview(batch)) == UUID(int=9)
    assert decoded(batch) is None
    assert list(decode_records(batch)) == []


@pytest.mark.parametrize("batch", [marker_batch(), encode_records(BatchHeader(7, attributes=CONTROL_FLAG), [])])
def test_other_control_batches_end_no_mirroring(batch):
    assert decode_mirror_end(read_header(batch), memoryview(batch)) is None


@pytest.mark.parametrize("value", [None, b"", struct.pack(">h15s", 0, b""), struct.pack(">h16s", -1, b"")])
def test_an_end_of_mirroring_that_cannot_be_read(value):
    batch = control_batch((struct.pack(">hh", 0, 30_000), value))
    with pytest.raises(CorruptRecordError):
        decode_mirror_end(read_header(batch), memoryview(batch))
