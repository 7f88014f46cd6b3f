"""What Produce of each version may bring, and topics with a codec of their own."""

import pytest

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import NewRecord, Record, encode_batch
from millrace_broker.replication.produced import batches_of
from millrace_broker.storage import LogConfig
from millrace_broker.storage.batches.preparation import validate_produced

CONFIG = LogConfig()
BATCH = encode_batch([NewRecord(b"v", b"k", 7)])
SET = encode_message_set([Record(0, 7, None, b"v"), Record(0, 7, None, b"w")], magic=1)


def test_one_batch_is_taken_as_it_is():
    assert batches_of(3, memoryview(BATCH), CONFIG) == BATCH
    assert batches_of(13, memoryview(BATCH + BATCH[:30]), CONFIG) == BATCH
    assert batches_of(0, BATCH, CONFIG) == BATCH


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_that_claim_their_times_to_be_the_logs_are_refused(codec):
    messages = encode_message_set([Record(0, 7, None, b"v")], magic=1, codec=codec, log_append_time=True)
    with pytest.raises(InvalidTimestampError):
        validate_produced(memoryview(batches_of(2, messages, CONFIG)), 1000)


@pytest.mark.parametrize("records", [b"", BATCH[:-1], BATCH + BATCH, SET, b"\x00" * HEADER_BYTES])
def test_anything_but_one_batch_is_refused(records):
    with pytest.raises(InvalidRecordError):
        batches_of(9, memoryview(records), CONFIG)


def test_an_unknown_format_is_corrupt():
    with pytest.raises(CorruptRecordError):
        batches_of(9, b"\xff" * 200, CONFIG)


def test_zstd_is_taken_from_v7_on():
    zstd = encode_batch([NewRecord(b"v")], codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCodecError):
        batches_of(6, zstd, CONFIG)
    assert batches_of(7, zstd, CONFIG) == zstd


def test_message_sets_become_batches_within_the_limit():
    many = SET * 100
    batches = batches_of(2, memoryview(many), LogConfig(max_message_bytes=500))
    headers = [header for _, header in walk(batches)]
    assert sum(header.record_count for header in headers) == 200
    assert max(header.size_bytes for header in headers) <= 500
    assert batches_of(1, b"", CONFIG) == b""
    assert batches_of(1, SET[:20], CONFIG) == b""


def test_a_message_of_no_known_format_is_corrupt():
    damaged = bytearray(SET)
    damaged[16] = 5
    with pytest.raises(CorruptRecordError):
        batches_of(2, bytes(damaged), CONFIG)
