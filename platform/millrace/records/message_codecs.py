"""Compressed blocks as the formats before v2 have them; `records.compression` has the codecs themselves.

    id  name    block
     1  gzip    RFC 1952
     2  snappy  written in xerial's framing, in blocks of 32 KiB; read in that framing or raw
     3  lz4     LZ4 frame, independent blocks, no content size; its header checksum (HC) differs by magic:

        04 22 4D 18  FLG  BD  [content size]  HC  blocks …
                     └──── magic 1 ─────────┘          HC = byte 1 of xxHash-32 of the descriptor, as LZ4 says
        └───────────────── magic 0 ─────────┘          HC = the same of all that lies before it (KIP-57)

The first clients that knew lz4 checksummed too many bytes, and their brokers insist on that. Writers took the right
checksum with magic 1; when reading, both are accepted, whatever the magic. There is no
zstd before v2.
"""

from __future__ import annotations

import struct

import cramjam
import lz4.frame
from xxhash import xxh32_intdigest

from millrace.errors import UnsupportedCodecError
from millrace.records.compression import XERIAL_HEADER, Codec, compress, decompress

Buffer = bytes | bytearray | memoryview

XERIAL_BLOCK_BYTES = 32 << 10
LZ4_MAGIC_BYTES = 4
LZ4_FLG_POSITION = 4
LZ4_DESCRIPTOR_BYTES = 2
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_CONTENT_SIZE_BYTES = 8


def compress_block(codec: Codec, data: Buffer, magic: int) -> bytes:
    """Returns one block as clients of that message format read it; raises UnsupportedCodecError for zstd."""
    match codec:
        case Codec.SNAPPY:
            return _xerial(memoryview(data))
        case Codec.LZ4:
            frame = bytes(lz4.frame.compress(bytes(data), block_linked=False, store_size=False))
            return _with_header_checksum(frame, _broken_checksum(frame)) if magic == 0 else frame
        case Codec.ZSTD:
            raise UnsupportedCodecError(f"message format v{magic} has no zstd")
        case _:
            return compress(codec, data)


def decompress_block(codec: Codec, data: Buffer, limit_bytes: int) -> bytes:
    """Returns the bytes of one block, at most `limit_bytes` of them; raises what `decompress` raises."""
    match codec:
        case Codec.LZ4:
            return decompress(codec, _mended(bytes(data)), limit_bytes)
        case Codec.ZSTD:
            raise UnsupportedCodecError("message formats v0 and v1 have no zstd")
        case _:
            return decompress(codec, data, limit_bytes)


def _xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for position in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[position : position + XERIAL_BLOCK_BYTES])))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _mended(frame: bytes) -> bytes:
    """Returns the frame with the checksum that LZ4 asks for if it has the broken one; anything else as it is."""
    position = _checksum_position(frame)
    if position >= len(frame) or frame[position] != _broken_checksum(frame):
        return frame
    return _with_header_checksum(frame, _checksum(frame[LZ4_MAGIC_BYTES:position]))


def _broken_checksum(frame: bytes) -> int:
    return _checksum(frame[: _checksum_position(frame)])


def _checksum(data: bytes) -> int:
    return xxh32_intdigest(data) >> 8 & 0xFF


def _with_header_checksum(frame: bytes, checksum: int) -> bytes:
    position = _checksum_position(frame)
    return frame[:position] + bytes([checksum]) + frame[position + 1 :]


def _checksum_position(frame: bytes) -> int:
    has_size = len(frame) > LZ4_FLG_POSITION and frame[LZ4_FLG_POSITION] & LZ4_CONTENT_SIZE_FLAG
    return LZ4_MAGIC_BYTES + LZ4_DESCRIPTOR_BYTES + (LZ4_CONTENT_SIZE_BYTES if has_size else 0)
