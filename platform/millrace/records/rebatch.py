"""A batch as it was fetched from one log, made into one that a producer may send to another.

    no record is missing, times of the producer   as it is
    offsets are missing (compaction)              the same records under the offset deltas 0, 1, 2 …
    the time is that of the append                each record has that time as its own
    no record is left, or a control batch         there is nothing to send
    many small ones, each as it is                their records in one (`merged`), as a batch costs more than its few

Records that are written again keep all but their offset and time, also headers whose names are no UTF-8. They are
compressed by the same codec, at its usual level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.records.batch import NO_TIMESTAMP, BatchHeader, Buffer, check_crc, sealed_batch
from millrace.records.compression import codec_of, compress
from millrace.records.record import decompress_body, encode_bodies, records_of
from millrace.records.varint import decode_varint, encode_varint


@dataclass(frozen=True, slots=True)
class SourceRun:
    """Records of a batch that lay beside each other in the source: the first one's offset there and index here."""

    source_offset: int
    index: int
    count: int


class Rebatched(NamedTuple):
    """A batch that `Producer.send_batch` takes, and where its records come from: runs in the order of the records."""

    batch: Buffer
    runs: tuple[SourceRun, ...]


def producible(header: BatchHeader, data: memoryview) -> Rebatched | None:
    """Returns what to send of a batch, of which `data` is exactly the bytes; None where there is nothing to send.

    Raises RecordError where records are to be written again and are damaged. The CRC of a batch that stays as it is
    is left to `send_batch`.
    """
    if header.is_control or not header.record_count:
        return None
    if header.record_count == header.last_offset_delta + 1 and not header.is_log_append_time:
        return Rebatched(data, (SourceRun(header.base_offset, 0, header.record_count),))
    check_crc(data, 0, header)
    return _rewritten(header, decompress_body(header, data))


def _rewritten(header: BatchHeader, body: bytes) -> Rebatched:
    records = records_of(header, body)
    base_timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    if any(_may_be_another_name(name) for record in records for name, _ in record.headers):
        written = _renumbered(header, body)
    else:
        written = encode_bodies(enumerate(records), base_timestamp)
    plain = BatchHeader(
        base_offset=0,
        attributes=header.codec_id,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        record_count=len(records),
    )
    batch = sealed_batch(plain, compress(codec_of(header.codec_id), written))
    return Rebatched(batch, tuple(_runs([record.offset for record in records])))


def merged(batches: Sequence[tuple[BatchHeader, memoryview]]) -> Rebatched | None:
    """Returns one batch of the records of several, none of which lacks a record, and which have one codec.

    Their CRCs must have been checked. None where a record would not stay as it is, or can't be read: then each goes
    by itself.
    """
    try:
        records = [one for header, data in batches for one in records_of(header, decompress_body(header, data))]
    except RecordError:
        return None
    times = [record.timestamp_ms for record in records]
    if not _has_usual_times(times) or any(_may_be_another_name(name) for one in records for name, _ in one.headers):
        return None
    plain = BatchHeader(
        base_offset=0,
        attributes=batches[0][0].codec_id,
        last_offset_delta=len(records) - 1,
        base_timestamp=times[0],
        max_timestamp=max(times),
        record_count=len(records),
    )
    body = compress(codec_of(plain.codec_id), encode_bodies(enumerate(records), times[0]))
    return Rebatched(sealed_batch(plain, body), tuple(_runs([record.offset for record in records])))


def _has_usual_times(times: Sequence[int]) -> bool:
    """Returns whether each time can be told by its distance from any other."""
    return min(times) >= NO_TIMESTAMP and max(times) < MAX_LONG


def _may_be_another_name(name: str) -> bool:
    """Returns whether a decoded name of a header may stand for bytes that are no UTF-8, or for null."""
    return not name or "\N{REPLACEMENT CHARACTER}" in name


def _renumbered(header: BatchHeader, body: bytes) -> bytes:
    """Returns records, which are known to be whole, with new deltas and all their other bytes."""
    parts: list[bytes] = []
    position = 0
    for index in range(header.record_count):
        length, attributes_at = decode_varint(body, position)
        timestamp_delta, offset_delta_at = decode_varint(body, attributes_at + 1)
        _, key_at = decode_varint(body, offset_delta_at)
        position = attributes_at + length
        delta = 0 if header.is_log_append_time else timestamp_delta
        start = body[attributes_at : attributes_at + 1] + encode_varint(delta) + encode_varint(index)
        parts += (encode_varint(len(start) + position - key_at), start, body[key_at:position])
    return b"".join(parts)


def _runs(offsets: list[int]) -> Iterator[SourceRun]:
    begin = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != offsets[index - 1] + 1:
            yield SourceRun(offsets[begin], begin, index - begin)
            begin = index
