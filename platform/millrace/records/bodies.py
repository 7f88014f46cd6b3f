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
    """The decompressed bytes of some records of a batch, and the header of a batch of just these records."""

    header: BatchHeader
    data: Buffer


def bodies_of(header: BatchHeader, batch: memoryview, body_bytes: int) -> Iterator[Body]:
    """Yields the records of one batch in bodies (decompressed bytes) of about `body_bytes` each.

    `batch` is exactly the bytes of the batch. A batch without a codec is one body, a view of these bytes. Raises
    CorruptRecordError, UnsupportedCodecError or RecordTooLargeError.
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
    """Collects a batch's decompressed chunks, and cuts them into bodies, which have only whole records."""

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
        """Whether `rest` has a body to return: bytes or records are left, or there was no body yet."""
        return bool(self._data or self._records_left) or self._last_delta < 0

    def has_whole_records(self) -> bool:
        """Returns whether the gathered bytes are enough for a body.

        Raises CorruptRecordError for bytes beyond the header's count of records.
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
        """Removes all whole records from the gathered bytes, and returns them as a body."""
        data, (count, last, end) = self._data, self._whole
        self._data = bytes(memoryview(data)[end:])
        self._wanted_bytes = self._body_bytes
        body = self._body(count, data if end == len(data) else memoryview(data)[:end])
        self._last_delta = _offset_delta(data, last)
        return body

    def rest(self) -> Body:
        """Removes all gathered bytes that are left, and returns them as the batch's last body."""
        data, self._data = self._data, b""
        return self._body(self._records_left, data)

    def _body(self, count: int, data: Buffer) -> Body:
        if count and self._last_delta >= 0 and _offset_delta(data, 0) <= self._last_delta:
            raise CorruptRecordError("an offset does not follow the one before")
        self._records_left -= count
        return Body(self._header._replace(record_count=count), data)


class _Whole(NamedTuple):
    """How many whole records are in some bytes, and the positions where the last of them begins and ends."""

    record_count: int
    last: int
    end: int


_NONE_WHOLE = _Whole(0, 0, 0)


def _whole_records(data: Buffer, most: int) -> _Whole:
    """Returns how many whole records, up to `most`, the bytes begin with; does not check for negative lengths."""
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
    """Returns the size of the first record, 0 if the bytes are too few to tell; raises CorruptRecordError."""
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
    """The timestamp in milliseconds and the offset of one record."""

    timestamp_ms: int
    offset: int


class _Bytes:
    """A window on a batch's decompressed records; bytes before the position `at` are dropped."""

    def __init__(self, header: BatchHeader, batch: memoryview) -> None:
        self._chunks = decompressed_chunks(codec_of(header.codec_id), batch[HEADER_BYTES:])
        self.data = b""
        self.at = 0

    def fill(self) -> None:
        """Decompresses until the window has the first `START_BYTES` of the next record, or the batch ends."""
        while len(self.data) - self.at < START_BYTES and (chunk := next(self._chunks, None)) is not None:
            pause()
            passed = max(self.at - len(self.data), 0)  # of a record that runs over what there is
            self.data = self.data[self.at :] + bytes(chunk)
            self.at = passed


def record_times(header: BatchHeader, batch: memoryview) -> Iterator[TimedOffset]:
    """Yields timestamp and offset of each record; `batch` is exactly a batch's bytes. Raises CorruptRecordError."""
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
