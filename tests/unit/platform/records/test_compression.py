"""Every codec gives back what it was given, within its limit."""

import os
import struct

import cramjam
import pytest

from millrace.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCodecError
from millrace.records.compression import CHUNK_BYTES, XERIAL_HEADER, Codec, codec_of, compress, decompress

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
