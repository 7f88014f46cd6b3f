"""Every codec gives back what it was given, within its limit."""

import os
import struct
import zlib
from itertools import zip_longest
from random import Random

import cramjam
import pytest

from millrace.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCodecError
from millrace.records.compression import (
    CHUNK_BYTES,
    GZIP_WINDOW_BITS,
    XERIAL_HEADER,
    Codec,
    codec_of,
    compress,
    decompress,
    decompressed_chunks,
)

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
DATA = {
    "empty": b"",
    "one byte": b"x",
    "zeros over many steps": bytes(100 * CHUNK_BYTES),
    "random over many steps": os.urandom(3 * CHUNK_BYTES),
    "mixed": (os.urandom(100) + bytes(300)) * 2000,
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("codec", Codec)
def test_what_is_compressed_comes_back(codec, data):
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size_bytes", [1, 1000, CHUNK_BYTES, 20 * CHUNK_BYTES])
def test_the_limit_is_exact(codec, size_bytes):
    block = compress(codec, bytes(size_bytes))
    assert len(decompress(codec, block, size_bytes)) == size_bytes
    with pytest.raises(RecordTooLargeError):
        decompress(codec, block, size_bytes - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_other_bytes_are_corrupt(codec):
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"\xff" * 50)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_block_that_is_cut_short_is_corrupt(codec):
    block = compress(codec, DATA["mixed"])
    for length in (1, len(block) // 2, len(block) - 1):
        with pytest.raises(CorruptRecordError):
            decompress(codec, block[:length])


def test_snappy_in_xerials_framing():
    raw = bytes(cramjam.snappy.compress_raw(b"x" * 100))
    block = XERIAL_HEADER + (struct.pack(">i", len(raw)) + raw) * 3
    assert decompress(Codec.SNAPPY, block, 300) == b"x" * 300
    for broken in (block[:-1], XERIAL_HEADER + struct.pack(">i", -1), XERIAL_HEADER + b"\0\0"):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.SNAPPY, broken)
    with pytest.raises(RecordTooLargeError):
        decompress(Codec.SNAPPY, block, 299)


def test_unknown_codecs():
    with pytest.raises(UnsupportedCodecError, match="codec 5"):
        codec_of(5)


@pytest.mark.parametrize("codec", Codec)
def test_blocks_that_are_decompressed_in_turns_are_not_mixed_up(codec):
    blocks = [Random(seed).randbytes(100) * 5000 * seed for seed in range(1, 5)]
    turns = zip_longest(*(decompressed_chunks(codec, compress(codec, block)) for block in blocks), fillvalue=b"")
    parts = [bytes(chunk) for turn in turns for chunk in turn]
    assert [b"".join(parts[place :: len(blocks)]) for place in range(len(blocks))] == blocks


@pytest.mark.parametrize("codec", CODECS)
def test_a_block_after_one_that_failed_is_whole(codec):
    block = compress(codec, DATA["mixed"])
    for broken in (b"\xff" * 50, block[: len(block) // 2] + b"\xff" * 50):
        with pytest.raises(CorruptRecordError):
            list(decompressed_chunks(codec, broken))
        left = decompressed_chunks(codec, compress(codec, DATA["zeros over many steps"]))
        next(left)
        left.close()
        assert b"".join(bytes(chunk) for chunk in decompressed_chunks(codec, block)) == DATA["mixed"]


def test_gzip_is_refused_where_zlib_refuses_it():
    random = Random(11)
    outcomes = set()
    for _ in range(4000):
        block = _flipped(
            random, _gzip(random, random.choice((bytes(5000), b"some words " * 50, random.randbytes(300))))
        )
        expected = _by_zlib(block)
        outcomes.add(expected is None)
        try:
            assert decompress(Codec.GZIP, block) == expected
        except CorruptRecordError:
            assert expected is None
    assert outcomes == {True, False}


def _gzip(random, data):
    compressor = zlib.compressobj(random.randrange(10), wbits=GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _flipped(random, block):
    flipped = bytearray(block)
    for _ in range(random.randrange(3)):
        flipped[random.randrange(random.choice((12, len(block))))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _by_zlib(block):
    decompressor = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
    try:
        data = decompressor.decompress(block)
    except zlib.error:
        return None
    return data if decompressor.eof else None
