"""Records inside a v2 batch: what clients and tools encode and decode one by one.

    record  := length varint, attributes i8 = 0, timestampDelta varlong, offsetDelta varint,
               keyLength varint (-1: null), key, valueLength varint (-1: null), value,
               headerCount varint, header*
    header  := keyLength varint, key (UTF-8), valueLength varint (-1: null), value

A header's key may be any bytes in a log, for not every broker looks at it. What is no UTF-8 is shown as Kafka's Java
client shows it, with U+FFFD in its place, and a null key as the empty one (`readable_key`).

The broker's hot path never comes here: it stores batches as they are. Bulk decoding to columns is
`records.arrow`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.kernel import native
from millrace.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
    sealed_batch,
    walk,
)
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, codec_of, compress, decompress
from millrace.records.varint import decode_varint, encode_varint

MIN_DELTA, MAX_DELTA = -(2**63), 2**63 - 1

Header = tuple[str, bytes | None]
RawHeader = tuple[bytes | None, bytes | None]


class Record(NamedTuple):
    """One record of a log, decoded."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NewRecord(NamedTuple):
    """One record to be appended; the broker gives it an offset, and the producer the time if it has none."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


class BatchProducer(NamedTuple):
    """The producer id, epoch and first sequence number of a batch (KIP-98); by default those of no such producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = BatchProducer()


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer: BatchProducer = NO_PRODUCER,
    flags: int = 0,
) -> bytes:
    """Returns one v2 batch of at least one record, without leader epoch; `flags` are attribute bits."""
    if not records:
        raise ValueError("a batch holds at least one record")
    header = BatchHeader(
        base_offset,
        attributes=codec | flags,
        last_offset_delta=len(records) - 1,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
    )
    return _encode(header, tuple(enumerate(records)))


