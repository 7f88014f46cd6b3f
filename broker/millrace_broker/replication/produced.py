"""Converts what a producer sent to the form that a log takes: v2 batches.

| Produce | rule | error |
|---|---|---|
| v0-v2 | a message set of format v0 or v1 becomes batches; a tail that is cut short is ignored | RecordError |
| v3 on | exactly one batch of format v2; a tail that is cut short is ignored | InvalidRecordError |
| v3-v6 | no zstd (KIP-110) | UnsupportedCodecError |
| v3 on | base offset 0 (`check_base_offset`) | InvalidRecordError |

What becomes of the batches then, before they are appended, is `storage.batches.preparation`. The formats are in
docs/formats/message-set.md and docs/formats/segment.md.
"""

from __future__ import annotations

import struct

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    Buffer,
)
from millrace.records.compression import Codec
from millrace.records.convert import BATCH_BYTES, up_convert
from millrace_broker.storage import LogConfig, codec_of_topic, uncompressed_limit_bytes

FIRST_VERSION_OF_BATCHES = 3
FIRST_VERSION_WITH_ZSTD = 7
IN_PLACE_BYTES = 4 << 20  # half a million records at most
LENGTH_POSITION = 8
_LENGTH = struct.Struct(">I")
_BASE_OFFSET_0 = bytes(8)
_PLAIN = struct.Struct(">qI4xb4xh")  # base offset, batch length, magic, attributes


def is_plain_batch(records: Buffer) -> bool:
    """Returns whether records sent by Produce v7 or later are one small, uncompressed batch outside of transactions.

    Such records need none of the other functions here, no check of a transaction, and no work on another thread.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        return False
    base_offset, length, magic, attributes = _PLAIN.unpack_from(records)
    return bool(
        magic == MAGIC_V2
        and length + LOG_OVERHEAD_BYTES == size_bytes
        and not base_offset
        and not attributes & (TRANSACTIONAL_FLAG | CODEC_MASK)
        and size_bytes <= IN_PLACE_BYTES
    )


def is_checked_in_place(records: Buffer, config: LogConfig) -> bool:
    """Returns whether a batch is small and stays uncompressed, so that the log may check it as it appends it."""
    return (
        len(records) <= IN_PLACE_BYTES
        and len(records) >= HEADER_BYTES
        and not records[ATTRIBUTES_POSITION + 1] & CODEC_MASK
        and codec_of_topic(config) is None
    )


def is_message_set(version: int, records: Buffer) -> bool:
    """Returns whether the records are messages of format v0 or v1, which have to be converted."""
    return version < FIRST_VERSION_OF_BATCHES and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC_V2


def batches_of(version: int, records: Buffer, config: LogConfig) -> Buffer:
    """Returns a partition's records in Produce of this version, converted to v2 batches; empty only before v3."""
    if version >= FIRST_VERSION_OF_BATCHES:
        return _single_batch(version, records)
    if not is_message_set(version, records):
        return records
    try:
        return up_convert(
            records,
            first_offset=0,
            batch_bytes=min(BATCH_BYTES, config.max_message_bytes),
            limit_bytes=uncompressed_limit_bytes(config),
        )
    except UnsupportedMagicError as error:
        raise CorruptRecordError(f"Produce v{version}: {error}") from error


def check_base_offset(version: int, batches: Buffer) -> None:
    """Raises InvalidRecordError for a batch with a base offset other than 0, from Produce v3 on."""
    if version >= FIRST_VERSION_OF_BATCHES and batches[:8] != _BASE_OFFSET_0:
        raise InvalidRecordError("the base offset of a produced batch must be 0: the log assigns the offsets")


def _single_batch(version: int, records: Buffer) -> Buffer:
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != MAGIC_V2:
        raise _not_a_batch(version, records)
    size_bytes = _batch_bytes(records, 0)
    if version < FIRST_VERSION_WITH_ZSTD and records[ATTRIBUTES_POSITION + 1] & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCodecError(f"Produce v{version} does not take zstd; v{FIRST_VERSION_WITH_ZSTD} is the first")
    if size_bytes == len(records):
        return records
    if size_bytes > len(records):
        raise _not_a_batch(version, records)
    if size_bytes + _batch_bytes(records, size_bytes) <= len(records):
        raise InvalidRecordError(f"Produce v{version} takes one batch for each partition, and there are several")
    return records[:size_bytes]


def _not_a_batch(version: int, records: Buffer) -> RecordError:
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] > MAGIC_V2:
        return CorruptRecordError(f"magic {records[MAGIC_POSITION]} is no message format")
    return InvalidRecordError(f"Produce v{version} takes one batch of format v2 for each partition, and there is none")


def _batch_bytes(records: Buffer, position: int) -> int:
    """Returns the size that the batch at `position` says it has; 1 << 62 where less than the length field is left."""
    if len(records) - position < LOG_OVERHEAD_BYTES:
        return 1 << 62
    length: int = _LENGTH.unpack_from(records, position + LENGTH_POSITION)[0]
    return LOG_OVERHEAD_BYTES + length
