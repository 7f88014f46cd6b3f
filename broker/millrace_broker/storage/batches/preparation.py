"""All that is done with produced batches before it is their turn to be appended: the checks, and the topic's codec.

| what | |
|---|---|
| headers and CRCs | keep the rules of produced batches, below |
| the records | are those of the header (`millrace.records.record_check`), and the topic takes them, as below |
| the largest timestamp | becomes that of the records, whatever the header says |
| the codec | where the topic has its own, a batch of another is compressed again, at the topic's level |

What is compressed is checked chunk by chunk, and nothing of it is kept, except for a batch that is compressed again.
How long this takes depends on what the batches hold, not on their size. So it is done in steps, and can go on in
another thread after each.

The broker sets some times in the header of a batch itself. The CRC covers them, so it is computed again.

With `message.timestamp.type=LogAppendTime` (KIP-32) attribute bit 3 is set and maxTimestamp becomes the time of the
append, which every record of the batch then bears. With CreateTime maxTimestamp is the largest of the records' times:
retention and look-ups by time go by it, so a producer is not believed. The records stay as they are.

What a topic asks of each produced record, and the error that names those that it refuses (KIP-467):

| rule | error |
|---|---|
| in a compacted topic every record has a key | RejectedRecordsError |
| with CreateTime, every time lies within message.timestamp.before.max.ms and .after.max.ms | InvalidTimestampError |

The rules that a produced batch must keep before it is given offsets in the log:

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

The base offset that the producer wrote means nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from millrace.config import MAX_LONG
from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RejectedRecordsError,
)
from millrace.fs import Buffer
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    compute_crc,
    read_header,
    walk,
)
from millrace.records.checksum import crc32c
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, codec_of, decompressed_chunks, recompressed
from millrace.records.record_check import NO_RULES, RecordRules, Refused, new_record_check
from millrace.turns import pause
from millrace_broker.storage.batches.placement import Batches
from millrace_broker.storage.config import CREATE_TIME, LOG_APPEND_TIME, LogConfig

Result = TypeVar("Result")
Steps = Generator[int, None, Result]  # yields how many bytes of records a step has gone through, or the next one will
COMPRESSION_COSTS = 4  # times as many bytes that are decompressed; ten times by gzip


MAX_TIMESTAMP_POSITION = 35
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


NO_KEY = "Compacted topic cannot accept message without key"


UNCOMPRESSED_LIMIT_BYTES = 64 << 20
UNCOMPRESSED_LIMIT_FACTOR = 8


LOG_SETS_TYPE = "Invalid timestamp type: a producer may not set it to LogAppendTime"
MAX_CODEC_ID = max(Codec)
LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_SPECIAL_FLAGS = CONTROL_FLAG | TRANSACTIONAL_FLAG | TIMESTAMP_TYPE_FLAG
_RARE_FLAGS = _SPECIAL_FLAGS | CODEC_MASK


def validate_produced(batches: memoryview, max_message_bytes: int) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each produced batch; raises RecordError for one that breaks a rule (see above)."""
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


def codec_of_topic(config: LogConfig) -> Codec | None:
    """Returns the codec that `compression.type` sets; None for `producer`: batches keep the codec they came in."""
    match config.compression_type:
        case "producer":
            return None
        case "uncompressed":
            return Codec.NONE
        case name:
            return Codec[name.upper()]


def level_of_topic(config: LogConfig, codec: Codec) -> int | None:
    """Returns the compression level that a topic sets for a codec; None means the codec's default level."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def uncompressed_limit_bytes(config: LogConfig) -> int:
    """Returns how many bytes a batch's records may be, uncompressed, where the broker recompresses them all at once.

    Kafka sets no limit. Here it keeps a batch of 1 MiB that unpacks to a thousand times that from using up the memory.
    """
    return max(UNCOMPRESSED_LIMIT_BYTES, UNCOMPRESSED_LIMIT_FACTOR * config.max_message_bytes)


def asks_of_records(config: LogConfig) -> bool:
    """Returns whether a topic sets rules for each record: a key, as it is compacted, or limits of the timestamp."""
    limited = min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) < MAX_LONG
    return config.is_compacted or (limited and config.message_timestamp_type == CREATE_TIME)


def rules_of(config: LogConfig, now_ms: int) -> RecordRules:
    """Returns the topic's rules for records: whether they need keys, and which timestamps it takes at `now_ms`."""
    if config.message_timestamp_type != CREATE_TIME:
        return RecordRules(config.is_compacted)
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    earliest = NO_RULES.earliest if before_ms == MAX_LONG else max(now_ms - before_ms, NO_RULES.earliest)
    return RecordRules(config.is_compacted, earliest, min(now_ms + after_ms, NO_RULES.latest))


