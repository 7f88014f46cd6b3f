"""The log directories of Kafka 0.7, read as they are (docs/formats/legacy-0.7.md).

    <log.dir>/
      <topic>_<partition>/
        <position of the first byte, 11 to 20 digits>.kafka      messages, one after the other

A file's name says at which position of the partition's log it begins, so each begins where the one before ends.
Files are read in chunks; memory holds a chunk, or one message and its decompressed payloads.

After a broken message the next one is searched: first where the broken one says that it ends, then byte by byte for a
possible length, a magic and a CRC that holds. The bytes between are reported as `Damage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from millrace.errors import CorruptRecordError, LogError, RecordError
from millrace.fs import FileSystem
from millrace.records.legacy import LENGTH, MIN_BODY_BYTES, payloads_of, read_body

FILE_NAME = re.compile(r"(\d+)\.kafka")
CHUNK_BYTES = 1 << 20
MAX_MESSAGE_BYTES = (16 << 20) - 1
MAX_DECOMPRESSED_BYTES = 64 << 20
SEARCH_EFFORT = 64  # bytes of candidates that are checked for each byte searched

# Where a message may begin: a length from MIN_BODY_BYTES to MAX_MESSAGE_BYTES, and a magic.
PLAUSIBLE_START = re.compile(rb"(?=\x00(?:\x00\x00[\x05-\xff]|\x00[\x01-\xff].|[\x01-\xff]..)[\x00\x01])", re.DOTALL)
PLAUSIBLE_START_BYTES = LENGTH.size + 1


class LegacyFile(NamedTuple):
    """One file of a partition's log; positions are those of Kafka 0.7, in bytes of the whole log."""

    path: str
    first_position: int
    size_bytes: int

    @property
    def end_position(self) -> int:
        """Returns the position where the next file begins."""
        return self.first_position + self.size_bytes


class LegacyPartition(NamedTuple):
    """A partition's files in the order of the log."""

    partition: int
    files: tuple[LegacyFile, ...]


class Payloads(NamedTuple):
    """The payloads of one message, several where it was compressed, and its position in the file."""

    position: int
    size_bytes: int
    payloads: list[bytes]


class Damage(NamedTuple):
    """Bytes at a position of a file that are no message, and why."""

    position: int
    size_bytes: int
    reason: str


def find_partitions(fs: FileSystem, directory: str, topic: str) -> list[LegacyPartition]:
    """Returns the partitions of a topic, by number, in a log directory, or the one that the directory itself is.

    A partition's directory may have any name; its number is what follows the last underscore, or 0. Raises LogError
    where there is no such partition.
    """
    directory = directory.rstrip("/") or "/"
    names = fs.listdir(directory)
    if any(FILE_NAME.fullmatch(name) for name in names):
        match = re.search(r"_(\d+)$", directory)
        return [LegacyPartition(int(match[1]) if match else 0, _files(fs, directory))]
    matches = [match for name in names if (match := re.fullmatch(rf"{re.escape(topic)}_(\d+)", name))]
    if not matches:
        raise LogError(f"{directory}: no directory {topic}_N and no file N.kafka")
    found = [LegacyPartition(int(match[1]), _files(fs, f"{directory}/{match[0]}")) for match in matches]
    return sorted(found)


def read_partition(
    fs: FileSystem, partition: LegacyPartition, position: int = 0
) -> Iterator[tuple[LegacyFile, Payloads | Damage]]:
    """Yields each message or damage in a partition's files from a position on, at which one of them begins.

    Damage at a file's end may be an incomplete message.
    """
    for file, following in pairwise((*partition.files, None)):
        assert file is not None
        if position >= file.end_position and following is not None:
            continue
        for item in read_file(fs, file.path, max(position - file.first_position, 0)):
            yield file, item
        if following is not None and following.first_position != file.end_position:
            missing_bytes = following.first_position - file.end_position
            reason = f"the log goes on at position {following.first_position}, not at {file.end_position}"
            yield file, Damage(file.size_bytes, max(missing_bytes, 0), reason)


