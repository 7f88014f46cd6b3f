"""Message sets, the formats v0 and v1 before the batch (docs/formats/message-set.md, KIP-31, KIP-32).

    set      := entry*
    entry    := offset i64, size i32, message                  size: bytes of the message

    offset  size  field          covered by
         0     4  crc            -            CRC-32 (RFC 1952's) of magic … value
         4     1  magic          crc          0 or 1
         5     1  attributes     crc          0-2 codec (no zstd), 3 timestamp type (v1)
         6     8  timestamp      crc          v1 only; milliseconds, -1: none
         …   4+n  key            crc          length i32 (-1: null), bytes
         …   4+n  value          crc          length i32 (-1: null), bytes

A message with a codec is a wrapper: its value is a compressed set, of messages of its own magic without a codec. Its
offset is that of its last message. Offsets inside are absolute in v0. In v1 they are relative: the wrapper's offset
and the last one's stand for the same place, so a broker can move a wrapper without opening it. A wrapper whose
offset is below its last relative one comes from a producer, which knows no offsets; its own offsets count as they are.

The timestamp of a wrapper is its messages' largest; if its type is log append time, it is the time of them all.

Compressed blocks are those of `records.compression`, but for two:

    snappy  written in xerial's framing, in blocks of 32 KiB; read in that framing or raw
    lz4     LZ4 frame, independent blocks, no content size; its header checksum (HC) differs by magic:

        04 22 4D 18  FLG  BD  [content size]  HC  blocks …
                     └──── magic 1 ─────────┘          HC = byte 1 of xxHash-32 of the descriptor, as LZ4 says
        └───────────────── magic 0 ─────────┘          HC = the same of all that lies before it (KIP-57)

The first clients that knew lz4 checksummed too many bytes, and their brokers insist on that. Writers took the right
checksum with magic 1; when reading, both are accepted, whatever the magic. There is no zstd before v2.

A log or a fetch may hold batches of v2 and, where it is older, message sets before them (`runs`). All have the same
start: offset i64, size i32 of what follows, and the magic as the fifth byte of that.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import NamedTuple

import cramjam
import lz4.frame
from xxhash import xxh32_intdigest

from millrace.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError, UnsupportedMagicError
from millrace.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    Buffer,
)
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, XERIAL_HEADER, Codec, codec_of, compress, decompress
from millrace.records.record import Record

XERIAL_BLOCK_BYTES = 32 << 10
LZ4_MAGIC_BYTES = 4
LZ4_FLG_POSITION = 4
LZ4_DESCRIPTOR_BYTES = 2
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_CONTENT_SIZE_BYTES = 8


def compress_block(codec: Codec, data: Buffer, magic: int) -> bytes:
    """Returns the data compressed as message format `magic` (0 or 1) has it; raises UnsupportedCodecError for zstd."""
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
    """Returns a decompressed block of a v0 or v1 message; raises CorruptRecordError for damage.

    Raises RecordTooLargeError above `limit_bytes`, UnsupportedCodecError for zstd.
    """
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
    """Returns the LZ4 frame with a correct header checksum, if it has the wrong one that old Kafka clients write."""
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


MAGIC_V0 = 0
MAGIC_V1 = 1

ENTRY = struct.Struct(">qi")
START = struct.Struct(">Ibb")
TIMESTAMP = struct.Struct(">q")
LENGTH = struct.Struct(">i")
CRC_BYTES = 4
ATTRIBUTES_POSITION = 17  # in an entry
MIN_MESSAGE_BYTES = START.size + 2 * LENGTH.size


class Message(NamedTuple):
    """One v0 or v1 message: a record or, with a codec, a wrapper around several compressed ones."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    size_bytes: int

    @property
    def codec(self) -> Codec:
        """The compression codec, bits 0 to 2 of the attributes; raises UnsupportedCodecError for an undefined one."""
        return codec_of(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamp is the broker's; v0 has no timestamps."""
        return self.magic == MAGIC_V1 and bool(self.attributes & TIMESTAMP_TYPE_FLAG)


def walk_messages(buffer: Buffer) -> Iterator[tuple[int, Message]]:
    """Yields (position, message) of each whole message, its CRC checked; ends before one that is incomplete.

    Raises CorruptRecordError or UnsupportedMagicError for another format.
    """
    for position, entry in walk_entries(buffer):
        yield position, read_message(entry, position)


def walk_entries(buffer: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yields (position, bytes) of each whole message; raises CorruptRecordError for an impossible length."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= ENTRY.size:
        _, size = ENTRY.unpack_from(view, position)
        if size < MIN_MESSAGE_BYTES:
            raise CorruptRecordError(f"message of {size} bytes at position {position} is below a header's")
        end = position + ENTRY.size + size
        if end > len(view):
            return
        yield position, view[position:end]
        position = end


def has_wrapper(buffer: Buffer) -> bool:
    """Returns whether any message has a codec; looks no further than a message with an impossible length."""
    try:
        return any(entry[ATTRIBUTES_POSITION] & CODEC_MASK for _, entry in walk_entries(buffer))
    except CorruptRecordError:
        return False


def open_messages(
    buffer: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> Iterator[tuple[Message, list[Record]]]:
    """Yields each whole message with its one record or, for a wrapper, its records.

    Raises RecordError for damage, RecordTooLargeError once all wrappers together hold more than `limit_bytes`.
    """
    left_bytes = limit_bytes
    for _, message in walk_messages(buffer):
        if message.codec is Codec.NONE:
            yield message, [Record(message.offset, message.timestamp_ms, message.key, message.value)]
            continue
        block = unwrap(message, left_bytes)
        left_bytes -= len(block)
        yield message, inner_records(message, block)


def unwrap(wrapper: Message, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Returns the decompressed message set in a wrapper; raises RecordError, RecordTooLargeError above the limit."""
    if wrapper.value is None:
        raise CorruptRecordError(f"wrapper at offset {wrapper.offset} has no value")
    return decompress_block(wrapper.codec, wrapper.value, limit_bytes)


def decode_message_set(buffer: Buffer, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Iterator[Record]:
    """Yields the records of all whole messages, without timestamps in v0; raises RecordError for damage.

    Raises RecordTooLargeError once all wrappers together hold more than `limit_bytes`.
    """
    for _, records in open_messages(buffer, limit_bytes):
        yield from records


def encode_message_set(
    records: Iterable[Record], *, magic: int, codec: Codec = Codec.NONE, log_append_time: bool = False
) -> bytes:
    """Returns records, at least one, as a message set: a message for each or, with a codec, one wrapper.

    Headers, and in v0 timestamps, are left out. Raises InvalidRecordError for numbers that don't fit their fields,
    UnsupportedCodecError for zstd.
    """
    time_flag = TIMESTAMP_TYPE_FLAG if log_append_time and magic == MAGIC_V1 else 0
    is_relative = codec is not Codec.NONE and magic == MAGIC_V1
    entries = BytesIO()
    base_offset, last, largest_timestamp = -1, None, NO_TIMESTAMP
    for record in records:
        if last is None:
            base_offset = record.offset if is_relative else 0
        entries.write(_encode_entry(record, record.offset - base_offset, magic, time_flag))
        last, largest_timestamp = record, max(largest_timestamp, record.timestamp_ms)
    if last is None:
        raise ValueError("a message set holds at least one record")
    if codec is Codec.NONE:
        return entries.getvalue()
    wrapper = Record(last.offset, largest_timestamp, None, compress_block(codec, entries.getbuffer(), magic))
    return _encode_entry(wrapper, wrapper.offset, magic, codec | time_flag)


def read_message(entry: memoryview, position: int = 0) -> Message:
    """Returns the message of exactly these bytes, which are at `position`; raises RecordError for damage."""
    offset, _ = ENTRY.unpack_from(entry)
    message = entry[ENTRY.size :]
    crc, magic, attributes = START.unpack_from(message)
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise UnsupportedMagicError(f"magic {magic} at position {position} is not that of a message set")
    actual = zlib.crc32(message[CRC_BYTES:])
    if actual != crc:
        raise CorruptRecordError(
            f"message at offset {offset}, position {position}: CRC-32 is {actual:#010x}, the header says {crc:#010x}"
        )
    timestamp_ms, at = NO_TIMESTAMP, START.size
    if magic == MAGIC_V1:
        timestamp_ms, at = _integer(TIMESTAMP, message, at), at + TIMESTAMP.size
    key, at = _nullable_bytes(message, at)
    value, at = _nullable_bytes(message, at)
    if at != len(message):
        raise CorruptRecordError(f"{len(message) - at} bytes after the value of the message at position {position}")
    return Message(offset, magic, attributes, timestamp_ms, key, value, ENTRY.size + len(message))


def _nullable_bytes(message: memoryview, at: int) -> tuple[bytes | None, int]:
    length = _integer(LENGTH, message, at)
    at += LENGTH.size
    if length == -1:
        return None, at
    if length < 0 or at + length > len(message):
        raise CorruptRecordError(f"field of {length} bytes runs over its message of {len(message)}")
    return bytes(message[at : at + length]), at + length


def _integer(form: struct.Struct, message: memoryview, at: int) -> int:
    try:
        return int(form.unpack_from(message, at)[0])
    except struct.error:
        raise CorruptRecordError(f"message of {len(message)} bytes ends inside a field") from None


def inner_records(wrapper: Message, block: Buffer) -> list[Record]:
    """Returns a wrapper's records; `block` is its decompressed message set. Raises CorruptRecordError."""
    messages = [message for _, message in walk_messages(block)]
    rest_bytes = len(block) - sum(message.size_bytes for message in messages)
    if not messages or rest_bytes:
        raise CorruptRecordError(
            f"wrapper at offset {wrapper.offset} holds {len(messages)} messages and {rest_bytes} bytes that are none"
        )
    for message in messages:
        _check_inner(wrapper, message, messages[-1].offset)
    base_offset = max(wrapper.offset - messages[-1].offset, 0) if wrapper.magic == MAGIC_V1 else 0
    return [
        Record(
            base_offset + message.offset,
            wrapper.timestamp_ms if wrapper.is_log_append_time else message.timestamp_ms,
            message.key,
            message.value,
        )
        for message in messages
    ]


def _check_inner(wrapper: Message, message: Message, last_offset: int) -> None:
    if message.codec is not Codec.NONE:
        raise InvalidRecordError(f"wrapper at offset {wrapper.offset} holds another wrapper")
    if message.magic != wrapper.magic:
        raise InvalidRecordError(
            f"wrapper at offset {wrapper.offset} of magic {wrapper.magic} holds a message of magic {message.magic}"
        )
    if not 0 <= message.offset <= last_offset:
        raise InvalidRecordError(
            f"wrapper at offset {wrapper.offset} holds offset {message.offset}, and {last_offset} as the last one"
        )


def _encode_entry(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    try:
        timestamp = TIMESTAMP.pack(record.timestamp_ms) if magic == MAGIC_V1 else b""
        fields = _encode_nullable(record.key) + _encode_nullable(record.value)
        covered = struct.pack(">bb", magic, attributes) + timestamp + fields
        return ENTRY.pack(offset, CRC_BYTES + len(covered)) + zlib.crc32(covered).to_bytes(4, "big") + covered
    except struct.error as error:
        raise InvalidRecordError(f"record at offset {record.offset} has no place in a message: {error}") from error


def _encode_nullable(value: bytes | None) -> bytes:
    return LENGTH.pack(-1) if value is None else LENGTH.pack(len(value)) + value


def runs(buffer: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yields (MAGIC_V2, bytes) of consecutive v2 batches, and (MAGIC_V1, bytes) of consecutive v0 and v1 messages.

    An incomplete or unknown entry at the end belongs to the last of these, for its decoder to judge.
    """
    view = memoryview(buffer)
    begin = position = 0
    magic = None
    while len(view) - position > MAGIC_POSITION:
        following = MAGIC_V1 if view[position + MAGIC_POSITION] < MAGIC_V2 else MAGIC_V2
        if magic is not None and following != magic:
            yield magic, view[begin:position]
            begin = position
        magic = following
        _, size = ENTRY.unpack_from(view, position)
        if size <= MAGIC_POSITION - LOG_OVERHEAD_BYTES:
            break
        position += LOG_OVERHEAD_BYTES + size
    if magic is not None:
        yield magic, view[begin:]


def first_offset(run: Buffer) -> int:
    """Returns the offset field of the first batch or message in these bytes."""
    return int(struct.unpack_from(">q", run)[0])


def message_offsets(run: memoryview) -> Iterator[int]:
    """Yields the offset of each whole v0 or v1 message; that of a wrapper is the offset of its last message."""
    at = 0
    while len(run) - at >= LOG_OVERHEAD_BYTES:
        offset, size = ENTRY.unpack_from(run, at)
        if size < 0 or at + LOG_OVERHEAD_BYTES + size > len(run):
            break
        yield offset
        at += LOG_OVERHEAD_BYTES + size


class MessageBody(NamedTuple):
    """The bytes of whole uncompressed messages, and the compressed wrapper message that held them, or None."""

    wrapper: Message | None
    data: Buffer


def message_bodies(message_set: Buffer) -> Iterator[MessageBody]:
    """Yields the messages of a set in order, wrappers decompressed; an incomplete message at the end is left out.

    The CRC of a wrapper is checked here, that of other messages when they are decoded. Raises RecordError for
    messages that can't be read, and for a wrapper that holds more than the codecs' limit.
    """
    view = memoryview(message_set)
    begin = end = 0
    for position, entry in walk_entries(view):
        if entry[ATTRIBUTES_POSITION] & CODEC_MASK:
            if end > begin:
                yield MessageBody(None, view[begin:end])
            wrapper = read_message(entry, position)
            yield MessageBody(wrapper, unwrap(wrapper))
            begin = position + len(entry)
        end = position + len(entry)
    if end > begin:
        yield MessageBody(None, view[begin:end])
