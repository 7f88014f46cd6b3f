"""What compaction leaves of one batch: a pure function from bytes to bytes (docs/formats/compaction.md; KIP-534).

| a record | |
|---|---|
| at or above the pass's end offset | stays: the pass has not read it |
| without a key | goes, and is counted: it is the value of no key |
| of a transaction that was aborted | goes |
| of a key with a larger offset in the map | goes |
| a tombstone, the batch's delete horizon passed | goes |
| any other | stays |

The first pass that keeps a tombstone gives its batch a delete horizon, now + delete.retention.ms: attribute bit 6, and
the time itself in the base timestamp's place, to which the records' deltas are then relative. So a reader that reads
the log from its start in less than delete.retention.ms sees the last value of each key, or its deletion.

A batch of which nothing goes stays byte for byte. In others base offset, last offset delta, leader epoch, producer id,
epoch, sequence and codec stay, and the records that stay keep their offsets. A batch of which all goes is dropped, or
kept without records where it bears the last sequence of its producer.

A marker stays as it is while something of its transaction is left. The first pass that finds nothing left gives it a
delete horizon, and a pass after that time drops it: a reader that had read part of the transaction has met the marker
by then. It stays whole where it is all that is left of its producer, whose epoch it bears.

A pass knows the last offset of each key in a fixed amount of memory (`OffsetMap`):

    slot  := digest u64 u64, offset + 1 u64      24 bytes; 0 stands for a free slot

Open addressing with double hashing (Knuth, TAOCP 3, 6.4, Algorithm D): half of the digest chooses the slot, the other
half the step, and a prime number of slots lets every step visit all of them. Keys are known by a 16-byte BLAKE2b
digest only, as in Kafka's SkimpyOffsetMap; that hash is collision resistant, so no producer can make a key whose
records supersede those of another one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import isqrt
from mmap import mmap
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Buffer,
    sealed_batch,
)
from millrace.records.compression import codec_of, compress, decompress
from millrace.records.record import MAX_DELTA, MIN_DELTA
from millrace.records.varint import decode_varint, encode_varint

NULL_LENGTH = 1


SLOT_BYTES = 24
LOAD_FACTOR = 0.75
MIN_SLOTS = 5

_DIGEST = struct.Struct("<QQ")


class OffsetMap:
    """A hash table from record keys (kept as BLAKE2b hashes) to offsets; full at `LOAD_FACTOR` of its slots."""

    def __init__(self, max_bytes: int, max_keys: int) -> None:
        """Makes room for `max_keys` keys, or for as many as fit into `max_bytes` of memory."""
        wanted = min(max_bytes // SLOT_BYTES, int(max_keys / LOAD_FACTOR) + MIN_SLOTS)
        self._slots = _prime_up_to(max(wanted, MIN_SLOTS))
        self.capacity = int(self._slots * LOAD_FACTOR)
        self._lows, self._highs, self._ends = (_zeros(self._slots) for _ in range(3))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, key: bytes, offset: int) -> bool:
        """Sets a key's offset, which must not be below its earlier one; returns false where a new key finds no room."""
        low, high = _digest(key)
        slot = self._slot(low, high)
        if not self._ends[slot]:
            if self._size >= self.capacity:
                return False
            self._size += 1
            self._lows[slot], self._highs[slot] = low, high
        self._ends[slot] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Returns the offset of a key; -1 where none was put."""
        return self._ends[self._slot(*_digest(key))] - 1

    def _slot(self, low: int, high: int) -> int:
        """Returns the slot that holds the key with the hash (`low`, `high`), or the free slot that it would take."""
        slots, ends, lows, highs = self._slots, self._ends, self._lows, self._highs
        slot = low % slots
        step = 0
        while ends[slot] and (lows[slot] != low or highs[slot] != high):
            step = step or 1 + high % (slots - 1)
            slot = (slot + step) % slots
        return slot


def _digest(key: bytes) -> tuple[int, int]:
    low, high = _DIGEST.unpack(blake2b(key, digest_size=16).digest())
    return low, high


def _zeros(count: int) -> memoryview:
    """Returns `count` 64-bit zeros in mapped memory, which takes real memory only for the pages that are written."""
    return memoryview(mmap(-1, 8 * count)).cast("Q")


def _prime_up_to(number: int) -> int:
    """Returns the largest prime that is not above `number`, which is at least 2."""
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number


class RecordSlice(NamedTuple):
    """The place of a record, `body[start:end]`; its bytes from `rest` on don't depend on the base timestamp."""

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


