"""Telling valid batches from damage in a segment's file, by nothing but its bytes.

    .log   := ( batch | damage )*
    batch  := RecordBatch v2 whose CRC-32C holds, or a message v0 or v1 whose CRC-32 holds
    damage := what lies between the end of one valid batch and the beginning of the next one, or the file's end

A log's own batches are of format v2 (`batch_behind`). One is looked for first where the damaged batch ends by its
length, then at every byte: records may hold bytes that look like batches, and the length passes over them. The search
looks for the magic byte, and so reads each byte once, a chunk at a time.

A batch is valid if its magic, its bounds and its CRC are, and if its offset belongs in the segment and is not below the
one expected. Offsets of a segment differ in their low 31 bits only, so the search looks for the bytes that they have in
common; the other rules then decide.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
)
from millrace.records.checksum import crc32c
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET, checksum

CHUNK_BYTES = 1 << 20
_MESSAGE = struct.Struct(">qiIb")
_MIN_MESSAGE_BYTES = {0: 14, 1: 22}
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class ValidBatch(NamedTuple):
    """The place and the offsets of a batch (format v2), or of a message of format v0 or v1, whose CRC holds."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        """The position in the file right after the batch."""
        return self.position + self.size_bytes


class Damage(NamedTuple):
    """A stretch of a file in which no valid batch begins, and why the first one there is invalid."""

    position: int
    size_bytes: int
    reason: str


class SearchBounds(NamedTuple):
    """The limits within which a batch counts as valid: it ends by byte `end`, its offsets are `lowest`..`highest`."""

    end: int
    lowest: int
    highest: int


def segment_bounds(end: int, base_offset: int, lowest: int = 0) -> SearchBounds:
    """Returns the bounds for batches of a segment's file of `end` bytes whose offsets are `lowest` or above."""
    return SearchBounds(end, min(max(base_offset, lowest), MAX_LONG), min(base_offset + MAX_RELATIVE_OFFSET, MAX_LONG))


