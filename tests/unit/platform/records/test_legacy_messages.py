"""Messages of Kafka 0.7: their bytes, wrappers, and what is refused."""

import struct
import zlib

import pytest

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordError,
    RecordTooLargeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from millrace.records.compression import Codec
from millrace.records.legacy import payloads_of, read_body, walk_bodies
from millrace_support.legacy_messages import encode_messages

PAYLOADS = [b"", b"one", bytes(1000)]
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY]


def payloads(buffer, **limit):
    return [payload for message in walk_bodies(buffer) for payload in payloads_of(message, **limit)]


def test_the_bytes_without_attributes():
    expected = struct.pack(">ibI", 8, 0, zlib.crc32(b"one")) + b"one"
    assert encode_messages([b"one"], magic=0) == expected
    assert payloads(expected) == [b"one"]


def test_the_bytes_with_attributes():
    expected = struct.pack(">ibbI", 9, 1, 0, zlib.crc32(b"one")) + b"one"
    assert encode_messages([b"one"]) == expected
    assert payloads(expected) == [b"one"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_payloads_come_back(magic, codec):
    assert payloads(encode_messages(PAYLOADS, magic=magic, codec=codec) * 2) == PAYLOADS * 2


def test_a_wrapper_is_one_message():
    (wrapper,) = walk_bodies(encode_messages(PAYLOADS, codec=Codec.GZIP))
    assert (wrapper.magic, wrapper.codec) == (1, Codec.GZIP)


@pytest.mark.parametrize("codec", CODECS)
def test_every_bit_flipped_in_length_crc_and_payload_is_noticed(codec):
    encoded = encode_messages([b"payload"], codec=codec)
    for position in [*range(4), *range(6, len(encoded))]:  # magic and attributes are outside of the CRC
        for bit in range(8):
            broken = bytearray(encoded)
            broken[position] ^= 1 << bit
            with pytest.raises(RecordError):
                payloads(broken)


def test_cut_short():
    encoded = encode_messages([b"one", b"two"])
    for length in range(1, len(encoded)):
        if length != len(encoded) // 2:
            with pytest.raises(CorruptRecordError):
                payloads(encoded[:length])


def test_a_wrapper_in_a_wrapper_is_refused():
    (inner,) = walk_bodies(encode_messages([encode_messages(PAYLOADS, codec=Codec.GZIP)]))
    block = zlib.compress(inner.payload, wbits=31)
    nested = struct.pack(">ibbI", 6 + len(block), 1, Codec.GZIP, zlib.crc32(block)) + block
    with pytest.raises(InvalidRecordError, match="another wrapper"):
        payloads(nested)


def test_unknown_forms():
    with pytest.raises(UnsupportedMagicError, match="magic 2"):
        read_body(b"\2" + bytes(20))
    with pytest.raises(UnsupportedMagicError, match="magic None"):
        read_body(b"")
    with pytest.raises(UnsupportedCodecError, match="codec 3"):
        read_body(b"\1\3" + bytes(20))
    with pytest.raises(UnsupportedCodecError, match="codec 4"):
        encode_messages([b""], codec=Codec.ZSTD)
    with pytest.raises(CorruptRecordError, match="below a header's"):
        read_body(b"\1\0\0\0\0")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_is_bounded(codec):
    with pytest.raises(RecordTooLargeError):
        payloads(encode_messages([bytes(100_000)], codec=codec), limit_bytes=99_000)