def encode_records(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """Returns a batch of these records, perhaps none, with the offsets, producer and attributes of the header.

    Length, record count, CRC and timestamps are computed; but a delete horizon stays, and so does the largest
    timestamp with log append time or without records. Raises InvalidRecordError for records outside of the offsets.
    """
    placed = tuple((record.offset - header.base_offset, record) for record in records)
    for delta, record in placed:
        if not 0 <= delta <= header.last_offset_delta:
            raise InvalidRecordError(
                f"offset {record.offset} is outside of a batch of {header.base_offset} to {header.last_offset}"
            )
    return _encode(header, placed)


def decode_records(buffer: Buffer) -> Iterator[Record]:
    """Yields the records of every whole batch in the buffer, CRCs checked, except for control batches."""
    for position, header in walk(buffer):
        check_crc(buffer, position, header)
        if not header.is_control:
            yield from decode_batch(header, memoryview(buffer)[position : position + header.size_bytes])


def decode_batch(header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    """Returns the records of one batch, of which `batch` is exactly the bytes; raises RecordError for damage."""
    return decode_body(header, decompress_body(header, batch))


def decompress_body(header: BatchHeader, batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Returns a batch's records, decompressed; raises RecordError, RecordTooLargeError above `limit_bytes`."""
    return decompress(codec_of(header.codec_id), batch[HEADER_BYTES:], limit_bytes)


def decode_body(header: BatchHeader, body: bytes) -> Iterator[Record]:
    """Yields the records of a batch from their bytes; raises CorruptRecordError for what can't be read."""
    position, offset_delta = 0, -1
    for _ in range(header.record_count):
        record, position = _decode_record(header, body, position, offset_delta)
        offset_delta = record.offset - header.base_offset
        yield record
    if position != len(body):
        raise CorruptRecordError(f"{len(body) - position} bytes after the last record of batch {header.base_offset}")


def records_of(header: BatchHeader, body: Buffer) -> list[Record]:
    """Returns what `decode_body` yields, as a list; much faster if the record kernel (C code) is compiled."""
    if native is None:
        return list(decode_body(header, bytes(body)))
    return native.read_records(kernel_batch(header, body), Record)


def read_records(batch: memoryview) -> list[Record]:
    """Returns the records of a batch (`batch` is exactly its bytes), CRC unchecked; raises RecordError."""
    header = read_header(batch)
    return records_of(header, decompress_body(header, batch))


def kernel_batch(header: BatchHeader, body: Buffer) -> tuple[Buffer, int, int, int, int, bool]:
    """Returns one batch as the tuple that the record kernel's decoders take.

    These are the records' bytes, base offset, last offset delta, timestamp, record count, and whether the timestamp is
    that of all records.
    """
    same_timestamp = header.is_log_append_time
    timestamp = header.max_timestamp if same_timestamp else header.base_timestamp
    return body, header.base_offset, header.last_offset_delta, timestamp, header.record_count, same_timestamp


def encode_bodies(placed: Iterable[tuple[int, NewRecord | Record]], base_timestamp: int) -> bytes:
    """Returns the encoded records, given as (offset delta, record); uses the record kernel if it is compiled."""
    if native is None:
        return encode_bodies_plainly(placed, base_timestamp)
    return native.write_records(
        [
            (delta, record.timestamp_ms - base_timestamp, record.key, record.value, record.headers)
            for delta, record in placed
        ]
    )


def encode_bodies_plainly(placed: Iterable[tuple[int, NewRecord | Record]], base_timestamp: int) -> bytes:
    """Returns the encoded records, given as (offset delta, record), without using the record kernel."""
    return b"".join(_encode_record(record, delta, base_timestamp) for delta, record in placed)


def _encode(header: BatchHeader, placed: Sequence[tuple[int, NewRecord | Record]]) -> bytes:
    base_timestamp, max_timestamp = _times(header, [record.timestamp_ms for _, record in placed])
    body = compress(codec_of(header.codec_id), encode_bodies(placed, base_timestamp))
    timed = header._replace(base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(placed))
    try:
        return sealed_batch(timed, body)
    except struct.error as error:
        raise InvalidRecordError(
            f"batch at offset {header.base_offset} has no place for its numbers: {error}"
        ) from error


def _times(header: BatchHeader, timestamps: Sequence[int]) -> tuple[int, int]:
    """Returns the (base, largest) timestamp of a batch; raises InvalidRecordError if they differ by over 64 bits."""
    keeps_largest = header.is_log_append_time or not timestamps
    largest = header.max_timestamp if keeps_largest else max(timestamps)
    base = header.delete_horizon_ms
    if base is None:
        base = timestamps[0] if timestamps else largest
    if timestamps and not MIN_DELTA <= min(timestamps) - base <= max(timestamps) - base <= MAX_DELTA:
        raise InvalidRecordError(f"timestamps {min(timestamps)} to {max(timestamps)} do not fit into one batch")
    return base, largest


def _encode_record(record: NewRecord | Record, offset_delta: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            encode_varint(record.timestamp_ms - base_timestamp),
            encode_varint(offset_delta),
            _encode_bytes(record.key),
            _encode_bytes(record.value),
            encode_varint(len(record.headers)),
            *(_encode_bytes(key.encode()) + _encode_bytes(value) for key, value in record.headers),
        )
    )
    return encode_varint(len(body)) + body


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\x01" if value is None else encode_varint(len(value)) + value


def _decode_record(header: BatchHeader, body: bytes, position: int, delta_before: int) -> tuple[Record, int]:
    length, position = decode_varint(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise CorruptRecordError(f"record of {length} bytes at {position} runs over its batch")
    timestamp_delta, position = decode_varint(body, position + 1)
    offset_delta, position = decode_varint(body, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptRecordError(f"offset delta {offset_delta} in a batch of up to {header.last_offset_delta}")
    if offset_delta <= delta_before:
        raise CorruptRecordError(f"offset delta {offset_delta} does not follow {delta_before}")
    key, position = _decode_bytes(body, position)
    value, position = _decode_bytes(body, position)
    raw_headers, position = decode_headers(body, position)
    if position != end:
        raise CorruptRecordError(f"record ends at {position}, its length says {end}")
    headers = tuple((readable_key(key), value) for key, value in raw_headers)
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), end


def _decode_bytes(body: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(body, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > len(body):
        raise CorruptRecordError(f"field of {length} bytes at {position} runs over its record")
    return bytes(body[position : position + length]), position + length


def decode_headers(body: bytes | memoryview, position: int) -> tuple[tuple[RawHeader, ...], int]:
    """Returns a record's headers, whose count is at `position`, and the position after; raises CorruptRecordError."""
    count, position = decode_varint(body, position)
    if count < 0 or count > len(body):
        raise CorruptRecordError(f"header count {count} can't be")
    headers: list[RawHeader] = []
    for _ in range(count):
        key, position = _decode_bytes(body, position)
        value, position = _decode_bytes(body, position)
        headers.append((key, value))
    return tuple(headers), position


def readable_key(key: bytes | None) -> str:
    """Returns a header's key as text; bytes that are no UTF-8 become U+FFFD, and null becomes ""."""
    return "" if key is None else key.decode(errors="replace")
