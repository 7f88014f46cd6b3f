"""Message sets v0 and v1: their bytes, wrappers, and what is refused."""

import struct
import zlib

import lz4.frame
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
from millrace.records.message_set import (
    compress_block,
    decode_message_set,
    decompress_block,
    encode_message_set,
    walk_messages,
)
from millrace.records.record import NewRecord, Record, encode_batch

LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
WRAPPER_CODECS = LEGACY_CODECS[1:]


def records(magic, offsets=(5, 6, 9)):
    return [Record(offset, 1000 + offset if magic else -1, b"k%d" % offset, b"v" * 50) for offset in offsets]


def message(magic, attributes, value, timestamp=7, offset=0):
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    covered += struct.pack(">i", -1) + (
        struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    )
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def test_the_bytes_of_v0():
    body = bytes.fromhex("00 00 00000001 6b 00000002 7676")
    expected = struct.pack(">qiI", 3, 4 + len(body), zlib.crc32(body)) + body
    assert encode_message_set([Record(3, 99, b"k", b"vv")], magic=0) == expected
    assert list(decode_message_set(expected)) == [Record(3, -1, b"k", b"vv")]


def test_the_bytes_of_v1():
    body = bytes.fromhex("01 08 0000000000000063 ffffffff ffffffff")
    expected = struct.pack(">qiI", 3, 4 + len(body), zlib.crc32(body)) + body
    assert encode_message_set([Record(3, 99, None, None)], magic=1, log_append_time=True) == expected
    assert list(decode_message_set(expected)) == [Record(3, 99, None, None)]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_come_back_with_their_gaps(magic, codec):
    assert list(decode_message_set(encode_message_set(records(magic), magic=magic, codec=codec))) == records(magic)


@pytest.mark.parametrize(("magic", "inner_offsets"), [(0, [5, 6, 9]), (1, [0, 1, 4])])
def test_offsets_inside_a_wrapper(magic, inner_offsets):
    ((_, wrapper),) = walk_messages(encode_message_set(records(magic), magic=magic, codec=Codec.GZIP))
    inner = zlib.decompress(wrapper.value, 31)
    assert wrapper.offset == 9
    assert wrapper.timestamp_ms == (1009 if magic else -1)
    assert [message.offset for _, message in walk_messages(inner)] == inner_offsets


def test_a_broker_moves_a_v1_wrapper_without_opening_it():
    moved = bytearray(encode_message_set(records(1), magic=1, codec=Codec.GZIP))
    moved[:8] = struct.pack(">q", 1009)
    assert [record.offset for record in decode_message_set(moved)] == [1005, 1006, 1009]


def test_a_producers_v1_wrapper_knows_no_offset():
    sent = bytearray(encode_message_set(records(1, offsets=(0, 1, 2)), magic=1, codec=Codec.GZIP))
    sent[:8] = bytes(8)
    assert [record.offset for record in decode_message_set(sent)] == [0, 1, 2]


def test_a_wrapper_of_log_append_time_gives_its_time_to_all():
    encoded = encode_message_set(records(1), magic=1, codec=Codec.SNAPPY, log_append_time=True)
    assert [record.timestamp_ms for record in decode_message_set(encoded)] == [1009] * 3


def test_headers_are_left_out():
    encoded = encode_message_set([Record(0, 1, None, b"v", (("h", b"x"),))], magic=1)
    assert list(decode_message_set(encoded)) == [Record(0, 1, None, b"v")]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_tail_that_is_cut_short_ends_the_walk(magic):
    encoded = encode_message_set(records(magic), magic=magic)
    for length in range(len(encoded)):
        found = list(decode_message_set(encoded[:length]))
        assert found == records(magic)[: len(found)]
    assert len(found) == 2


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_bit_flipped_behind_the_size_is_noticed(magic, codec):
    encoded = encode_message_set(records(magic), magic=magic, codec=codec)
    size = struct.unpack_from(">i", encoded, 8)[0]
    for position in range(12, 12 + size):
        for bit in range(8):
            broken = bytearray(encoded)
            broken[position] ^= 1 << bit
            with pytest.raises(RecordError):
                list(decode_message_set(broken))


