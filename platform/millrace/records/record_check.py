"""Whether the bytes of a produced batch are the records that its header counts, and what a topic may refuse of them.

- There are as many records as the header counts, and nothing behind them.
- Their offset deltas are 0, 1, 2 and so on.
- A record ends where its length says. Its fields lie in it, and -1 alone is the length of null.
- A header has a key, which need not be UTF-8.
- A number has at most five bytes, and a time ten. A time that leaves 64 bits counts as the last one within.

Bytes that break one of these rules raise InvalidRecordError. A record without a key, or with a time out of the range of
the rules, is only named. The bytes come in chunks that may be cut anywhere, and none are kept. The compiled kernel does
it (`record_check.c`), and Python where there is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.kernel import native
from millrace.records.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Buffer
from millrace.records.varint import decode_varint

REFUSED_MAX = 10_000
NULL_LENGTH = -1
MIN_HEADER_BYTES = 2
INT_BYTES, LONG_BYTES = 5, 10
CONTINUED = 0x80
MIN_LONG = -MAX_LONG - 1

Refused = list[tuple[int, int | None]]
Numbers = Generator[None, None, int]
Steps = Generator[None, None, None]
RecordCheck: TypeAlias = "PlainRecordCheck | native.RecordCheck"


class RecordRules(NamedTuple):
    """A topic's rules for records: whether they need a key, and the range of timestamps; -1 is always allowed."""

    needs_keys: bool = False
    earliest: int = MIN_LONG
    latest: int = MAX_LONG


NO_RULES = RecordRules()


def new_record_check(header: BatchHeader, rules: RecordRules = NO_RULES) -> RecordCheck:
    """Returns a check of a batch's records, made by the record kernel if it is compiled."""
    wanted = header.record_count, header.base_timestamp, *rules
    return PlainRecordCheck(*wanted) if native is None else native.RecordCheck(*wanted)


def check_in_place(batches: Buffer, position: int, header: BatchHeader) -> int:
    """Returns the largest timestamp of an uncompressed batch, whose bytes are at `position` in `batches`.

    Raises InvalidRecordError for malformed records.
    """
    begin, end = position + HEADER_BYTES, position + header.size_bytes
    if native is not None:
        return native.check_records(batches, begin, end, header.record_count, header.base_timestamp)
    check = new_record_check(header)
    check.feed(memoryview(batches)[begin:end])
    return check.end()[0]


is_valid_batch: Callable[[Buffer], bool] = getattr(native, "is_valid_batch", lambda _: False)
"""Whether bytes are one batch, without a codec, to which a leader has nothing to object, but for what a topic asks.

False says nothing: where the kernel has no CRC-32C for this processor, it is false of all.
"""


