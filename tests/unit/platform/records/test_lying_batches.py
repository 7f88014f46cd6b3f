"""Batches whose records lie about their offsets, with a right CRC: refused by every decoder, alike."""

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.arrow import COMPILED, PLAIN, decode_to_arrow
from millrace.records.batch import HEADER_BYTES, read_header
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_body, encode_batch, encode_records, records_of

HEADER = read_header(encode_batch([NewRecord(b"v")] * 4, base_offset=100))


def batch(*deltas, codec=Codec.NONE):
    header = HEADER._replace(attributes=codec)
    return encode_records(header, [Record(header.base_offset + delta, 1000, b"k", b"value") for delta in deltas])


def by_arrow(decoders):
    def offsets(lying):
        return [offset for block in decode_to_arrow(lying, decoders=decoders) for offset in block["offset"].to_pylist()]

    return offsets


def at_once(lying):
    return [record.offset for record in records_of(read_header(lying), lying[HEADER_BYTES:])]


def one_by_one(lying):
    return [record.offset for record in decode_body(read_header(lying), lying[HEADER_BYTES:])]


every_decoder = pytest.mark.parametrize(
    "decode",
    [by_arrow(COMPILED), by_arrow(PLAIN), at_once, one_by_one],
    ids=["compiled columns", "plain columns", "compiled records", "plain records"],
)


@every_decoder
@pytest.mark.parametrize("deltas", [(0, 0, 0, 0), (0, 2, 1, 3), (3, 0), (1, 1), (0, 1, 1), (0, 1, 2, 2)])
def test_offsets_that_do_not_rise_are_refused(decode, deltas):
    with pytest.raises(CorruptRecordError, match="does not follow"):
        decode(batch(*deltas))


@every_decoder
@pytest.mark.parametrize("deltas", [(), (0,), (3,), (1, 3), (0, 1, 2, 3)])
def test_offsets_that_rise_are_taken(decode, deltas):
    assert decode(batch(*deltas)) == [100 + delta for delta in deltas]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@pytest.mark.parametrize("decoders", [COMPILED, PLAIN], ids=["compiled", "plain"])
def test_offsets_in_compressed_batches_are_looked_at(codec, decoders):
    with pytest.raises(CorruptRecordError, match="does not follow"):
        by_arrow(decoders)(batch(0, 0, 0, 0, codec=codec))


@pytest.mark.parametrize("decoders", [COMPILED, PLAIN], ids=["compiled", "plain"])
def test_the_offsets_of_each_batch_count_by_themselves(decoders):
    following = encode_records(
        HEADER._replace(base_offset=104), [Record(104 + delta, 1, None, b"v") for delta in (0, 3)]
    )
    empty = encode_records(HEADER._replace(base_offset=108), [])
    last = encode_records(HEADER._replace(base_offset=112), [Record(112, 1, None, b"v")])
    assert by_arrow(decoders)(batch(0, 1, 3) + following + empty + last) == [100, 101, 103, 104, 107, 112]
