"""RecordBatch v2, the native format (docs/formats/segment.md, KIP-98).

    offset  size  field                    covered by
         0     8  baseOffset               -
         8     4  batchLength              -            bytes after this field
        12     4  partitionLeaderEpoch     -
        16     1  magic = 2                -
        17     4  crc                      -            CRC-32C of attributes … end
        21     2  attributes               crc          0-2 codec, 3 timestamp type, 4 transactional,
                                                        5 control, 6 delete horizon
        23     4  lastOffsetDelta          crc
        27     8  baseTimestamp            crc
        35     8  maxTimestamp             crc
        43     8  producerId               crc
        51     2  producerEpoch            crc
        53     4  baseSequence             crc
        57     4  recordCount              crc
        61     …  records                  crc          compressed as one block if codec != 0

All integers are big-endian. With the delete horizon flag, which compaction sets, the base timestamp is the time from
which the batch's tombstones and markers may go (KIP-534); record timestamps are deltas from it all the same.
Base offset and leader epoch lie outside the CRC, so a broker gives a batch its place in the log by replacing the first
sixteen bytes (`placed`), and leaves the rest untouched.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError, RecordError, UnsupportedMagicError
from millrace.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

MAGIC_V2 = 2
LOG_OVERHEAD_BYTES = 12
HEADER_BYTES = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
PLACE = struct.Struct(">qii")
UNCHECKED = struct.Struct(">qiibI")  # the header up to its CRC
CHECKED = struct.Struct(">hiqqqhii")  # what the CRC covers of it


class BatchHeader(NamedTuple):
    """The fields of a v2 batch's header, the 61 bytes before its records; by default there is no producer and time."""

    base_offset: int
    batch_length: int = 0
    partition_leader_epoch: int = NO_LEADER_EPOCH
    magic: int = MAGIC_V2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    record_count: int = 0

    @property
    def size_bytes(self) -> int:
        """The size in bytes of the whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record that the batch had when it was produced; compaction may have removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last one of the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        """The number of the compression codec: bits 0 to 2 of the attributes."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamps are those of the broker (true) or of the producer."""
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of an application's records."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove tombstones and markers; None before it has rewritten the batch."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    def with_delete_horizon(self, delete_horizon_ms: int) -> BatchHeader:
        """Returns the header with this delete horizon as base timestamp; the records must be encoded again."""
        return self._replace(attributes=self.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms)


def read_header(buffer: Buffer, position: int = 0, buffer_position: int = 0) -> BatchHeader:
    """Returns the 61-byte batch header at `position`, which must be whole; errors add `buffer_position` to that.

    Raises CorruptRecordError for impossible lengths and counts, UnsupportedMagicError for other formats.
    """
    # What `_make` does, at half the cost: the struct has as many fields.
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    _, length, _, magic, _, _, last_offset_delta, _, _, _, _, _, record_count = header
    if magic == MAGIC_V2 and length >= HEADER_BYTES - LOG_OVERHEAD_BYTES and last_offset_delta >= 0 <= record_count:
        return header
    raise _no_header(header, position, buffer_position)


def _no_header(header: BatchHeader, position: int, buffer_position: int) -> RecordError:
    if header.magic != MAGIC_V2:
        place = f"at position {buffer_position + position}"
        if header.magic in (0, 1):
            return UnsupportedMagicError(f"message format v{header.magic} {place} is not served")
        return CorruptRecordError(f"magic {header.magic} {place} is no message format")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        return CorruptRecordError(
            f"batch length {header.batch_length} at position {buffer_position + position} is below a header's"
        )
    return CorruptRecordError(
        f"last offset delta {header.last_offset_delta} or record count {header.record_count} "
        f"at position {buffer_position + position} is negative"
    )


def compute_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    """Returns the CRC-32C (RFC 3720) of a batch from its attributes to its end."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecordError unless the batch's bytes match its CRC."""
    actual = compute_crc(buffer, position, LOG_OVERHEAD_BYTES + header.batch_length)
    if actual != header.crc:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset}, position {position}: "
            f"CRC-32C is {actual:#010x}, the header says {header.crc:#010x}"
        )


def walk(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of each whole batch; ends before a batch that is incomplete.

    CRCs are not checked. Raises CorruptRecordError for impossible lengths and counts, UnsupportedMagicError for other
    formats.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def is_transactional(buffer: Buffer) -> bool:
    """Returns whether bytes, which need not be a valid batch, begin with a transactional v2 batch."""
    return (
        len(buffer) >= HEADER_BYTES
        and buffer[MAGIC_POSITION] == MAGIC_V2
        and bool(buffer[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_FLAG)
    )


def placed(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """Returns a batch's first 16 bytes with a new base offset and leader epoch; its CRC does not cover them."""
    return PLACE.pack(base_offset, header.batch_length, leader_epoch)


def sealed_batch(header: BatchHeader, body: Buffer) -> bytes:
    """Returns a batch of a header and the bytes that follow it, with the length and the CRC that belong to these.

    Raises struct.error for a number that its field can't hold.
    """
    base_offset, _, leader_epoch, magic, _, *fields = header
    checked = CHECKED.pack(*fields) + body
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    return UNCHECKED.pack(base_offset, length, leader_epoch, magic, crc32c(checked)) + checked
