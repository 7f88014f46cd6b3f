"""Messages of Kafka 0.7, read to move old logs into topics (docs/formats/legacy-0.7.md).

    message  := length i32, body                                     length: bytes of the body
    body     := magic i8 = 0, crc u32, payload
              | magic i8 = 1, attributes i8, crc u32, payload        attributes bits 0-1: 0 none, 1 gzip, 2 snappy

The CRC-32 is that of the payload alone: magic and attributes are outside of it. There are no keys, no timestamps and
no offsets: a message's address is the position of its first byte in the log of its partition. The payload of a message
with a codec is compressed messages, each whole with its length, none of them with a codec; all have its address.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError, UnsupportedMagicError
from millrace.records.batch import Buffer
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, codec_of
from millrace.records.message_set import decompress_block

MAGIC_WITHOUT_ATTRIBUTES = 0
MAGIC_WITH_ATTRIBUTES = 1
CODEC_MASK = 0x03

LENGTH = struct.Struct(">i")
CRC = struct.Struct(">I")
MIN_BODY_BYTES = 1 + CRC.size


class LegacyMessage(NamedTuple):
    """A message of Kafka 0.7: an application's payload or, with a codec, a wrapper around compressed messages."""

    magic: int
    codec: Codec
    payload: bytes


def read_body(body: Buffer) -> LegacyMessage:
    """Returns the message in `body` (exactly its bytes, without the length before them); checks its CRC.

    Raises CorruptRecordError, UnsupportedMagicError or UnsupportedCodecError.
    """
    view = memoryview(body)
    codec, at = Codec.NONE, 1
    magic = view[0] if view else None
    if magic == MAGIC_WITH_ATTRIBUTES and len(view) > 1:
        codec, at = legacy_codec(view[1] & CODEC_MASK), 2
    elif magic != MAGIC_WITHOUT_ATTRIBUTES:
        raise UnsupportedMagicError(f"magic {magic} is not that of a 0.7 message")
    if len(view) < at + CRC.size:
        raise CorruptRecordError(f"message of {len(view)} bytes is below a header's")
    (crc,) = CRC.unpack_from(view, at)
    payload = view[at + CRC.size :]
    actual = zlib.crc32(payload)
    if actual != crc:
        raise CorruptRecordError(f"CRC-32 is {actual:#010x}, the message says {crc:#010x}")
    return LegacyMessage(magic, codec, bytes(payload))


def payloads_of(message: LegacyMessage, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Iterator[bytes]:
    """Yields the payload of a message, or the payloads in a wrapper.

    Raises RecordError for damage, RecordTooLargeError for a wrapper that holds more than `limit_bytes`.
    """
    if message.codec is Codec.NONE:
        yield message.payload
        return
    for inner in walk_bodies(decompress_block(message.codec, message.payload, limit_bytes)):
        if inner.codec is not Codec.NONE:
            raise InvalidRecordError("a wrapper holds another wrapper")
        yield inner.payload


def walk_bodies(buffer: Buffer) -> Iterator[LegacyMessage]:
    """Yields every message of a buffer, which must end where the last one does; raises RecordError for damage."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        begin = position + LENGTH.size
        if begin > len(view):
            raise CorruptRecordError(f"{len(view) - position} bytes at position {position} are too few for a message")
        (length,) = LENGTH.unpack_from(view, position)
        if not MIN_BODY_BYTES <= length <= len(view) - begin:
            raise CorruptRecordError(f"message of {length} bytes at position {position} can't be")
        yield read_body(view[begin : begin + length])
        position = begin + length


def legacy_codec(codec_id: int) -> Codec:
    """Returns the codec with an id; raises UnsupportedCodecError for one that Kafka 0.7 does not have."""
    if codec_id > Codec.SNAPPY:
        raise UnsupportedCodecError(f"compression codec {codec_id} is not one of 0.7")
    return codec_of(codec_id)