Pace = Callable[[Iterator[RecordSlice]], Iterator[RecordSlice]]


def record_slices(header: BatchHeader, body: bytes) -> Iterator[RecordSlice]:
    """Yields where each record lies in the uncompressed body of a v2 batch, without decoding values and headers.

        record  := length varint, attributes i8, timestampDelta varlong | offsetDelta varint, keyLength varint, key, …
                   ^ start                                              ^ rest                                     end ^

    Compaction needs a record's key, its offset, and whether it has a value; it copies the bytes as they are.

    Raises CorruptRecordError where the records' count, offsets or lengths don't fit the batch's header.
    """
    position, before, last = 0, -1, header.last_offset_delta
    try:
        for _ in range(header.record_count):
            record = _slice(body, position)
            if not before < record.offset_delta <= last:
                raise CorruptRecordError(f"offset delta {record.offset_delta} after {before}, of {last} at most")
            yield record
            position, before = record.end, record.offset_delta
    except IndexError:
        raise CorruptRecordError(f"the record at {position} is cut short") from None
    if position != len(body):
        raise CorruptRecordError(f"{len(body) - position} bytes after the last of {header.record_count} records")


def _slice(body: bytes, start: int) -> RecordSlice:
    length, position = decode_varint(body, start)
    end = position + length
    if length < 0 or end > len(body):
        raise CorruptRecordError(f"record of {length} bytes at {start} runs over its batch")
    timestamp_delta, rest = decode_varint(body, position + 1)
    # Mostly one byte each: without the calls a record takes a fifth less time.
    if (byte := body[rest]) < 0x80:
        offset_delta, position = (byte >> 1) ^ -(byte & 1), rest + 1
    else:
        offset_delta, position = decode_varint(body, rest)
    if (byte := body[position]) < 0x80:
        key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        key_length, position = decode_varint(body, position)
    key_end = position + max(key_length, 0)
    if key_length < -1 or key_end >= end:
        raise CorruptRecordError(f"key of {key_length} bytes at {position} runs over its record")
    key = None if key_length < 0 else body[position:key_end]
    return RecordSlice(start, rest, end, timestamp_delta, offset_delta, key, body[key_end] != NULL_LENGTH)


class LastRecord(NamedTuple):
    """The last offset of a producer's data, -1 where the log has only a marker of it, and the producer's epoch."""

    data_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """The rules by which one pass of compaction keeps or drops records.

    `latest` has each key's newest offset below `end_offset`. `last_records` has each producer's last data offset: the
    header of that batch stays, even without records, as it has the producer's last sequence number.
    """

    latest: OffsetMap
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    last_records: Mapping[int, LastRecord]


@dataclass(slots=True)
class RecordCounts:
    """The number of records that a pass of compaction has kept and dropped, and of those dropped for lack of a key."""

    kept: int = 0
    dropped: int = 0
    keyless_dropped: int = 0


def cleaned(
    header: BatchHeader,
    batch: memoryview,
    rules: CleaningRules,
    counts: RecordCounts,
    *,
    is_void: bool = False,
    paced: Pace = iter,
) -> Buffer | None:
    """Returns what compaction leaves of a batch, None for nothing; raises RecordError where its records can't be read.

    `is_void` says that no reader needs its records: they are an aborted transaction's, or it is the marker of a
    transaction of which nothing is left. `paced` passes the records on one by one, and may pause between them.
    """
    if header.is_control and is_void:
        return _cleaned_marker(header, batch, rules, counts)
    if header.is_control or (header.base_offset >= rules.end_offset and not is_void):
        counts.kept += header.record_count
        return batch
    body = b"" if is_void else decompress(codec_of(header.codec_id), batch[HEADER_BYTES:])
    records = () if is_void else paced(record_slices(header, body))
    kept = [record for record in records if _stays(header, record, rules, counts)]
    counts.kept += len(kept)
    counts.dropped += header.record_count - len(kept)
    if not kept:
        return _without_records(header) if _bears_state(header, rules) else None
    horizon_ms = rules.now_ms + rules.delete_retention_ms
    if _needs_horizon(header, kept, rules) and _can_have_horizon(header, kept, horizon_ms):
        return _rebuilt(*_with_horizon(header, body, kept, horizon_ms))
    if len(kept) == header.record_count:
        return batch
    return _rebuilt(_with_kept(header, kept), b"".join(body[record.start : record.end] for record in kept))


