"""Converts message sets to batches and back, for clients older than the log's format (docs/formats/message-set.md).

| | up: v0, v1 → v2 | down: v2 → v1, v0 |
|---|---|---|
| offsets | kept with their gaps, or given by the log | kept with their gaps |
| codec | a wrapper becomes a batch of its codec | a batch becomes a wrapper; UnsupportedCodecError for zstd |
| without a codec | messages that follow each other share a batch of at most `batch_bytes` | a message for each record |
| timestamps | v0: none (-1) | dropped in v0 |
| log append time | batches of it, a time in each | v1: kept |
| headers, producer, sequences, leader epoch | none | dropped |
| control batches | - | dropped |

Kafka answers a fetch of zstd batches by an old client with the same error. A tail that is cut short is passed over;
all else that is not as it should be raises RecordError.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from millrace.errors import InvalidRecordError, UnsupportedCodecError
from millrace.records.batch import NO_TIMESTAMP, TIMESTAMP_TYPE_FLAG, BatchHeader, Buffer, check_crc, walk
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, codec_of
from millrace.records.message_set import encode_message_set, open_messages
from millrace.records.record import Record, decode_body, decompress_body, encode_records

BATCH_BYTES = 512 << 10
MAX_OFFSET_DELTA = 2**31 - 1


def up_convert(
    message_set: Buffer,
    *,
    first_offset: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> bytes:
    """Returns the v2 batches of a v0 or v1 message set.

    Args:
        message_set: any number of whole entries.
        first_offset: the first record's new offset, as a broker numbers produced records; None keeps their offsets.
        batch_bytes: the limit up to which messages without a codec are joined to a batch.
        limit_bytes: the limit of all that wrappers hold, decompressed; above it RecordTooLargeError is raised.
    """
    batches: list[bytes] = []
    next_offset = first_offset
    for group in _groups(message_set, batch_bytes, limit_bytes):
        records = group.records
        if next_offset is not None:
            records = [record._replace(offset=next_offset + index) for index, record in enumerate(records)]
            next_offset += len(records)
        batches.append(_encode_group(group, records))
    return b"".join(batches)


def down_convert(
    batches: Buffer,
    magic: int,
    *,
    from_offset: int = 0,
    max_bytes: int = sys.maxsize,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> bytes:
    """Returns the message set, of magic 0 or 1, of v2 batches; CRCs are checked.

    Args:
        batches: any number of whole batches.
        magic: the format to write.
        from_offset: records below it are left out.
        max_bytes: batches that would exceed it are left out, except the first one.
        limit_bytes: the limit of one batch's records, decompressed; above it RecordTooLargeError is raised.
    """
    view = memoryview(batches)
    entries: list[bytes] = []
    for position, header in walk(view):
        if header.is_control or header.last_offset < from_offset:
            continue
        entry = _down_converted(header, view[position : position + header.size_bytes], magic, from_offset, limit_bytes)
        max_bytes -= len(entry)
        if max_bytes < 0 and entries:
            break
        if entry:
            entries.append(entry)
    return b"".join(entries)


def _down_converted(header: BatchHeader, batch: memoryview, magic: int, from_offset: int, limit_bytes: int) -> bytes:
    check_crc(batch, 0, header)
    codec = codec_of(header.codec_id)
    if codec is Codec.ZSTD:
        raise UnsupportedCodecError(f"batch at offset {header.base_offset} is zstd, which v{magic} does not have")
    body = decompress_body(header, batch, limit_bytes)
    records = (one for one in decode_body(header, body) if one.offset >= from_offset)
    first = next(records, None)
    if first is None:
        return b""
    return encode_message_set(
        chain((first,), records), magic=magic, codec=codec, log_append_time=header.is_log_append_time
    )


@dataclass(slots=True)
class _Group:
    """Consecutive messages' records that become one v2 batch."""

    codec: Codec
    is_log_append_time: bool
    records: list[Record]
    size_bytes: int

    def takes(self, other: _Group, batch_bytes: int) -> bool:
        """Returns whether the records of `other` may follow this group's in the same batch."""
        first, last = self.records[0], other.records[-1]
        return (
            self.codec is other.codec is Codec.NONE
            and self.is_log_append_time == other.is_log_append_time
            and (not self.is_log_append_time or first.timestamp_ms == last.timestamp_ms)
            and self.size_bytes + other.size_bytes <= batch_bytes
            and last.offset - first.offset <= MAX_OFFSET_DELTA
        )


def _groups(message_set: Buffer, batch_bytes: int, limit_bytes: int) -> Iterator[_Group]:
    open_group: _Group | None = None
    for message, records in open_messages(message_set, limit_bytes):
        group = _Group(message.codec, message.is_log_append_time, records, message.size_bytes)
        if open_group is not None and open_group.takes(group, batch_bytes):
            open_group.records += group.records
            open_group.size_bytes += group.size_bytes
            continue
        if open_group is not None:
            yield open_group
        open_group = group
    if open_group is not None:
        yield open_group


def _encode_group(group: _Group, records: list[Record]) -> bytes:
    if any(later.offset <= earlier.offset for earlier, later in pairwise(records)):
        raise InvalidRecordError(f"offsets from {records[0].offset} on do not increase")
    first, last = records[0], records[-1]
    flags = TIMESTAMP_TYPE_FLAG if group.is_log_append_time else 0
    max_timestamp = last.timestamp_ms if group.is_log_append_time else NO_TIMESTAMP
    header = BatchHeader(first.offset, last_offset_delta=last.offset - first.offset, attributes=group.codec | flags)
    return encode_records(header._replace(max_timestamp=max_timestamp), records)