class PlainRecordCheck:
    """The check of one batch's records in Python: `feed` takes their decompressed bytes, `end` returns the result."""

    def __init__(self, record_count: int, base_timestamp: int, needs_keys: bool, earliest: int, latest: int) -> None:
        self._record_count = record_count
        self._base_timestamp = base_timestamp
        self._rules = RecordRules(needs_keys, earliest, latest)
        self._refused: Refused = []
        self._max_timestamp = NO_TIMESTAMP
        self._index = 0  # of the record at hand
        self._data = b""
        self._at = 0
        self._before = 0  # bytes of earlier chunks
        self._steps = self._read_records()
        next(self._steps)

    def feed(self, chunk: Buffer, /) -> None:
        """Checks the next chunk of the records' bytes; raises InvalidRecordError for malformed records."""
        self._before += len(self._data)
        self._data, self._at = bytes(chunk), 0
        if self._data:
            next(self._steps)

    def end(self) -> tuple[int, Refused]:
        """Returns the largest timestamp, -1 at least, and (index, timestamp) of refused records, 10,000 at most.

        The timestamp is None for a record without a key. Raises InvalidRecordError where bytes are missing.
        """
        if self._index != self._record_count:
            self._at = len(self._data)
            raise self._wrong("the bytes end before the last record that the header counts")
        return self._max_timestamp, self._refused

    # Each step is a generator that yields where the chunk ends, and goes on with the next one.

    def _read_records(self) -> Steps:
        yield
        while True:
            self._skip_plain_records()
            while self._at == len(self._data):
                yield
            if self._index == self._record_count:
                raise self._wrong("bytes follow the last record that the header counts")
            yield from self._read_record()

    def _read_record(self) -> Steps:
        length = yield from self._number(INT_BYTES)
        if length < 0:
            raise self._wrong("a record's length is negative")
        end = self._position + length
        yield from self._skip(1)  # attributes, of which none is defined
        timestamp = self._timestamp_of((yield from self._number(LONG_BYTES)))
        self._max_timestamp = max(self._max_timestamp, timestamp)
        if (yield from self._number(INT_BYTES)) != self._index:
            raise self._wrong("an offset delta is not the record's place in the batch")
        has_key = (yield from self._skip_field(end, NULL_LENGTH)) != NULL_LENGTH
        if not self._is_right(timestamp, has_key=has_key) and len(self._refused) < REFUSED_MAX:
            self._refused.append((self._index, timestamp if has_key or not self._rules.needs_keys else None))
        yield from self._skip_field(end, NULL_LENGTH)
        yield from self._skip_headers(end)
        if self._position != end:
            raise self._wrong("a record's fields end where its length does not say")
        self._index += 1

    def _skip_headers(self, end: int) -> Steps:
        count = yield from self._number(INT_BYTES)
        if count < 0 or MIN_HEADER_BYTES * count > end - self._position:
            raise self._wrong("a record can't have so many headers")
        for _ in range(count):
            yield from self._skip_field(end, 0)
            yield from self._skip_field(end, NULL_LENGTH)

    def _skip_field(self, end: int, least: int) -> Numbers:
        length = yield from self._number(INT_BYTES)
        if not least <= length <= end - self._position:
            raise self._wrong("a field's length is negative, or runs over its record")
        yield from self._skip(length)
        return length

    def _skip(self, size: int) -> Steps:
        while size > len(self._data) - self._at:
            size -= len(self._data) - self._at
            self._at = len(self._data)
            yield
        self._at += max(size, 0)

    def _number(self, most_bytes: int) -> Numbers:
        zigzag = shift = 0
        for place in itertools.count():
            while self._at == len(self._data):
                yield
            octet = self._data[self._at]
            self._at += 1
            if place >= most_bytes or (place == LONG_BYTES - 1 and octet > 1):
                raise self._wrong("a number is too long")
            zigzag |= (octet & 0x7F) << shift
            shift += 7
            if octet < CONTINUED:
                break
        return (zigzag >> 1) ^ -(zigzag & 1)

    def _skip_plain_records(self) -> None:
        """Skips records of the usual form (whole in the chunk, without headers, not refused) quickly.

        Stops at any other record, which `_read_record` then checks in detail.
        """
        data, at = self._data, self._at
        try:
            while self._index < self._record_count:
                length, fields_at = decode_varint(data, at)
                delta, offset_at = decode_varint(data, fields_at + 1)
                offset_delta, key_at = decode_varint(data, offset_at)
                key_length, after_key = decode_varint(data, key_at)
                value_at = after_key + max(key_length, 0)
                value_length, after_value = decode_varint(data, value_at)
                most_bytes = max(fields_at - at, key_at - offset_at, after_key - key_at, after_value - value_at)
                at, end = after_value + max(value_length, 0), fields_at + length
                timestamp = self._timestamp_of(delta)
                if (
                    length < 0
                    or most_bytes > INT_BYTES
                    or offset_delta != self._index
                    or min(key_length, value_length) < NULL_LENGTH
                    or at + 1 != end
                    or data[at]
                    or not self._is_right(timestamp, has_key=key_length >= 0)
                ):
                    return
                self._max_timestamp = max(self._max_timestamp, timestamp)
                self._index += 1
                self._at = at = end
        except (IndexError, CorruptRecordError):
            return

    def _timestamp_of(self, delta: int) -> int:
        return min(max(self._base_timestamp + delta, MIN_LONG), MAX_LONG)

    def _is_right(self, timestamp: int, *, has_key: bool) -> bool:
        needs_keys, earliest, latest = self._rules
        return (has_key or not needs_keys) and (earliest <= timestamp <= latest or timestamp == NO_TIMESTAMP)

    @property
    def _position(self) -> int:
        return self._before + self._at

    def _wrong(self, what: str) -> InvalidRecordError:
        return InvalidRecordError(f"record {self._index}, at byte {self._position} of the batch's records: {what}")