def read_file(fs: FileSystem, path: str, position: int = 0) -> Iterator[Payloads | Damage]:
    """Yields each message or damage in a file, in order, from a position on, at which one of them begins."""
    fd = fs.open(path)
    try:
        reader = _Reader(fs, fd)
        while position < reader.size_bytes:
            try:
                item: Payloads | Damage = _read_message(reader, position)
            except RecordError as error:
                item = Damage(position, _next_message(reader, position) - position, str(error))
            yield item
            position += item.size_bytes
    finally:
        fs.close(fd)


class _Reader:
    """Reads a file at any position, and keeps the chunk that was read last."""

    def __init__(self, fs: FileSystem, fd: int) -> None:
        self._fs = fs
        self._fd = fd
        self.size_bytes = fs.size(fd)
        self._position = 0
        self._chunk = b""

    def take(self, position: int, length: int) -> memoryview:
        """Returns `length` bytes at `position`; raises CorruptRecordError where the file ends before."""
        start = position - self._position
        if start < 0 or start + length > len(self._chunk):
            self._chunk = self._fs.pread(self._fd, max(length, CHUNK_BYTES), position)
            self._position, start = position, 0
            if len(self._chunk) < length:
                raise CorruptRecordError(f"{len(self._chunk)} bytes are left, expected {length}")
        return memoryview(self._chunk)[start : start + length]


def _read_message(reader: _Reader, position: int) -> Payloads:
    length = _read_length(reader, position)
    message = read_body(reader.take(position + LENGTH.size, length))
    return Payloads(position, LENGTH.size + length, list(payloads_of(message, MAX_DECOMPRESSED_BYTES)))


def _read_length(reader: _Reader, position: int) -> int:
    (length,) = LENGTH.unpack(reader.take(position, LENGTH.size))
    left_bytes = reader.size_bytes - position - LENGTH.size
    if not MIN_BODY_BYTES <= length <= MAX_MESSAGE_BYTES:
        raise CorruptRecordError(f"a message can't have {length} bytes")
    if length > left_bytes:
        raise CorruptRecordError(f"a message of {length} bytes, but {left_bytes} bytes are left")
    return int(length)


def _next_message(reader: _Reader, position: int) -> int:
    """Returns where the message after a broken one begins, or the file's end."""
    try:
        claimed = position + LENGTH.size + _read_length(reader, position)
    except RecordError:
        return _search_message(reader, position + 1)
    if claimed == reader.size_bytes or _is_message(reader, claimed):
        return claimed
    return _search_message(reader, position + 1)


def _search_message(reader: _Reader, begin: int) -> int:
    """Returns the first position from `begin` on where a whole message lies, or the file's end.

    A candidate that is too long for the effort that is left is skipped: effort grows with each byte searched, so bytes
    that look like lengths of megabytes do not make the search endless.
    """
    position, checked_bytes = begin, 0
    while reader.size_bytes - position >= PLAUSIBLE_START_BYTES:
        chunk = bytes(reader.take(position, min(CHUNK_BYTES, reader.size_bytes - position)))
        for match in PLAUSIBLE_START.finditer(chunk):
            candidate = position + match.start()
            (length,) = LENGTH.unpack_from(chunk, match.start())
            if checked_bytes + length > MAX_MESSAGE_BYTES + SEARCH_EFFORT * (candidate - begin):
                continue
            checked_bytes += length
            if _is_message(reader, candidate):
                return candidate
        position += len(chunk) - PLAUSIBLE_START_BYTES + 1
    return reader.size_bytes


def _is_message(reader: _Reader, position: int) -> bool:
    try:
        read_body(reader.take(position + LENGTH.size, _read_length(reader, position)))
    except RecordError:
        return False
    return True


def _files(fs: FileSystem, directory: str) -> tuple[LegacyFile, ...]:
    matches = filter(None, map(FILE_NAME.fullmatch, fs.listdir(directory)))
    by_position = sorted((int(match[1]), match[0]) for match in matches)
    return tuple(_file(fs, f"{directory}/{name}", first_position) for first_position, name in by_position)


def _file(fs: FileSystem, path: str, first_position: int) -> LegacyFile:
    fd = fs.open(path)
    try:
        return LegacyFile(path, first_position, fs.size(fd))
    finally:
        fs.close(fd)
