"""The compression codecs, each as a pair of functions on whole blocks.

    id  name    block
     0  none
     1  gzip    RFC 1952
     2  snappy  raw snappy, or xerial's framing:
                82 "SNAPPY" 00, version i32, compatible i32, then (length i32, raw block)*
     3  lz4     LZ4 frame format
     4  zstd    RFC 8878

Every `decompress` is bounded: above `limit_bytes` of output it raises RecordTooLargeError, so a small
hostile block can't take the memory. Bytes that are not a block of the codec raise CorruptRecordError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam
import lz4.frame
import zstandard

from millrace.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCodecError

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_LIMIT_BYTES = 512 << 20
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_MAGIC = XERIAL_HEADER[:8]
GZIP_WINDOW_BITS = 31
LZ4_USUAL_LEVEL, LZ4_FAST = 9, 0  # Kafka's default level stands for the fast compressor
ZSTD_USUAL_LEVEL = 3
STEP_BYTES_MIN = 64 << 10
STEP_FACTOR = 8


class Codec(IntEnum):
    """The codec bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = {int(codec): codec for codec in Codec}  # a third of the cost of the enumeration's own look-up


def codec_of(codec_id: int) -> Codec:
    """Returns the codec of an id; UnsupportedCodecError for one that the format does not define."""
    try:
        return _CODECS[codec_id]
    except KeyError:
        raise UnsupportedCodecError(f"compression codec {codec_id} is not defined") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Returns one block in the form that stock clients write.

    `level` is Kafka's (KIP-390); None is the codec's usual one.
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
    """Returns the bytes of one block, at most `limit_bytes` of them."""
    try:
        out = _decompress(codec, data, limit_bytes)
    except (
        zlib.error,
        RuntimeError,
        ValueError,
        EOFError,
        zstandard.ZstdError,
        struct.error,
        cramjam.DecompressionError,
    ) as error:
        raise CorruptRecordError(f"not a {codec.name.lower()} block: {error}") from error
    if len(out) > limit_bytes:
        raise RecordTooLargeError(f"{codec.name.lower()} block holds more than {limit_bytes} bytes")
    return out


def _decompress(codec: Codec, data: Buffer, limit_bytes: int) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, limit_bytes)
        case Codec.SNAPPY:
            return _unsnap(bytes(data), limit_bytes)
        case Codec.LZ4:
            return _unlz4(bytes(data), limit_bytes)
        case Codec.ZSTD:
            return _unzstd(data, limit_bytes)


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
    out = decompressor.decompress(data, limit_bytes + 1)
    if not decompressor.eof and len(out) <= limit_bytes:
        raise CorruptRecordError("gzip block is cut short")
    return out


def _unlz4(data: bytes, limit_bytes: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()

    def read(size: int) -> bytes:
        return b"" if decompressor.eof else bytes(decompressor.decompress(b"", size))

    first = bytes(decompressor.decompress(data, min(_step_bytes(data), limit_bytes + 1)))
    out = _joined(first, read, _step_bytes(data), limit_bytes)
    if not decompressor.eof and len(out) <= limit_bytes:
        raise CorruptRecordError("lz4 frame is cut short")
    return out


def _unzstd(data: Buffer, limit_bytes: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        return _joined(b"", reader.read, _step_bytes(data), limit_bytes)


def _step_bytes(data: Buffer) -> int:
    """Returns how much to decompress at once: memory is taken before it is known how much there is."""
    return max(STEP_BYTES_MIN, STEP_FACTOR * len(data))


def _joined(first: bytes, read: Callable[[int], bytes], step_bytes: int, limit_bytes: int) -> bytes:
    """Returns all that can be read, in steps, up to one byte above the limit."""
    parts, size_bytes = [first], len(first)
    while size_bytes <= limit_bytes and (part := read(min(step_bytes, limit_bytes + 1 - size_bytes))):
        parts.append(part)
        size_bytes += len(part)
    return b"".join(parts)


def _unsnap(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _unsnap_raw(data, limit_bytes)
    parts: list[bytes] = []
    position, total = len(XERIAL_HEADER), 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        block = data[position + 4 : position + 4 + length]
        if length < 0 or len(block) < length:
            raise CorruptRecordError(f"xerial block at {position} is cut short")
        parts.append(_unsnap_raw(block, limit_bytes - total))
        total += len(parts[-1])
        position += 4 + length
    return b"".join(parts)


def _unsnap_raw(block: bytes, limit_bytes: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > limit_bytes:
        raise RecordTooLargeError(f"snappy block holds {length} bytes, above {limit_bytes}")
    return bytes(cramjam.snappy.decompress_raw(block))