def examine(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> Iterator[ValidBatch | Damage]:
    """Yields the valid batches and damaged stretches of a file from `position` on, without a gap. Raises OSError."""
    while position < bounds.end:
        try:
            found = batch_at(fs, fd, position, bounds)
            _check_gap(fs, fd, found, bounds)
        except CorruptRecordError as error:
            resume = next_batch(fs, fd, position + 1, bounds)
            yield Damage(position, resume - position, str(error))
            position = resume
        else:
            yield found
            position += found.size_bytes
            bounds = bounds._replace(lowest=found.last_offset + 1)


def batch_at(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> ValidBatch:
    """Returns the valid batch that begins at `position`; raises CorruptRecordError, with the reason, if none does."""
    head = fs.pread(fd, min(HEADER_BYTES, bounds.end - position), position)
    if len(head) < _MESSAGE.size:
        raise CorruptRecordError(f"{len(head)} bytes are too few for a batch")
    parse = _batch if head[MAGIC_POSITION] == MAGIC_V2 else _message
    found = parse(fs, fd, position, head, bounds)
    if not bounds.lowest <= found.base_offset <= found.last_offset <= bounds.highest:
        raise CorruptRecordError(
            f"offsets {found.base_offset} to {found.last_offset} where {bounds.lowest} or more is expected"
        )
    return found


def _check_gap(fs: FileSystem, fd: int, found: ValidBatch, bounds: SearchBounds) -> None:
    """Raises CorruptRecordError if `found` skips offsets, but the batch behind it begins below its end offset."""
    end = found.position + found.size_bytes
    if found.base_offset == bounds.lowest or end >= bounds.end:
        return
    try:
        following = batch_at(fs, fd, end, bounds)
    except CorruptRecordError:
        return
    if following.base_offset <= found.last_offset:
        raise CorruptRecordError(f"offset {found.base_offset}, and the next batch has offset {following.base_offset}")


def next_batch(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> int:
    """Returns the position of the next valid batch of any format at or behind `position`; `bounds.end` without one."""
    prefix = _common_prefix(bounds)
    while position < bounds.end:
        chunk = fs.pread(fd, min(CHUNK_BYTES, bounds.end - position), position)
        if not chunk:  # the file was cut short
            break
        at = chunk.find(prefix)
        while at >= 0:
            if _may_begin(chunk, at, bounds.end - position) and _is_batch(fs, fd, position + at, bounds):
                return position + at
            at = chunk.find(prefix, at + 1)
        position += max(len(chunk) - len(prefix) + 1, 1)
    return bounds.end


def batch_behind(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> ValidBatch | None:
    """Returns the first valid batch of format v2 behind the damage at `position`; None without one. Raises OSError."""
    head = fs.pread(fd, _OFFSET_AND_LENGTH.size, position)
    if len(head) == _OFFSET_AND_LENGTH.size:
        end = position + LOG_OVERHEAD_BYTES + _OFFSET_AND_LENGTH.unpack(head)[1]
        if position < end and (found := valid_at(fs, fd, end, bounds)) is not None:
            return found
    position, magic, prefix = position + 1, bytes([MAGIC_V2]), _common_prefix(bounds)
    while bounds.end - position >= HEADER_BYTES:
        chunk = fs.pread(fd, min(CHUNK_BYTES, bounds.end - position), position)
        if len(chunk) < HEADER_BYTES:  # the file was cut short
            break
        at = chunk.find(magic, MAGIC_POSITION)
        while at >= 0:
            start = at - MAGIC_POSITION
            if chunk.startswith(prefix, start) and _may_begin(chunk, start, bounds.end - position):
                found = valid_at(fs, fd, position + start, bounds)
                if found is not None:
                    return found
            at = chunk.find(magic, at + 1)
        position += max(len(chunk) - MAGIC_POSITION, 1)
    return None


def valid_at(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> ValidBatch | None:
    """Returns the valid batch of format v2 that begins at `position`; None without one. Raises OSError."""
    head = fs.pread(fd, min(HEADER_BYTES, max(bounds.end - position, 0)), position)
    if len(head) < HEADER_BYTES or head[MAGIC_POSITION] != MAGIC_V2:
        return None
    try:
        return batch_at(fs, fd, position, bounds)
    except CorruptRecordError:
        return None


def _common_prefix(bounds: SearchBounds) -> bytes:
    """Returns the leading bytes that the encoded base offsets of all batches within the bounds share."""
    differing_bytes = ((bounds.lowest ^ bounds.highest).bit_length() + 7) // 8
    return bounds.highest.to_bytes(8, "big")[: 8 - differing_bytes]


def _may_begin(chunk: bytes, at: int, end: int) -> bool:
    """Returns false if a batch that begins at `chunk[at]` would, by its length field, end behind position `end`."""
    if at + _OFFSET_AND_LENGTH.size > len(chunk):
        return True
    length: int = _OFFSET_AND_LENGTH.unpack_from(chunk, at)[1]
    return _MIN_MESSAGE_BYTES[0] <= length <= end - at - LOG_OVERHEAD_BYTES


def _is_batch(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> bool:
    try:
        batch_at(fs, fd, position, bounds)
    except CorruptRecordError:
        return False
    return True


def _batch(fs: FileSystem, fd: int, position: int, head: bytes, bounds: SearchBounds) -> ValidBatch:
    if len(head) < HEADER_BYTES:
        raise CorruptRecordError(f"{len(head)} bytes are too few for a batch")
    header = BatchHeader._make(HEADER.unpack(head))
    _check_length(header.batch_length, HEADER_BYTES - LOG_OVERHEAD_BYTES, position, bounds.end)
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptRecordError(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    end = position + header.size_bytes
    if checksum(fs, fd, position + ATTRIBUTES_POSITION, end, crc32c) != header.crc:
        raise CorruptRecordError(f"CRC-32C of the batch at offset {header.base_offset} is wrong")
    return ValidBatch(position, header.size_bytes, header.base_offset, header.last_offset)


def _message(fs: FileSystem, fd: int, position: int, head: bytes, bounds: SearchBounds) -> ValidBatch:
    offset, length, crc, magic = _MESSAGE.unpack_from(head)
    if magic not in _MIN_MESSAGE_BYTES:
        raise CorruptRecordError(f"magic {magic} is no message format")
    _check_length(length, _MIN_MESSAGE_BYTES[magic], position, bounds.end)
    end = position + LOG_OVERHEAD_BYTES + length
    if checksum(fs, fd, position + MAGIC_POSITION, end, zlib.crc32) != crc:
        raise CorruptRecordError(f"CRC-32 of the message at offset {offset} is wrong")
    return ValidBatch(position, end - position, offset, offset)


def _check_length(length: int, minimum: int, position: int, end: int) -> None:
    if not minimum <= length <= end - position - LOG_OVERHEAD_BYTES:
        raise CorruptRecordError(f"length {length} with {end - position} bytes left")
