"""Records inside a v2 batch: what clients and tools encode and decode one by one.

    record  := length varint, attributes i8 = 0, timestampDelta varlong, offsetDelta varint,
               keyLength varint (-1: null), key, valueLength varint (-1: null), value,
               headerCount varint, header*
    header  := keyLength varint, key (UTF-8), valueLength varint (-1: null), value

The broker's hot path never comes here: it stores batches as they are. Bulk decoding to columns is
`records.arrow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    compute_crc,
    walk,
)
from millrace.records.compression import Codec, codec_of, compress, decompress
from millrace.records.varint import decode_varint, encode_varint

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as an application sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NewRecord(NamedTuple):
    """One record on its way into a log; the broker gives the offset, a producer the time if it has none."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


class BatchProducer(NamedTuple):
    """Who sends a batch, and as which of its batches (KIP-98); the default is nobody in particular."""

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
    """One v2 batch of at least one record, without leader epoch; `flags` are attribute bits beside the codec."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    body = compress(
        codec, b"".join(_encode_record(record, delta, base_timestamp) for delta, record in enumerate(records))
    )
    out = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(
        out, 0,
        base_offset, len(out) - LOG_OVERHEAD_BYTES, NO_LEADER_EPOCH, MAGIC_V2, 0, codec | flags,
        len(records) - 1, base_timestamp, max(record.timestamp_ms for record in records),
        producer.producer_id, producer.epoch, producer.base_sequence, len(records),
    )  # fmt: skip
    out[HEADER_BYTES:] = body
    out[CRC_POSITION : CRC_POSITION + 4] = compute_crc(out, 0, len(out)).to_bytes(4, "big")
    return bytes(out)


def decode_records(buffer: Buffer) -> Iterator[Record]:
    """Records of every whole batch in the buffer, CRCs checked; control batches are skipped (spec A6)."""
    for position, header in walk(buffer):
        check_crc(buffer, position, header)
        if not header.is_control:
            yield from decode_batch(header, memoryview(buffer)[position : position + header.size_bytes])


def decode_batch(header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    """Records of one batch, of which `batch` is exactly the bytes. Raises RecordError for what can't be read."""
    body = decompress(codec_of(header.codec_id), batch[HEADER_BYTES:])
    position = 0
    for _ in range(header.record_count):
        record, position = _decode_record(header, body, position)
        yield record
    if position != len(body):
        raise CorruptRecordError(f"{len(body) - position} bytes after the last record of batch {header.base_offset}")


def _encode_record(record: NewRecord, offset_delta: int, base_timestamp: int) -> bytes:
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


def _decode_record(header: BatchHeader, body: bytes, position: int) -> tuple[Record, int]:
    length, position = decode_varint(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise CorruptRecordError(f"record of {length} bytes at {position} runs over its batch")
    timestamp_delta, position = decode_varint(body, position + 1)
    offset_delta, position = decode_varint(body, position)
    key, position = _decode_bytes(body, position)
    value, position = _decode_bytes(body, position)
    headers, position = decode_headers(body, position)
    if position != end:
        raise CorruptRecordError(f"record ends at {position}, its length says {end}")
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), end


def _decode_bytes(body: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(body, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > len(body):
        raise CorruptRecordError(f"field of {length} bytes at {position} runs over its record")
    return bytes(body[position : position + length]), position + length


def decode_headers(body: bytes | memoryview, position: int) -> tuple[tuple[Header, ...], int]:
    """(headers, position after them), from the header count on; CorruptRecordError where they can't be read."""
    count, position = decode_varint(body, position)
    if count < 0 or count > len(body):
        raise CorruptRecordError(f"header count {count} can't be")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _decode_bytes(body, position)
        if key is None:
            raise CorruptRecordError("a header's key is null")
        value, position = _decode_bytes(body, position)
        headers.append((_utf8(key), value))
    return tuple(headers), position


def _utf8(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError(f"a header's key is not UTF-8: {error}") from error
