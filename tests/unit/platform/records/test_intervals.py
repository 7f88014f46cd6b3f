"""How far an answer goes, and that its batches rise: what no checksum says of base offsets and lengths."""

import pytest

from millrace.errors import CorruptRecordError, RecordError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.intervals import Extent, Interval, extent, rising
from millrace.records.message_set import encode_message_set
from millrace.records.record import NewRecord, Record, encode_batch

RECORDS = [Record(7 + n, 5, b"k", b"v") for n in range(3)]
V0 = encode_message_set(RECORDS[:2], magic=0)
V1 = encode_message_set([Record(9 + n, 5, b"k", b"v") for n in range(2)], magic=1, codec=Codec.GZIP)


def batch(base_offset, count=4):
    return encode_batch([NewRecord(b"v")] * count, base_offset=base_offset)


def taken(buffer, asked_offset):
    return [(header.base_offset, header.next_offset) for _, header in rising(walk(buffer), asked_offset)]


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (b"", 3),
        (V0, 9),
        (V1, 11),
        (V0 + V1 + batch(20), 24),
        (batch(20)[:-1], 3),
        (V1 + batch(20)[:50], 11),
        (batch(0) + batch(4), 8),
        (batch(2) + batch(9), 13),
    ],
)
def test_an_answer_goes_to_the_end_of_what_is_whole(buffer, expected):
    assert extent(buffer, 3) == Extent(expected)


def test_bytes_of_no_format_are_an_error():
    broken = batch(20)
    with pytest.raises(RecordError):
        extent(broken[:16] + b"\x09" + broken[17:], 0)


@pytest.mark.parametrize(
    ("batches", "asked_offset"),
    [
        ([0, 4, 8], 0),
        ([0, 4, 8], 3),
        ([5, 100], 2),
    ],
    ids=["dense", "begins below", "gaps"],
)
def test_rising_batches_are_taken(batches, asked_offset):
    assert taken(b"".join(map(batch, batches)), asked_offset) == [(base, base + 4) for base in batches]


@pytest.mark.parametrize(
    ("batches", "asked_offset"),
    [
        ([0, 3], 0),
        ([0, 0], 0),
        ([8, 4], 8),
        ([0, -(2**62)], 0),
        ([0], 4),
        ([-(2**63)], 0),
        ([2**63 - 5, 0], 0),
        ([-3], 0),
    ],
    ids=["overlap", "twice", "falls", "negative later", "below what was asked", "least", "beyond all", "below zero"],
)
def test_batches_that_do_not_rise_are_damage(batches, asked_offset):
    buffer = b"".join(map(batch, batches))
    with pytest.raises(CorruptRecordError, match="says that it has the offsets"):
        taken(buffer, asked_offset)
    with pytest.raises(CorruptRecordError):
        extent(buffer, asked_offset)


@pytest.mark.parametrize("buffer", [V1 + V0, V0 + V0, V0 + batch(7)[:0] + V0])
def test_messages_that_do_not_rise_are_damage(buffer):
    with pytest.raises(CorruptRecordError, match="a message has offset 7"):
        extent(buffer, 0)


def test_an_interval_is_shown_by_its_first_and_last_offset():
    assert str(Interval(5, 8)) == "5-7"


@pytest.mark.parametrize("asked_offset", [1, 3])
def test_where_a_batch_that_was_read_ends_no_other_begins_below(asked_offset):
    assert taken(batch(0) + batch(4), asked_offset) == [(0, 4), (4, 8)]
    assert extent(batch(4), 4, goes_on=True) == Extent(8)
    for read in (
        lambda: list(rising(walk(batch(0)), asked_offset, goes_on=True)),
        lambda: extent(batch(0), asked_offset, goes_on=True),
    ):
        with pytest.raises(CorruptRecordError, match="or later ones are expected"):
            read()
