"""A batch that is decoded body by body has the records that it has as a whole, or is refused as the whole one is."""

from itertools import chain
from random import Random

import pytest

from millrace.client import fetched as client_fetched
from millrace.client.fetched import FetchedData
from millrace.errors import CorruptRecordError, MillraceError
from millrace.records import arrow
from millrace.records.arrow import decode_to_arrow
from millrace.records.batch import MAGIC_V2, read_header, walk
from millrace.records.bodies import bodies_of
from millrace.records.compression import CHUNK_BYTES, Codec
from millrace.records.message_set import runs
from millrace.records.record import NewRecord, decode_batch, decode_body, encode_batch, records_of
from millrace_support.hostile_records import HostileRecords

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
FIELDS_BYTES = 40
SIZES = (1, 7, 100, 4096, 1 << 20)
VALUES = {
    "none": [b""],
    "small ones": [b"%d" % number for number in range(1000)],
    "one large": [bytes(5000)],
    "large ones among small ones": [bytes(number % 7 * 700) for number in range(100)],
    "of equal sizes": [b"0123456789"] * 500,
}


def batch_of(values, codec):
    records = [NewRecord(value, b"key", 1000 + index, (("h", b"x"),)) for index, value in enumerate(values)]
    batch = memoryview(encode_batch(records, base_offset=70, codec=codec))
    return read_header(batch, 0), batch


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("body_bytes", SIZES)
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_bodies_have_the_records_of_the_batch(codec, body_bytes, values):
    header, batch = batch_of(values, codec)
    bodies = list(bodies_of(header, batch, body_bytes))
    assert [one for body in bodies for one in records_of(*body)] == list(decode_batch(header, batch))
    assert sum(body.header.record_count for body in bodies) == header.record_count
    if codec not in (Codec.NONE, Codec.SNAPPY):  # a piece of snappy comes whole
        largest = max(map(len, values)) + FIELDS_BYTES
        assert max(len(body.data) for body in bodies) <= 2 * body_bytes + largest


@pytest.mark.parametrize("body_bytes", [1, 30, 200])
def test_damaged_batches_are_refused_as_a_whole_one_is(body_bytes):
    outcomes = {outcomes_of(buffer, body_bytes) for buffer in buffers(Random(body_bytes), 3000)}
    assert outcomes == {"read", "refused"}


def buffers(chance, count):
    hostile = HostileRecords(chance)
    return [hostile.buffer() for _ in range(count)]


def outcomes_of(buffer, body_bytes):
    whole = read(buffer, lambda header, batch: list(decode_batch(header, batch)))
    by_body = read(
        buffer,
        lambda header, batch: [one for body in bodies_of(header, batch, body_bytes) for one in decode_body(*body)],
    )
    assert by_body == whole
    return "refused" if whole is None else "read"


def read(buffer, decode):
    try:
        return [
            one
            for magic, run in runs(buffer)
            if magic == MAGIC_V2
            for position, header in walk(run)
            for one in decode(header, run[position : position + header.size_bytes])
        ]
    except MillraceError:
        return None


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("counted", [1, 250, 499, 501, 1000])
def test_a_count_that_is_wrong_is_found(codec, counted):
    header, batch = batch_of(VALUES["of equal sizes"], codec)
    bodies = bodies_of(header._replace(record_count=counted), batch, 1000)
    with pytest.raises(CorruptRecordError):
        list(chain.from_iterable(decode_body(*body) for body in bodies))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_readers_decode_what_a_batch_holds_by_and_by(codec, monkeypatch):
    monkeypatch.setattr(client_fetched, "BODY_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(arrow, "BODY_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(arrow, "BLOCK_BYTES", 4 * CHUNK_BYTES)
    _, batch = batch_of([b"%05d" % number * 2000 for number in range(300)], codec)
    expected = [70 + number for number in range(300)]
    blocks = [block.column("offset").to_pylist() for block in decode_to_arrow(batch, from_offset=70)]
    assert [offset for block in blocks for offset in block] == expected
    (fetched,) = FetchedData(bytes(batch), 370, 370, 70, asked_offset=70).batches()
    lists = [[one.offset for one in some] for some in fetched.record_lists()]
    assert [offset for some in lists for offset in some] == expected
    if codec is not Codec.SNAPPY:
        assert min(len(blocks), len(lists)) > 4