def check_refused(refused: Refused, rules: RecordRules) -> None:
    """Raises InvalidTimestampError, or RejectedRecordsError where only keys are missing, unless `refused` is empty.

    `refused` has (index, timestamp) of each record that breaks a rule, with None for the timestamp if it has no key.
    """
    if not refused:
        return
    errors = tuple((index, NO_KEY if time is None else _untimely(time, rules)) for index, time in refused)
    for index, time in refused:
        if time is not None:
            raise InvalidTimestampError(
                f"record {index}: {_untimely(time, rules)}, and its topic limits the difference", errors
            )
    raise RejectedRecordsError(f"record {refused[0][0]} has no key, and the topic is compacted by key", errors)


def _untimely(timestamp: int, rules: RecordRules) -> str:
    return f"timestamp {timestamp} is not in {rules.earliest}..{rules.latest}"


def stamped(
    batches: memoryview, found: Sequence[tuple[int, BatchHeader]], now_ms: int
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """Returns a copy of the batches with `now_ms` as LogAppendTime in each header, and (position, header) of each."""
    copy = bytearray(batches)
    return memoryview(copy), [
        (position, _stamp(copy, position, header, header.attributes | TIMESTAMP_TYPE_FLAG, now_ms))
        for position, header in found
    ]


def with_largest_time(batch: memoryview, header: BatchHeader, largest: int) -> Buffer:
    """Returns the batch with `largest` as its header's maxTimestamp; a copy unless it has that already."""
    if header.max_timestamp == largest:
        return batch
    copy = bytearray(batch)
    _stamp(copy, 0, header, header.attributes, largest)
    return copy


def _stamp(batches: bytearray, position: int, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    _ATTRIBUTES.pack_into(batches, position + ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(batches, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = compute_crc(batches, position, header.size_bytes)
    _CRC.pack_into(batches, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Batches that are checked and ready to be appended; `len` is the size of the bytes that the client sent."""

    view: memoryview
    found: Batches
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


def prepare(batches: Buffer, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    """Checks batches from a producer and recompresses them in the topic's codec, in steps, and returns the result.

    Each step yields the number of bytes that it has gone through. Raises RecordError for a batch that breaks a rule.
    """
    view = memoryview(batches)
    return (yield from prepare_found(view, validate_produced(view, config.max_message_bytes), config, now_ms))


def prepare_found(view: memoryview, found: Batches, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    """Does what `prepare` does, for batches that `validate_produced` has found and checked; raises RecordError."""
    rules, codec = rules_of(config, now_ms), codec_of_topic(config)
    parts: list[Buffer] = []
    for position, header in found:
        batch = view[position : position + header.size_bytes]
        if codec is not None and header.codec_id != codec:
            parts.append((yield from _in_codec(codec, batch, header, rules, config)))
            continue
        largest = yield from _check(batch, header, rules, DECOMPRESSED_LIMIT_BYTES)
        keeps_times = config.message_timestamp_type != LOG_APPEND_TIME
        parts.append(with_largest_time(batch, header, largest) if keeps_times else batch)
    if all(isinstance(part, memoryview) for part in parts):
        return Prepared(view, found, len(view))
    stored = memoryview(b"".join(parts))
    return Prepared(stored, list(walk(stored)), len(view))


def finished(steps: Steps[Result]) -> Result:
    """Runs all steps of a generator such as `prepare`, with a pause before each, and returns its result."""
    while True:
        pause()
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def finished_within(steps: Steps[Result], most_bytes: int) -> tuple[Result | None, int]:
    """Runs steps of `prepare` for up to `most_bytes`; returns (result or None if not done, bytes left of these)."""
    try:
        while most_bytes >= 0:
            most_bytes -= next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result, most_bytes
    return None, most_bytes


def _in_codec(
    codec: Codec, batch: memoryview, header: BatchHeader, rules: RecordRules, config: LogConfig
) -> Steps[bytes]:
    """Checks a batch's records by `rules`, in steps, and returns the batch recompressed in `codec`."""
    kept: list[Buffer] = []
    largest = yield from _check(batch, header, rules, uncompressed_limit_bytes(config), kept)
    yield COMPRESSION_COSTS * sum(map(len, kept))
    header = header._replace(max_timestamp=largest)
    stored = recompressed(header, b"".join(kept), codec, level_of_topic(config, codec))
    check_size(len(stored), config.max_message_bytes)
    return stored


def _check(
    batch: memoryview, header: BatchHeader, rules: RecordRules, limit_bytes: int, kept: list[Buffer] | None = None
) -> Steps[int]:
    """Checks records by `rules`, in steps; returns their largest timestamp. Their uncompressed bytes go to `kept`."""
    check = new_record_check(header, rules)
    try:
        for chunk in decompressed_chunks(codec_of(header.codec_id), batch[HEADER_BYTES:], limit_bytes):
            check.feed(chunk)
            if kept is not None:
                kept.append(chunk)
            yield len(chunk)
    except CorruptRecordError as error:  # its CRC is right: it would be no better if it was sent again
        raise InvalidRecordError(str(error)) from error
    largest, refused = check.end()
    check_refused(refused, rules)
    return largest