def refused(data, error, words):
    with pytest.raises(error, match=words):
        list(decode_message_set(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_in_a_wrapper_is_refused(magic):
    inner = encode_message_set(records(magic), magic=magic, codec=Codec.GZIP)
    refused(message(magic, Codec.GZIP, compress_block(Codec.GZIP, inner, magic)), InvalidRecordError, "another wrapper")


def test_a_wrapper_holds_messages_of_its_own_magic():
    block = compress_block(Codec.GZIP, encode_message_set(records(0), magic=0), 1)
    refused(message(1, Codec.GZIP, block), InvalidRecordError, "of magic 1 holds a message of magic 0")


def test_offsets_in_a_wrapper_do_not_pass_the_last_one():
    block = compress_block(Codec.GZIP, message(1, 0, b"", offset=7) + message(1, 0, b"", offset=2), 1)
    refused(message(1, Codec.GZIP, block), InvalidRecordError, "holds offset 7, and 2 as the last one")


@pytest.mark.parametrize("inner", [b"", b"\0" * 5, encode_message_set(records(1), magic=1)[:-1]])
def test_a_wrapper_is_whole(inner):
    refused(message(1, Codec.GZIP, compress_block(Codec.GZIP, inner, 1)), CorruptRecordError, "bytes that are none")


def test_a_wrapper_has_a_value():
    refused(message(1, Codec.GZIP, None), CorruptRecordError, "has no value")


def test_unknown_forms():
    refused(message(1, Codec.ZSTD, b""), UnsupportedCodecError, "zstd")
    refused(message(1, 7, b""), UnsupportedCodecError, "codec 7")
    refused(encode_batch([NewRecord(b"x")]), UnsupportedMagicError, "magic 2")
    refused(bytes(12), CorruptRecordError, "message of 0 bytes at position 0")
    with pytest.raises(UnsupportedCodecError, match="v1 has no zstd"):
        encode_message_set(records(1), magic=1, codec=Codec.ZSTD)
    with pytest.raises(InvalidRecordError, match="no place"):
        encode_message_set([Record(2**63, 0, None, None)], magic=0)
    with pytest.raises(ValueError, match="at least one"):
        encode_message_set([], magic=1)


@pytest.mark.parametrize("codec", WRAPPER_CODECS)
def test_decompression_is_bounded_over_all_wrappers(codec):
    wrapper = encode_message_set([Record(0, 0, None, bytes(100_000))], magic=1, codec=codec)
    assert len(list(decode_message_set(wrapper * 3, limit_bytes=301_000))) == 3
    with pytest.raises(RecordTooLargeError):
        list(decode_message_set(wrapper * 3, limit_bytes=250_000))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_is_read_with_either_header_checksum(magic, store_size):
    frame = bytearray(lz4.frame.compress(b"lz4" * 100, block_linked=False, store_size=store_size))
    assert decompress_block(Codec.LZ4, frame, 1000) == b"lz4" * 100
    if not store_size:
        broken = compress_block(Codec.LZ4, b"lz4" * 100, 0)
        assert broken[:6] + broken[7:] == frame[:6] + frame[7:]
        assert broken[6] != frame[6]
        assert decompress_block(Codec.LZ4, broken, 1000) == b"lz4" * 100
    frame[14 if store_size else 6] ^= 0x55
    with pytest.raises(CorruptRecordError):
        decompress_block(Codec.LZ4, frame, 1000)


def test_snappy_has_xerials_framing_in_blocks():
    data = bytes(range(256)) * 300
    block = compress_block(Codec.SNAPPY, data, 1)
    assert block.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert decompress_block(Codec.SNAPPY, block, len(data)) == data
