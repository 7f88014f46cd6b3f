"""Walking the batches of a file from one batch boundary to the next, with reads of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace.records.batch import ATTRIBUTES_POSITION, HEADER_BYTES, BatchHeader, read_header

HEADERS_CHUNK_BYTES = 8 << 10
BATCHES_CHUNK_BYTES = 1 << 20

Placed = tuple[int, BatchHeader]


def scan_headers(
    fs: FileSystem, fd: int, position: int, end: int, chunk_bytes: int = HEADERS_CHUNK_BYTES
) -> Iterator[Placed]:
    """Yield (position, header) of the batches that lie whole between `position` and `end`; CRCs are not looked at.

    Raises RecordError where there is no batch.
    """
    chunk, chunk_position = b"", position
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > chunk_position + len(chunk):
            chunk, chunk_position = fs.pread(fd, min(chunk_bytes, end - position), position), position
            if len(chunk) < HEADER_BYTES:
                raise CorruptRecordError(f"the file ends at {position + len(chunk)}, expected {end}")
        header = read_header(chunk, position - chunk_position)
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def walk_batches(fs: FileSystem, fd: int, end: int) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield (position, header, whether the CRC holds) of each batch up to `end`, which must be a batch's end.

    Raises RecordError where there is no batch, or one that is cut short.
    """
    position = 0
    reader = _Window(fs, fd, end)
    while position < end:
        if end - position < HEADER_BYTES:
            raise CorruptRecordError(f"{end - position} bytes are too few for a batch")
        header = read_header(reader.take(position, HEADER_BYTES))
        if position + header.size_bytes > end:
            raise CorruptRecordError(f"a batch of {header.size_bytes} bytes with {end - position} bytes left")
        yield position, header, reader.crc(position + ATTRIBUTES_POSITION, position + header.size_bytes) == header.crc
        position += header.size_bytes


class _Window:
    """The part of a file last read, at most `BATCHES_CHUNK_BYTES`, as the walk goes forward."""

    def __init__(self, fs: FileSystem, fd: int, end: int) -> None:
        self._fs = fs
        self._fd = fd
        self._end = end
        self._position = 0
        self._bytes = memoryview(b"")

    def take(self, position: int, length: int) -> memoryview:
        """`length` bytes at `position`, at most a chunk; CorruptRecordError where the file is shorter."""
        start = position - self._position
        if start + length > len(self._bytes):
            wanted = min(BATCHES_CHUNK_BYTES, self._end - position)
            self._bytes, self._position, start = memoryview(self._fs.pread(self._fd, wanted, position)), position, 0
            if len(self._bytes) < length:
                raise CorruptRecordError(f"the file ends at {position + len(self._bytes)}, expected {self._end}")
        return self._bytes[start : start + length]

    def crc(self, position: int, end: int) -> int:
        """CRC-32C of the bytes from `position` to `end`, of any length."""
        crc = 0
        while position < end:
            part = self.take(position, min(BATCHES_CHUNK_BYTES, end - position))
            crc = crc32c(part, crc)
            position += len(part)
        return crc
