"""The records of one batch, decompressed by and by: they may take 500 times the memory that the batch takes.

    block ──chunks──► about `body_bytes` ──► body: the whole records among them, and a header that counts these
                              ▲         └──► the rest, with which the next body begins
                              └──────────────────┘

Each body is decoded as a batch of its own. What none of them shows is checked here: that offsets rise from each to the
next one. The last body is to have all records that are left, so its decoder finds whether they are too few or too
many. What holds less than `body_bytes` is one body, and so is a record that is larger.

`record_times` gives offsets and times alone, in memory that does not grow with what the records hold: all else is
passed over, chunk by chunk, with a pause at each (`millrace.turns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import HEADER_BYTES, BatchHeader, Buffer
from millrace.records.compression import CHUNK_BYTES, STEP_FACTOR, Codec, codec_of, decompressed_chunks
from millrace.records.varint import MAX_VARLONG_BYTES, decode_varint
from millrace.turns import pause

BODY_BYTES = 16 << 20  # most batches hold less, and are one body
CONTINUED = 0x80


class Body(NamedTuple):
    """The bytes of records, decompressed, and the header that a batch of these alone has."""

    header: BatchHeader
    data: Buffer


def bodies_of(header: BatchHeader, batch: memoryview, body_bytes: int) -> Iterator[Body]:
    """Yields the records of one batch, of which `batch` is exactly the bytes; raises what `decompress` raises.

    A batch without a codec is one body, which lies where the batch does.
    """
    codec, block = codec_of(header.codec_id), batch[HEADER_BYTES:]
    if codec is Codec.NONE:
        yield Body(header, block)
        return
    gathered = _Gathered(header, body_bytes)
    chunk_bytes = min(max(CHUNK_BYTES, STEP_FACTOR * len(block)), body_bytes)
    for chunk in decompressed_chunks(codec, block, chunk_bytes=chunk_bytes):
        gathered.add(chunk)
        del chunk  # what is yielded is the reader's alone
        if gathered.has_whole_records():
            yield gathered.whole_records()
    if gathered.is_left:
        yield gathered.rest()


class _Gathered:
    """What is decompressed of a batch, and not yet yielded."""

    def __init__(self, header: BatchHeader, body_bytes: int) -> None:
        self._header = header
        self._body_bytes = self._wanted_bytes = body_bytes
        self._data: Buffer = b""
        self._records_left = header.record_count
        self._last_delta = -1  # of the records that were yielded
        self._whole = _NONE_WHOLE

    def add(self, chunk: Buffer) -> None:
        if not self._data:
            self._data = chunk
            return
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._data)
        self._data += chunk  # large ones grow where they are: joined parts would take the memory twice

    @property
    def is_left(self) -> bool:
        """Whether there is a last body: a batch has one at least, be it empty."""
        return bool(self._data or self._records_left) or self._last_delta < 0

    def has_whole_records(self) -> bool:
        """Returns whether there is enough for a body.

        Raises CorruptRecordError where the header counts no more records.
        """
        if len(self._data) < self._wanted_bytes:
            return False
        if not self._records_left:
            raise CorruptRecordError("bytes follow the last record that the header counts")
        self._whole = _whole_records(self._data, self._records_left)
        if not self._whole.record_count:
            self._wanted_bytes = max(len(self._data) + 1, _first_record_bytes(self._data))
        return self._whole.record_count > 0

    def whole_records(self) -> Body:
        """Returns all whole records, which are gathered no longer."""
        data, (count, last, end) = self._data, self._whole
        self._data = bytes(memoryview(data)[end:])
        self._wanted_bytes = self._body_bytes
        body = self._body(count, data if end == len(data) else memoryview(data)[:end])
        self._last_delta = _offset_delta(data, last)
        return body

    def rest(self) -> Body:
        """Returns what is left."""
        data, self._data = self._data, b""
        return self._body(self._records_left, data)

    def _body(self, count: int, data: Buffer) -> Body:
        if count and self._last_delta >= 0 and _offset_delta(data, 0) <= self._last_delta:
            raise CorruptRecordError("an offset does not follow the one before")
        self._records_left -= count
        return Body(self._header._replace(record_count=count), data)


class _Whole(NamedTuple):
    """How many whole records there are, where the last one begins, and where it ends."""

    record_count: int
    last: int
    end: int


_NONE_WHOLE = _Whole(0, 0, 0)


def _whole_records(data: Buffer, most: int) -> _Whole:
    """Returns the whole records up to a length that is cut short or too long; negative ones the decoder refuses."""
    count = last = position = 0
    size_bytes = len(data)
    try:
        while count < most:
            octet = data[position]
            if octet < CONTINUED:
                end = position + (octet >> 1) + 1
            else:
                length, end = decode_varint(data, position)
                end += max(length, 0)
            if end > size_bytes:
                break
            count, last, position = count + 1, position, end
    except (IndexError, CorruptRecordError):
        return _Whole(count, last, position)
    return _Whole(count, last, position)


def _first_record_bytes(data: Buffer) -> int:
    """Returns the size of the first record, or 0 where its length is cut short; raises CorruptRecordError for none."""
    if len(data) < MAX_VARLONG_BYTES:
        return 0
    length, fields_at = decode_varint(data, 0)
    return fields_at + length


def _offset_delta(data: Buffer, position: int) -> int:
    _, fields_at = decode_varint(data, position)
    _, offset_at = decode_varint(data, fields_at + 1)
    return decode_varint(data, offset_at)[0]


START_BYTES = 31  # at most, of a record up to the end of its offset: three numbers and the attributes


class TimedOffset(NamedTuple):
    """The time and the offset of one record."""

    timestamp_ms: int
    offset: int


class _Bytes:
    """The bytes of a batch's records, of which only those are kept that are looked at."""

    def __init__(self, header: BatchHeader, batch: memoryview) -> None:
        self._chunks = decompressed_chunks(codec_of(header.codec_id), batch[HEADER_BYTES:])
        self.data = b""
        self.at = 0

    def fill(self) -> None:
        """Sees to it that the start of the next record is there, if it comes at all."""
        while len(self.data) - self.at < START_BYTES and (chunk := next(self._chunks, None)) is not None:
            pause()
            passed = max(self.at - len(self.data), 0)  # of a record that runs over what there is
            self.data = self.data[self.at :] + bytes(chunk)
            self.at = passed


def record_times(header: BatchHeader, batch: memoryview) -> Iterator[TimedOffset]:
    """Yields time and offset of each record of a batch, of which `batch` is exactly the bytes."""
    found = _Bytes(header, batch)
    before = -1
    for _ in range(header.record_count):
        found.fill()
        length, position = decode_varint(found.data, found.at)
        timestamp_delta, delta_position = decode_varint(found.data, position + 1)
        offset_delta, _ = decode_varint(found.data, delta_position)
        if length < 0 or not before < offset_delta <= header.last_offset_delta:
            raise CorruptRecordError(f"length {length}, offset delta {offset_delta} behind {before}")
        found.at, before = position + length, offset_delta
        timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
        yield TimedOffset(timestamp_ms, header.base_offset + offset_delta)
