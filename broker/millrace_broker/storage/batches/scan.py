"""Walks over the batches of a file, from one batch boundary to the next, with reads of bounded size."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    BatchHeader,
    read_header,
)
from millrace.records.checksum import crc32c

HEADERS_CHUNK_BYTES = 8 << 10
BATCHES_CHUNK_BYTES = 256 << 10  # still in the processor's cache when its CRC is computed

MAX_RELATIVE_OFFSET = 2**31 - 1  # of a segment's last offset, over its base offset

Placed = tuple[int, BatchHeader]

_OFFSET = struct.Struct(">q")
_EXTENT = struct.Struct(">qi4xb6xi")  # base offset, batch length, magic, last offset delta


class Located(NamedTuple):
    """The place of neighbouring whole batches in a file; `data` is their bytes if they were read, else None."""

    position: int
    size_bytes: int
    data: bytes | None


class FoundBatch(NamedTuple):
    """The place of one batch in a file, and the chunk of bytes (part of the batch, or more) in which the search met it.

    `following_offset` is the base offset of the batch after it, None where that is not in the chunk.
    """

    position: int
    size_bytes: int
    next_offset: int
    chunk: bytes
    chunk_position: int
    base_offset: int
    following_offset: int | None

    @property
    def end(self) -> int:
        """The position in the file right after the batch."""
        return self.position + self.size_bytes


def scan_headers(fs: FileSystem, fd: int, position: int, end: int) -> Iterator[Placed]:
    """Yields (position, header) of each batch from `position` up to `end`, which must be a batch's end.

    CRCs are not checked. Raises RecordError where there is no batch, or one that is cut short.
    """
    chunk, chunk_position = b"", position
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > chunk_position + len(chunk):
            chunk, chunk_position = fs.pread(fd, min(HEADERS_CHUNK_BYTES, end - position), position), position
            if len(chunk) < HEADER_BYTES:
                raise CorruptRecordError(f"the file ends at {position + len(chunk)}, expected {end}")
        header = read_header(chunk, position - chunk_position, chunk_position)
        if position + header.size_bytes > end:
            break
        yield position, header
        position += header.size_bytes
    _check_end(position, end)


def find_batch(  # noqa: PLR0917 -- a range of a file, and what is looked for in it
    fs: FileSystem, fd: int, position: int, end: int, offset: int, limit: int = MAX_LONG
) -> FoundBatch | None:
    """Returns the first batch up to `end` whose last offset is `offset` or above, or that ends behind position `limit`.

    Returns None if there is none; raises RecordError where there is no whole batch. It decodes only the header fields
    that it needs and calls nothing per batch, as every read waits for it.
    """
    chunk, chunk_position, chunk_end = b"", position, position
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > chunk_end:
            chunk, chunk_position = fs.pread(fd, min(HEADERS_CHUNK_BYTES, end - position), position), position
            chunk_end = position + len(chunk)
            if len(chunk) < HEADER_BYTES:
                raise CorruptRecordError(f"the file ends at {chunk_end}, expected {end}")
        base_offset, length, magic, last_offset_delta = _EXTENT.unpack_from(chunk, position - chunk_position)
        if magic != MAGIC_V2 or length < HEADER_BYTES - LOG_OVERHEAD_BYTES or last_offset_delta < 0:
            read_header(chunk, position - chunk_position, chunk_position)  # says what is wrong
        following = position + LOG_OVERHEAD_BYTES + length
        if following > end:
            break
        if base_offset + last_offset_delta >= offset or following > limit:
            next_offset, behind = base_offset + last_offset_delta + 1, following - chunk_position
            following_offset = _OFFSET.unpack_from(chunk, behind)[0] if following + _OFFSET.size <= chunk_end else None
            fields = position, following - position, next_offset, chunk, chunk_position, base_offset, following_offset
            return tuple.__new__(FoundBatch, fields)
        position = following
    _check_end(position, end)
    return None


def offset_at(fs: FileSystem, fd: int, position: int) -> int:
    """Returns the base offset of the batch at a position. Raises CorruptRecordError where the file ends, or OSError."""
    data = fs.pread(fd, _OFFSET.size, position)
    if len(data) < _OFFSET.size:
        raise CorruptRecordError(f"the file ends at {position + len(data)}, and a batch is expected at {position}")
    return int(_OFFSET.unpack(data)[0])


def _check_end(position: int, end: int) -> None:
    if position != end:  # an index that is damaged may lead behind the end
        raise CorruptRecordError(f"the {end - position} bytes at position {position} are no whole batches")


def walk_batches(fs: FileSystem, fd: int, end: int, position: int = 0) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yields (position, header, whether the CRC holds) of each batch from a position up to `end`, a batch's end.

    Raises RecordError where there is no batch, or one that is cut short.
    """
    chunk, chunk_position = memoryview(b""), position
    while position < end:
        start = position - chunk_position
        if start + HEADER_BYTES > len(chunk):
            chunk, chunk_position, start = _chunk(fs, fd, position, end), position, 0
        header = read_header(chunk, start, chunk_position)
        size_bytes = LOG_OVERHEAD_BYTES + header.batch_length
        stop = start + size_bytes
        if stop > len(chunk):
            if position + size_bytes > end:
                raise CorruptRecordError(f"a batch of {size_bytes} bytes with {end - position} bytes left")
            if size_bytes <= BATCHES_CHUNK_BYTES:
                chunk, chunk_position, start, stop = _chunk(fs, fd, position, end), position, 0, size_bytes
                if stop > len(chunk):
                    raise CorruptRecordError(f"the file ends at {position + len(chunk)}, expected {end}")
        crc = crc32c(chunk[start + ATTRIBUTES_POSITION : stop])
        if stop > len(chunk):
            crc = checksum(fs, fd, chunk_position + len(chunk), position + size_bytes, crc32c, crc)
        yield position, header, crc == header.crc
        position += size_bytes


def _chunk(fs: FileSystem, fd: int, position: int, end: int) -> memoryview:
    """Returns the next bytes before `end`, fewer where the file ends; raises CorruptRecordError for less than a header.

    The batches in front of the end of a file that was cut short are whole.
    """
    if end - position < HEADER_BYTES:
        raise CorruptRecordError(f"{end - position} bytes are too few for a batch")
    chunk = fs.pread(fd, min(BATCHES_CHUNK_BYTES, end - position), position)
    if len(chunk) < HEADER_BYTES:
        raise CorruptRecordError(f"the file ends at {position + len(chunk)}, expected {end}")
    return memoryview(chunk)


def checksum(  # noqa: PLR0917 -- bytes of a file, and what is done with them
    fs: FileSystem, fd: int, position: int, end: int, update: Callable[[bytes, int], int], before: int = 0
) -> int:
    """Returns the checksum of the bytes from `position` to `end`; raises CorruptRecordError if the file is shorter.

    `update` computes it, such as `crc32c`; `before` is the checksum of the bytes in front of these.
    """
    while position < end:
        part = fs.pread(fd, min(BATCHES_CHUNK_BYTES, end - position), position)
        if not part:
            raise CorruptRecordError(f"the file ends at {position}, expected {end}")
        before = update(part, before)
        position += len(part)
    return before
