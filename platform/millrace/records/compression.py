"""The compression codecs, each as a pair of functions on whole blocks.

    id  name    block
     0  none
     1  gzip    RFC 1952
     2  snappy  raw snappy, or xerial's framing:
                82 "SNAPPY" 00, version i32, compatible i32, then (length i32, raw block)*
     3  lz4     LZ4 frame format
     4  zstd    RFC 8878

All decompression is bounded: above `limit_bytes` of output it raises RecordTooLargeError, so a small hostile block
can't take the memory. Bytes that are not a block of the codec raise CorruptRecordError.

Gzip is decompressed by zlib-ng, in two thirds of zlib's time. It refuses what zlib refuses, as other fast libraries
don't: a block that a broker takes must be one that zlib's readers can read.

A broker whose topic asks for its own codec (`compression.type`) compresses a batch again. Only the codec bits, the
length and the CRC change then: producer, sequence, times and records stay as they are.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import cast

import cramjam
import lz4.frame
import zstandard
from zlib_ng import zlib_ng

from millrace.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCodecError
from millrace.records.batch import CODEC_MASK, BatchHeader, sealed_batch

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_LIMIT_BYTES = 512 << 20
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_MAGIC = XERIAL_HEADER[:8]
GZIP_WINDOW_BITS = 31
LZ4_USUAL_LEVEL, LZ4_FAST = 9, 0  # Kafka's default level stands for the fast compressor
ZSTD_USUAL_LEVEL = 3
CHUNK_BYTES = 128 << 10
INPUT_BYTES = 64 << 10  # given at once for small chunks: decompressors copy what they can't take yet
STEP_FACTOR = 8  # of memory taken before it is known how much there is
SNAPPY_GROWTH_MAX = 22  # three bytes stand for 64 at most
KEPT_ZSTD_DECOMPRESSORS, KEPT_ZSTD_BYTES = 8, 2 << 20
GZIP_ERROR = cast("type[Exception]", zlib_ng.error)  # its stub has an instance


class Codec(IntEnum):
    """The compression codecs, with their numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = {int(codec): codec for codec in Codec}  # a third of the cost of the enumeration's own look-up


def codec_of(codec_id: int) -> Codec:
    """Returns the codec with this number; raises UnsupportedCodecError for one that the format does not define."""
    try:
        return _CODECS[codec_id]
    except KeyError:
        raise UnsupportedCodecError(f"compression codec {codec_id} is not defined") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Returns the data as one compressed block, in the format that Apache Kafka's clients write in v2 batches.

    `level` is as in Kafka (KIP-390); None is the codec's default.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(
                zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=GZIP_WINDOW_BITS
            )
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(bytes(data)))
        case Codec.LZ4:
            lz4_level = LZ4_FAST if level in (None, LZ4_USUAL_LEVEL) else level
            return bytes(lz4.frame.compress(bytes(data), compression_level=lz4_level, block_linked=False))
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(ZSTD_USUAL_LEVEL if level is None else level).compress(data)


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Returns a decompressed block; raises CorruptRecordError, or RecordTooLargeError above `limit_bytes`."""
    if codec is Codec.NONE and len(data) <= limit_bytes:
        return bytes(data)
    chunk_bytes = max(CHUNK_BYTES, STEP_FACTOR * len(data))
    chunks = list(decompressed_chunks(codec, data, limit_bytes, chunk_bytes))
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)


def decompressed_chunks(
    codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Buffer]:
    """Yields a decompressed block in chunks of `chunk_bytes` at most; raises CorruptRecordError or RecordTooLargeError.

    Only a piece of snappy is one chunk of any size: it can't grow to more than `SNAPPY_GROWTH_MAX` times its size.
    Chunks of uncompressed data are views of it.
    """
    total = 0
    try:
        for chunk in _CHUNKS_OF[codec](data, chunk_bytes):
            total += len(chunk)
            if total > limit_bytes:
                raise RecordTooLargeError(f"{codec.name.lower()} block holds more than {limit_bytes} bytes")
            yield chunk
    except (
        GZIP_ERROR,
        RuntimeError,
        ValueError,
        EOFError,
        zstandard.ZstdError,
        struct.error,
        cramjam.DecompressionError,
    ) as error:
        raise CorruptRecordError(f"not a {codec.name.lower()} block: {error}") from error


def _slices(data: Buffer, chunk_bytes: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for position in range(0, len(view), chunk_bytes):
        yield view[position : position + chunk_bytes]


def _gunzip(data: Buffer, chunk_bytes: int) -> Iterator[bytes]:
    decompressor = zlib_ng.decompressobj(wbits=GZIP_WINDOW_BITS)
    for piece in _slices(data, max(INPUT_BYTES, chunk_bytes // STEP_FACTOR)):
        chunk = decompressor.decompress(piece, chunk_bytes)
        while chunk:
            yield chunk
            chunk = decompressor.decompress(decompressor.unconsumed_tail, chunk_bytes)
        if decompressor.eof:
            return
    raise CorruptRecordError("gzip block is cut short")


def _unlz4(data: Buffer, chunk_bytes: int) -> Iterator[bytes]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for piece in _slices(data, max(INPUT_BYTES, chunk_bytes // STEP_FACTOR)):
        chunk = decompressor.decompress(piece, chunk_bytes)
        while chunk:
            yield bytes(chunk)
            chunk = b"" if decompressor.eof else decompressor.decompress(b"", chunk_bytes)
        if decompressor.eof:
            return
    raise CorruptRecordError("lz4 frame is cut short")


_idle_decompressors: deque[zstandard.ZstdDecompressor] = deque(maxlen=KEPT_ZSTD_DECOMPRESSORS)


def _unzstd(data: Buffer, chunk_bytes: int) -> Iterator[bytes]:
    try:
        decompressor = _idle_decompressors.pop()  # a new one costs as much as 8 KiB of records
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    total = 0
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while chunk := reader.read(chunk_bytes):
            total += len(chunk)
            yield chunk
    if total <= KEPT_ZSTD_BYTES:  # else it would keep as much memory
        _idle_decompressors.append(decompressor)


def _unsnap(data: Buffer, _: int) -> Iterator[memoryview]:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _unsnap_raw(view)
        return
    position = len(XERIAL_HEADER)
    while position < len(view):
        (length,) = struct.unpack_from(">i", view, position)
        block = view[position + 4 : position + 4 + max(length, 0)]
        if length < 0 or len(block) < length:
            raise CorruptRecordError(f"xerial block at {position} is cut short")
        yield _unsnap_raw(block)
        position += 4 + length


def _unsnap_raw(block: memoryview) -> memoryview:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > SNAPPY_GROWTH_MAX * len(block):
        raise CorruptRecordError(f"snappy block of {len(block)} bytes claims to hold {length}")
    return memoryview(cramjam.snappy.decompress_raw(block))


_CHUNKS_OF: Mapping[Codec, Callable[[Buffer, int], Iterator[Buffer]]] = {
    Codec.NONE: _slices,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}


def recompressed(header: BatchHeader, body: bytes, codec: Codec, level: int | None = None) -> bytes:
    """Returns a batch of decompressed records (`body`), compressed with `codec`, under this header."""
    attributes = header.attributes & ~CODEC_MASK | codec
    return sealed_batch(header._replace(attributes=attributes), compress(codec, body, level))
