"""What a produced batch must be before it gets a place in the log (spec A1, B2).

| rule | error |
|---|---|
| magic 2, sizes and counts that can be | UnsupportedMagicError, CorruptRecordError (`read_header`) |
| at most max.message.bytes | RecordTooLargeError |
| CRC-32C matches | CorruptRecordError |
| a known codec | UnsupportedCodecError |
| not a control batch | InvalidRecordError |
| as many records as offsets, at least one | InvalidRecordError |
| with a producer id: alone in its append, with an epoch and a sequence (KIP-98) | InvalidRecordError |
| transactional only with a producer id | InvalidRecordError |
| nothing behind the last whole batch, at least one batch | CorruptRecordError |
| in a compacted topic: every record has a key | RejectedRecordsError (`check_keys`) |

The base offset that the producer wrote means nothing. Records inside are looked at for the last rule only: the broker
keeps what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError, RejectedRecordsError
from millrace.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    walk,
)
from millrace.records.compression import Codec, codec_of, decompress
from millrace_broker.storage.record_slices import record_slices

NO_KEY = "a record of a compacted topic needs a key"
MAX_CODEC_ID = max(Codec)
_SPECIAL_FLAGS = CONTROL_FLAG | TRANSACTIONAL_FLAG


def validate_produced(batches: memoryview, max_message_bytes: int) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each batch; RecordError for the first rule that is broken."""
    found: list[tuple[int, BatchHeader]] = []
    end = 0
    for position, header in walk(batches):
        size_bytes = header.size_bytes
        if size_bytes > max_message_bytes:
            raise RecordTooLargeError(f"a batch of {size_bytes} bytes is above max.message.bytes={max_message_bytes}")
        check_crc(batches, position, header)
        _check_header(header)
        if header.producer_id != NO_PRODUCER_ID:
            _check_producer(header, is_alone=size_bytes == len(batches))
        found.append((position, header))
        end = position + size_bytes
    if not found or end != len(batches):
        raise CorruptRecordError(f"{len(batches) - end} bytes that are no whole batch")
    return found


def _check_header(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CODEC_MASK > MAX_CODEC_ID:
        codec_of(attributes & CODEC_MASK)
    if attributes & _SPECIAL_FLAGS:
        _check_flags(header)
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records that spans {header.last_offset_delta + 1} offsets"
        )


def check_keys(batches: memoryview, found: Sequence[tuple[int, BatchHeader]]) -> None:
    """RejectedRecordsError for records without a key, RecordError for one that can't be read."""
    for position, header in found:
        body = decompress(codec_of(header.codec_id), batches[position + HEADER_BYTES : position + header.size_bytes])
        slices = record_slices(body, header.record_count)
        keyless = tuple((index, NO_KEY) for index, record in enumerate(slices) if record.key is None)
        if keyless:
            raise RejectedRecordsError(f"record {keyless[0][0]} has no key, and the topic is compacted by key", keyless)


def _check_flags(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecordError("a producer may not send control batches")
    if header.producer_id == NO_PRODUCER_ID:
        raise InvalidRecordError("a transactional batch without a producer id")


def _check_producer(header: BatchHeader, *, is_alone: bool) -> None:
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}: "
            "none may be negative"
        )
    if not is_alone:
        raise InvalidRecordError("a batch with a producer id comes alone")
