"""The rules that a produced batch must keep before it is given offsets in the log.

| rule | error |
|---|---|
| magic 2, a possible size | UnsupportedMagicError, CorruptRecordError (`read_header`) |
| at most max.message.bytes | RecordTooLargeError |
| CRC-32C matches | CorruptRecordError |
| a known codec | UnsupportedCodecError |
| not a control batch | InvalidRecordError |
| no LogAppendTime, which is for the log to set | InvalidTimestampError |
| as many records as offsets, at least one | InvalidRecordError |
| with a producer id: alone in its append, with an epoch and a sequence (KIP-98) | InvalidRecordError |
| transactional only with a producer id | InvalidRecordError |
| nothing behind the last whole batch, at least one batch | CorruptRecordError |

The base offset that the producer wrote means nothing. The rules for what is inside are in `preparation`.
"""

from __future__ import annotations

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    read_header,
)
from millrace.records.checksum import crc32c
from millrace.records.compression import Codec, codec_of

LOG_SETS_TYPE = "Invalid timestamp type: a producer may not set it to LogAppendTime"
MAX_CODEC_ID = max(Codec)
LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_SPECIAL_FLAGS = CONTROL_FLAG | TRANSACTIONAL_FLAG | TIMESTAMP_TYPE_FLAG
_RARE_FLAGS = _SPECIAL_FLAGS | CODEC_MASK


def validate_produced(batches: memoryview, max_message_bytes: int) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each batch; raises RecordError for the first rule that is broken."""
    found: list[tuple[int, BatchHeader]] = []
    position, end = 0, len(batches)
    while end - position >= HEADER_BYTES:
        fields = HEADER.unpack_from(batches, position)
        _, length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, count = fields
        header = tuple.__new__(BatchHeader, fields)
        # What nearly all batches are is checked in place: a call costs more than the check.
        if magic != MAGIC_V2 or length < LEAST_LENGTH:
            read_header(batches, position)
        size_bytes = LOG_OVERHEAD_BYTES + length
        if size_bytes > end - position:
            break
        if size_bytes > max_message_bytes:
            check_size(size_bytes, max_message_bytes)
        if crc32c(batches[position + ATTRIBUTES_POSITION : position + size_bytes]) != crc:
            check_crc(batches, position, header)
        if attributes & _RARE_FLAGS or count <= 0 or count != last_offset_delta + 1:
            _check_header(header)
        if producer_id != NO_PRODUCER_ID and (size_bytes != end or producer_id < 0 or epoch < 0 or sequence < 0):
            _check_producer(header)
        found.append((position, header))
        position += size_bytes
    if position != end or not found:
        raise CorruptRecordError(f"the last {end - position} bytes are not a whole batch")
    return found


def _check_header(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CODEC_MASK > MAX_CODEC_ID:
        codec_of(attributes & CODEC_MASK)
    if attributes & _SPECIAL_FLAGS:
        _check_flags(header)
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records that spans {header.last_offset_delta + 1} offsets"
        )


def check_size(size_bytes: int, max_message_bytes: int) -> None:
    """Raises RecordTooLargeError for a batch above `max.message.bytes`."""
    if size_bytes > max_message_bytes:
        raise RecordTooLargeError(f"a batch of {size_bytes} bytes is above max.message.bytes={max_message_bytes}")


def _check_flags(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecordError("a producer may not send control batches")
    if header.attributes & TRANSACTIONAL_FLAG and header.producer_id == NO_PRODUCER_ID:
        raise InvalidRecordError("a transactional batch without a producer id")
    if header.is_log_append_time:
        raise InvalidTimestampError(LOG_SETS_TYPE, ((0, LOG_SETS_TYPE),))


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}: "
            "none may be negative"
        )
    raise InvalidRecordError("a batch with a producer id comes alone")
