"""The rules that a produced batch must keep before it gets a place in the log.

| rule | error |
|---|---|
| magic 2, possible sizes and counts | UnsupportedMagicError, CorruptRecordError (`read_header`) |
| at most max.message.bytes | RecordTooLargeError |
| CRC-32C matches | CorruptRecordError |
| a known codec | UnsupportedCodecError |
| not a control batch | InvalidRecordError |
| no LogAppendTime, which is for the log to set | InvalidTimestampError |
| as many records as offsets, at least one | InvalidRecordError |
| with a producer id: alone in its append, with an epoch and a sequence (KIP-98) | InvalidRecordError |
| transactional only with a producer id | InvalidRecordError |
| nothing behind the last whole batch, at least one batch | CorruptRecordError |
| in a compacted topic: every record has a key | RejectedRecordsError (`check_records`) |
| with CreateTime: every time within message.timestamp.before.max.ms and .after.max.ms | InvalidTimestampError (same) |

The base offset that the producer wrote means nothing. The records inside are read for the last two rules only;
otherwise the broker keeps what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.config import MAX_LONG
from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RejectedRecordsError,
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
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    read_header,
)
from millrace.records.checksum import crc32c
from millrace.records.compression import Codec, codec_of, decompress
from millrace_broker.storage.batches.record_slices import record_slices
from millrace_broker.storage.config import CREATE_TIME, LogConfig

UNCOMPRESSED_LIMIT_BYTES = 64 << 20
UNCOMPRESSED_LIMIT_FACTOR = 8

NO_KEY = "Compacted topic cannot accept message without key"
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
        if magic != MAGIC_V2 or length < LEAST_LENGTH or last_offset_delta < 0 or count < 0:
            read_header(batches, position)
        size_bytes = LOG_OVERHEAD_BYTES + length
        if size_bytes > end - position:
            break
        if size_bytes > max_message_bytes:
            raise RecordTooLargeError(f"a batch of {size_bytes} bytes is above max.message.bytes={max_message_bytes}")
        if crc32c(batches[position + ATTRIBUTES_POSITION : position + size_bytes]) != crc:
            check_crc(batches, position, header)
        if attributes & _RARE_FLAGS or count != last_offset_delta + 1:
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
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records that spans {header.last_offset_delta + 1} offsets"
        )


def looks_at_records(config: LogConfig) -> bool:
    """Returns whether `check_records` has a rule to check."""
    limited = min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) < MAX_LONG
    return config.is_compacted or (limited and config.message_timestamp_type == CREATE_TIME)


def check_records(
    batches: memoryview, found: Sequence[tuple[int, BatchHeader]], config: LogConfig, now_ms: int
) -> None:
    """Raises RejectedRecordsError or InvalidTimestampError for the first batch with records that the rules forbid.

    Raises another RecordError for a record that can't be read.
    """
    earliest, latest = _allowed_times(config, now_ms)
    limit_bytes = uncompressed_limit_bytes(config)
    for position, header in found:
        block = batches[position + HEADER_BYTES : position + header.size_bytes]
        body = decompress(codec_of(header.codec_id), block, limit_bytes)
        keyless: list[tuple[int, str]] = []
        untimely: list[tuple[int, str]] = []
        for index, record in enumerate(record_slices(header, body)):
            timestamp = header.base_timestamp + record.timestamp_delta
            if record.key is None and config.is_compacted:
                keyless.append((index, NO_KEY))
            elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                untimely.append((index, f"timestamp {timestamp} is not in {earliest}..{latest}"))
        _reject(keyless, untimely)


def uncompressed_limit_bytes(config: LogConfig) -> int:
    """Returns how many bytes a produced batch may hold, uncompressed, where the broker has to read its records.

    Kafka sets no limit. Here a block of 1 MiB that grows a thousandfold would keep all other requests waiting.
    """
    return max(UNCOMPRESSED_LIMIT_BYTES, UNCOMPRESSED_LIMIT_FACTOR * config.max_message_bytes)


def _allowed_times(config: LogConfig, now_ms: int) -> tuple[int, int]:
    if config.message_timestamp_type != CREATE_TIME:
        return -MAX_LONG, MAX_LONG
    return now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms


def _reject(keyless: list[tuple[int, str]], untimely: list[tuple[int, str]]) -> None:
    errors = tuple(sorted([*keyless, *untimely]))
    if untimely:
        index, message = untimely[0]
        raise InvalidTimestampError(f"record {index}: {message}, and its topic limits the difference", errors)
    if keyless:
        raise RejectedRecordsError(f"record {keyless[0][0]} has no key, and the topic is compacted by key", errors)


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
