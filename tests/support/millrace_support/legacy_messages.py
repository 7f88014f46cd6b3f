"""Writes messages of Kafka 0.7, which the product only reads (`millrace.records.legacy`)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from millrace.records.batch import Buffer
from millrace.records.compression import Codec
from millrace.records.legacy import CRC, LENGTH, MAGIC_WITH_ATTRIBUTES, MAGIC_WITHOUT_ATTRIBUTES, legacy_codec
from millrace.records.message_set import compress_block


def encode_messages(
    payloads: Iterable[Buffer], *, magic: int = MAGIC_WITH_ATTRIBUTES, codec: Codec = Codec.NONE
) -> bytes:
    """Returns a message for each payload, or one wrapper with all of them.

    Raises UnsupportedCodecError for newer codecs.
    """
    messages = b"".join(_encode(payload, magic, Codec.NONE) for payload in payloads)
    if codec is Codec.NONE:
        return messages
    block = compress_block(legacy_codec(codec), messages, MAGIC_WITH_ATTRIBUTES)
    return _encode(block, MAGIC_WITH_ATTRIBUTES, codec)


def _encode(payload: Buffer, magic: int, codec: Codec) -> bytes:
    start = bytes([magic]) if magic == MAGIC_WITHOUT_ATTRIBUTES else bytes([magic, codec])
    body = start + CRC.pack(zlib.crc32(payload)) + payload
    return LENGTH.pack(len(body)) + body
