"""All that is done with produced batches before it is their turn to be appended: the checks, and the topic's codec.

| what | |
|---|---|
| headers and CRCs | keep the rules of `validation` |
| the records | are those of the header (`millrace.records.record_check`), and the topic takes them (`record_rules`) |
| the largest timestamp | becomes that of the records, whatever the header says |
| the codec | where the topic has its own, a batch of another is compressed again, at the topic's level |

What is compressed is checked chunk by chunk, and nothing of it is kept, except for a batch that is compressed again.
How long this takes depends on what the batches hold, not on their size. So it is done in steps, and can go on in
another thread after each.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.fs import Buffer
from millrace.records.batch import HEADER_BYTES, BatchHeader, walk
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, codec_of, decompressed_chunks, recompressed
from millrace.records.record_check import RecordRules, new_record_check
from millrace.turns import pause
from millrace_broker.storage.batches.append_time import with_largest_time
from millrace_broker.storage.batches.placement import Batches
from millrace_broker.storage.batches.record_rules import check_refused, rules_of
from millrace_broker.storage.batches.topic_codec import codec_of_topic, level_of_topic, uncompressed_limit_bytes
from millrace_broker.storage.batches.validation import check_size, validate_produced
from millrace_broker.storage.config import LOG_APPEND_TIME, LogConfig

Result = TypeVar("Result")
Steps = Generator[int, None, Result]  # yields how many bytes of records a step has gone through, or the next one will
COMPRESSION_COSTS = 4  # times as many bytes that are decompressed; ten times by gzip


@dataclass(frozen=True, slots=True)
class Prepared:
    """Batches that are ready to be appended; `len` is the size of the bytes in which they came."""

    view: memoryview
    found: Batches
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


def prepare(batches: Buffer, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    """Returns the batches as they are to be appended; raises RecordError for the first rule that is broken."""
    view = memoryview(batches)
    return (yield from prepare_found(view, validate_produced(view, config.max_message_bytes), config, now_ms))


def prepare_found(view: memoryview, found: Batches, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    """Returns batches whose headers are valid as they are to be appended; raises RecordError."""
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
    """Goes through all steps, with pauses between them, and returns their result."""
    while True:
        pause()
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def finished_within(steps: Steps[Result], most_bytes: int) -> tuple[Result | None, int]:
    """Returns the result, None where there are more bytes to go through than these, and how many are left of them."""
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
    """Returns a batch in the topic's codec."""
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
    """Returns the largest time of a batch's records, which are put into `kept`."""
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
