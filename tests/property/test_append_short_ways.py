"""What the short ways of an append decide is what the long ways decide: plain batches, one batch that comes alone."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace import kernel
from millrace.errors import RecordError
from millrace.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    PLACE,
    TRANSACTIONAL_FLAG,
    is_transactional,
    read_header,
)
from millrace.records.compression import Codec
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from millrace.records.record_check import is_valid_batch
from millrace_broker.replication.produced import batches_of, check_base_offset, is_plain_batch
from millrace_broker.storage import LogConfig
from millrace_broker.storage.batches.placement import _place_batches, place
from millrace_broker.storage.batches.preparation import finished, prepare, validate_produced
from millrace_support.lying_batches import BASE_TIMESTAMP_MS, LIES, PRODUCER_LIES, lying_batches

CONFIG = LogConfig()
VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=3)
DAMAGE = st.lists(st.tuples(st.integers(0, HEADER_BYTES - 1), st.integers(0, 255)), max_size=2)
PRODUCERS = (NO_PRODUCER, BatchProducer(5, 0, 0), BatchProducer(5, -1, 0), BatchProducer(-3, 0, 0))
FLAGS = (0, TRANSACTIONAL_FLAG)
TIMES = st.integers(-1, 2**62)


def batch(values, timestamp_ms=-1):
    return encode_batch([NewRecord(value, timestamp_ms=timestamp_ms) for value in values])


@given(VALUES, DAMAGE, st.integers(-3, 3), st.integers(7, 13))
@example([b""], [(22, Codec.GZIP)], 0, 7)
@example([b""], [(22, TRANSACTIONAL_FLAG)], 0, 7)
@example([b""], [(57, 128)], 0, 7)  # a negative count of records
@example([b""], [(11, 0)], 0, 7)  # a length of no byte
def test_a_plain_batch_is_one_that_every_rule_passes(values, damage, longer, version):
    records = bytearray(batch(values))
    for position, byte in damage:
        records[position] = byte
    records = bytes(records) + bytes(longer) if longer > 0 else bytes(records[: len(records) + longer])
    try:
        taken = batches_of(version, records, CONFIG)
        check_base_offset(version, taken)
        is_plain = taken == records and not is_transactional(taken)
        # What its counts are worth is looked at by the log.
        is_plain = is_plain and not HEADER.unpack_from(taken)[5] & CODEC_MASK
    except RecordError:
        is_plain = False
    assert is_plain_batch(records) == is_plain
    assert is_plain_batch(memoryview(records)) == is_plain


@given(VALUES, st.integers(0, 2**60), st.integers(-1, 2**31 - 1), TIMES)
def test_a_batch_that_comes_alone_is_placed_as_among_others(values, offset, leader_epoch, timestamp_ms):
    view = memoryview(batch(values, timestamp_ms))
    found = validate_produced(view, 1 << 20)
    alone, among = (way([(view, found)], offset, leader_epoch) for way in (place, _place_batches))
    assert b"".join(alone.buffers) == b"".join(among.buffers)
    assert alone[1:] == among[1:]
    assert read_header(b"".join(alone.buffers)).base_offset == offset
    assert b"".join(alone.buffers)[PLACE.size :] == view[PLACE.size :]


def outcome(call):
    try:
        return call()
    except RecordError as error:
        return str(error)


@given(VALUES, DAMAGE)
def test_a_header_is_read_alike_in_place(values, damage):
    data = bytearray(batch(values))
    for position, byte in damage:
        data[position] = byte
    header = outcome(lambda: read_header(data))
    validated = outcome(lambda: validate_produced(memoryview(data), 1 << 20)[0][1])
    if isinstance(header, str):
        assert validated == header or ("negative" in header and isinstance(validated, str))
    elif not isinstance(validated, str):
        assert validated == header == HEADER.unpack_from(data)


@pytest.mark.skipif(not hasattr(kernel.native, "is_valid_batch"), reason="the kernel has no CRC-32C here")
@given(lying_batches(LIES | PRODUCER_LIES), st.sampled_from(PRODUCERS), st.sampled_from(FLAGS), DAMAGE, st.booleans())
def test_a_batch_is_valid_if_there_is_nothing_to_be_done_with_it(lying, producer, flags, damage, has_tail):
    draft = replace(lying.draft, producer=producer, flags=lying.draft.flags | flags)
    data = bytearray(draft.sealed() + bytes(has_tail))
    for position, byte in damage:
        data[position] = byte
    batch = bytes(data)
    try:
        prepared = finished(prepare(batch, CONFIG, BASE_TIMESTAMP_MS))
        is_valid = prepared.view == batch and not prepared.found[0][1].codec_id
    except RecordError:
        is_valid = False
    assert is_valid_batch(batch) == is_valid
