"""Any bytes give records or a RecordError, whatever the format; nothing else, and never more than the limit."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import RecordError
from millrace.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_BYTES, compute_crc, walk
from millrace.records.compression import Codec, compress
from millrace.records.control import ControlType, EndTransactionMarker, decode_marker, encode_marker
from millrace.records.convert import down_convert, up_convert
from millrace.records.legacy import payloads_of, walk_bodies
from millrace.records.message_set import MIN_MESSAGE_BYTES, compress_block, decode_message_set, encode_message_set
from millrace.records.record import Record, decode_records, encode_batch
from millrace_support.legacy_messages import encode_messages

LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
LIMIT_BYTES = 1 << 20
RECORDS = [Record(offset, 1000 + offset, b"key", bytes(100), (("h", b"x"),)) for offset in range(6)]
PAYLOADS = [b"", b"payload", bytes(300)]

MARKER = encode_marker(EndTransactionMarker(ControlType.ABORT, 1), producer_id=1, producer_epoch=0, timestamp_ms=0)
BATCHES = [encode_batch(RECORDS, codec=codec) for codec in Codec]
MESSAGE_SETS = [encode_message_set(RECORDS, magic=magic, codec=codec) for magic in (0, 1) for codec in LEGACY_CODECS]
LEGACY = [
    encode_messages(PAYLOADS, magic=magic, codec=codec)
    for magic, codec in ((0, Codec.NONE), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.SNAPPY))
]


def read_batches(buffer):
    list(decode_records(buffer))


def read_markers(buffer):
    for position, header in walk(buffer):
        decode_marker(header, memoryview(buffer)[position : position + header.size_bytes])


def read_legacy(buffer):
    for message in walk_bodies(buffer):
        list(payloads_of(message, LIMIT_BYTES))


READERS = [
    (read_batches, BATCHES),
    (read_markers, [MARKER]),
    (lambda buffer: down_convert(buffer, 0, limit_bytes=LIMIT_BYTES), [*BATCHES, MARKER]),
    (lambda buffer: down_convert(buffer, 1, limit_bytes=LIMIT_BYTES), [*BATCHES, MARKER]),
    (lambda buffer: list(decode_message_set(buffer, LIMIT_BYTES)), MESSAGE_SETS),
    (lambda buffer: up_convert(buffer, limit_bytes=LIMIT_BYTES), MESSAGE_SETS),
    (lambda buffer: up_convert(buffer, first_offset=0, limit_bytes=LIMIT_BYTES), MESSAGE_SETS),
    (read_legacy, LEGACY),
]
NAMES = ["batches", "markers", "down-0", "down-1", "message-sets", "up", "up-renumbered", "legacy"]


def raises_only_record_errors(read, buffer):
    try:
        read(buffer)
    except RecordError:
        return


def sealed_batch(buffer):
    """The CRC made right again, so that damage gets past it."""
    if len(buffer) >= HEADER_BYTES:
        buffer[CRC_POSITION : CRC_POSITION + 4] = compute_crc(buffer, 0, len(buffer)).to_bytes(4, "big")
    return buffer


def sealed_message(buffer):
    """The first message's size and CRC made right again."""
    if len(buffer) >= 12 + MIN_MESSAGE_BYTES:
        buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
        buffer[12:16] = zlib.crc32(buffer[16:]).to_bytes(4, "big")
    return buffer


def sealed_legacy(buffer):
    """The first message's length and CRC, with attributes, made right again."""
    if len(buffer) >= 10:
        buffer[:5] = (len(buffer) - 4).to_bytes(4, "big") + b"\1"
        buffer[6:10] = zlib.crc32(buffer[10:]).to_bytes(4, "big")
    return buffer


@st.composite
def damaged(draw, good):
    """Some flips, then perhaps a cut or an insertion."""
    buffer = bytearray(draw(st.sampled_from(good)))
    for position, value in draw(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=6)):
        buffer[position % len(buffer)] ^= value
    cut = draw(st.integers(0, len(buffer)))
    change = draw(st.sampled_from(["none", "cut", "insert", "remove"]))
    if change == "cut":
        del buffer[cut:]
    elif change == "insert":
        buffer[cut:cut] = draw(st.binary(max_size=20))
    elif change == "remove":
        del buffer[cut : cut + draw(st.integers(1, 20))]
    return buffer


@pytest.mark.parametrize(("read", "good"), READERS, ids=NAMES)
@settings(max_examples=150, deadline=None)
@given(choice=st.data())
def test_damaged_bytes(read, good, choice):
    raises_only_record_errors(read, choice.draw(damaged(good)))


@pytest.mark.parametrize(("read", "good"), READERS, ids=NAMES)
@settings(max_examples=300, deadline=None)
@given(choice=st.data())
def test_damaged_bytes_with_a_good_checksum(read, good, choice):
    buffer = choice.draw(damaged(good))
    seal = {id(MESSAGE_SETS): sealed_message, id(LEGACY): sealed_legacy}.get(id(good), sealed_batch)
    raises_only_record_errors(read, seal(buffer))


@pytest.mark.parametrize("codec", LEGACY_CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=100, deadline=None)
@given(choice=st.data())
def test_damage_inside_a_wrapper(magic, codec, choice):
    inner = encode_message_set(RECORDS, magic=magic)
    block = compress_block(codec, choice.draw(damaged([inner])), magic)
    wrapper = encode_message_set([Record(5, 0, None, block)], magic=magic)
    buffer = bytearray(wrapper)
    buffer[17] = codec
    for read in (READERS[4][0], READERS[5][0]):
        raises_only_record_errors(read, sealed_message(buffer))


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=100, deadline=None)
@given(choice=st.data())
def test_damage_inside_a_batch(codec, choice):
    plain = encode_batch(RECORDS)
    body = compress(codec, choice.draw(damaged([plain[HEADER_BYTES:]])))
    buffer = bytearray(plain[:HEADER_BYTES] + body)
    buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
    buffer[ATTRIBUTES_POSITION + 1] = codec
    for read in (READERS[0][0], READERS[2][0]):
        raises_only_record_errors(read, sealed_batch(buffer))


@pytest.mark.parametrize(("read", "good"), READERS, ids=NAMES)
@settings(max_examples=100, deadline=None)
@given(buffer=st.binary(max_size=300))
def test_random_bytes(read, good, buffer):
    raises_only_record_errors(read, buffer)


@pytest.mark.parametrize(("read", "good"), READERS, ids=NAMES)
def test_good_bytes_are_read(read, good):
    for buffer in good:
        if not (read in (READERS[2][0], READERS[3][0]) and buffer is BATCHES[Codec.ZSTD]):
            read(buffer)
