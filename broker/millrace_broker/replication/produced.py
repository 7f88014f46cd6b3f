"""What a producer sent, in the form that a log takes: v2 batches, in the topic's codec (spec A5, C3).

| | rule | error |
|---|---|---|
| v0-v2 | a set of messages of format v0 or v1 becomes batches; a tail that is cut short is passed over | RecordError |
| v3 on | exactly one batch of format v2; a tail that is cut short is passed over | InvalidRecordError |
| v3-v6 | no zstd (KIP-110) | UnsupportedCodecError |
| v3 on | base offset 0 (`check_base_offset`) | InvalidRecordError |

`compression.type` of the topic, unless it is `producer`: a batch of another codec is compressed anew, with its level;
producer, sequence and records stay. All of this takes place on the event loop: a producer's batches must reach the log
in the order in which they came, and its next ones do not wait for a worker.
"""

from __future__ import annotations

import struct

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordError,
    RecordTooLargeError,
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
    walk,
)
from millrace.records.compression import Codec
from millrace.records.convert import BATCH_BYTES, up_convert
from millrace.records.recompress import recompressed
from millrace_broker.storage import LogConfig, uncompressed_limit_bytes

FIRST_VERSION_OF_BATCHES = 3
FIRST_VERSION_WITH_ZSTD = 7
PRODUCER_CODEC = "producer"
UNCOMPRESSED = "uncompressed"
LENGTH_POSITION = 8
_LENGTH = struct.Struct(">I")
_BASE_OFFSET_0 = bytes(8)
_PLAIN = struct.Struct(">qI4xb4xh")  # base offset, batch length, magic, attributes


def is_plain_batch(records: Buffer) -> bool:
    """Whether Produce from v7 on takes the records as they are, and no transaction is spoken of.

    The other functions here, and the look for a transaction, have nothing to say about what is plain.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        return False
    base_offset, length, magic, attributes = _PLAIN.unpack_from(records)
    return bool(
        magic == MAGIC_V2
        and length + LOG_OVERHEAD_BYTES == size_bytes
        and not base_offset
        and not attributes & TRANSACTIONAL_FLAG
    )


def batches_of(version: int, records: Buffer, config: LogConfig) -> Buffer:
    """The v2 batches of a partition's records as Produce of this version brings them; empty only before v3."""
    if version >= FIRST_VERSION_OF_BATCHES:
        return _single_batch(version, records)
    if len(records) <= MAGIC_POSITION or records[MAGIC_POSITION] == MAGIC_V2:
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
    """InvalidRecordError for a batch whose producer gave it a place of its own; those made of messages may have one."""
    if version >= FIRST_VERSION_OF_BATCHES and batches[:8] != _BASE_OFFSET_0:
        raise InvalidRecordError("the base offset of a produced batch is 0: its place is the log's to give")


def in_codec_of_topic(batches: Buffer, config: LogConfig) -> Buffer:
    """The batches in the codec that the topic asks for.

    RecordTooLargeError for one that is above `max.message.bytes` as it came; other RecordErrors where it can't be read.
    """
    name = config.compression_type
    codec = Codec.NONE if name == UNCOMPRESSED else Codec[name.upper()]
    limit_bytes = uncompressed_limit_bytes(config)
    view = memoryview(batches)
    out: list[Buffer] = []
    end = 0
    for position, header in walk(view):
        end = position + header.size_bytes
        if header.size_bytes > config.max_message_bytes:
            raise RecordTooLargeError(
                f"a batch of {header.size_bytes} bytes is above max.message.bytes={config.max_message_bytes}"
            )
        batch = view[position:end]
        is_as_asked = header.codec_id == codec
        out.append(batch if is_as_asked else recompressed(batch, header, codec, _level(config, codec), limit_bytes))
    if end != len(view):
        raise CorruptRecordError(f"{len(view) - end} bytes that are no whole batch")
    return b"".join(out)


def _level(config: LogConfig, codec: Codec) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


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
        raise InvalidRecordError(f"Produce v{version} takes one batch for each partition, and there are more")
    return records[:size_bytes]


def _not_a_batch(version: int, records: Buffer) -> RecordError:
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] > MAGIC_V2:
        return CorruptRecordError(f"magic {records[MAGIC_POSITION]} is no message format")
    return InvalidRecordError(f"Produce v{version} takes one batch of format v2 for each partition, and there is none")


def _batch_bytes(records: Buffer, position: int) -> int:
    """What the batch at a position says of its size; all there may be where not even that is told."""
    if len(records) - position < LOG_OVERHEAD_BYTES:
        return 1 << 62
    length: int = _LENGTH.unpack_from(records, position + LENGTH_POSITION)[0]
    return LOG_OVERHEAD_BYTES + length