def offsets_only(header: BatchHeader, max_timestamp: int) -> bytes:
    """Returns a batch without records or producer that spans the offsets of `header`, a dropped batch."""
    attributes = header.attributes & TIMESTAMP_TYPE_FLAG
    return _rebuilt(
        header._replace(
            attributes=attributes,
            base_timestamp=max_timestamp,
            max_timestamp=max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        ),
        b"",
    )


def _without_records(header: BatchHeader) -> bytes:
    """Returns the batch without its records; it keeps its offsets, producer id, epoch and sequence."""
    return _rebuilt(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _cleaned_marker(
    header: BatchHeader, batch: memoryview, rules: CleaningRules, counts: RecordCounts
) -> Buffer | None:
    is_due = header.delete_horizon_ms is not None and rules.now_ms >= header.delete_horizon_ms
    if (is_due or not header.record_count) and not _bears_state(header, rules):
        counts.dropped += header.record_count
        return None
    counts.kept += header.record_count
    if header.delete_horizon_ms is not None or not header.record_count:
        return batch
    body = decompress(codec_of(header.codec_id), batch[HEADER_BYTES:])
    records = list(record_slices(header, body))
    horizon_ms = rules.now_ms + rules.delete_retention_ms
    if not _can_have_horizon(header, records, horizon_ms):
        return batch
    return _rebuilt(*_with_horizon(header, body, records, horizon_ms))


def _bears_state(header: BatchHeader, rules: CleaningRules) -> bool:
    """Returns whether a batch is its producer's last one with data or, if none is left, a marker of its last epoch."""
    last = rules.last_records.get(header.producer_id)
    if last is None:
        return False
    if last.data_offset >= 0:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.epoch


def _stays(header: BatchHeader, record: RecordSlice, rules: CleaningRules, counts: RecordCounts) -> bool:
    offset = header.base_offset + record.offset_delta
    if offset >= rules.end_offset:
        return True
    if record.key is None:
        counts.keyless_dropped += 1
        return False
    if rules.latest.get(record.key) > offset:
        return False
    horizon_ms = header.delete_horizon_ms
    return record.has_value or horizon_ms is None or rules.now_ms < horizon_ms


def _needs_horizon(header: BatchHeader, kept: Sequence[RecordSlice], rules: CleaningRules) -> bool:
    """Returns whether a batch has tombstones but no delete horizon yet (the time after which they are dropped)."""
    end_delta = rules.end_offset - header.base_offset
    return header.delete_horizon_ms is None and any(
        not record.has_value and record.offset_delta < end_delta for record in kept
    )


def _can_have_horizon(header: BatchHeader, kept: Sequence[RecordSlice], horizon_ms: int) -> bool:
    """Returns whether the timestamps of `kept` fit as deltas to the delete horizon; if not, tombstones stay."""
    shift_ms = header.base_timestamp - horizon_ms
    return horizon_ms <= MAX_DELTA and all(
        MIN_DELTA <= record.timestamp_delta + shift_ms <= MAX_DELTA for record in kept
    )


def _with_kept(header: BatchHeader, kept: Sequence[RecordSlice]) -> BatchHeader:
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        newest = header.base_timestamp + max(record.timestamp_delta for record in kept)
        max_timestamp = min(max(newest, MIN_DELTA), MAX_DELTA)  # a producer may have given times beyond 64 bits
    return header._replace(max_timestamp=max_timestamp, record_count=len(kept))


def _with_horizon(
    header: BatchHeader, body: bytes, kept: Sequence[RecordSlice], horizon_ms: int
) -> tuple[BatchHeader, bytes]:
    moved = header.with_delete_horizon(horizon_ms)
    shift_ms = header.base_timestamp - horizon_ms
    return (
        moved._replace(max_timestamp=_with_kept(header, kept).max_timestamp, record_count=len(kept)),
        b"".join(_with_timestamp_delta(body, record, record.timestamp_delta + shift_ms) for record in kept),
    )


def _with_timestamp_delta(body: bytes, record: RecordSlice, timestamp_delta: int) -> bytes:
    content = b"\x00" + encode_varint(timestamp_delta) + body[record.rest : record.end]
    return encode_varint(len(content)) + content


def _rebuilt(header: BatchHeader, body: bytes) -> bytes:
    return sealed_batch(header, compress(codec_of(header.codec_id), body))
