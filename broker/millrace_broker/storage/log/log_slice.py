"""Batches in a segment's file that are read only when the socket takes them.

The answer to a fetch can hold many megabytes and its reader can be slow, so the answer holds the place of the batches
and not their bytes. A slice keeps the segment's file open, even if retention or compaction takes the segment out
meanwhile; the file is given back with the last reference to the slice.

Where the log is truncated meanwhile, the file ends before the batches do, and nothing is written there again
(`truncation`): what was cut can't be read any more, nor what took its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.errors import StorageError
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.segments.segment import LogSegment


class LogSlice:
    """Whole batches in a file; `len()` is their size in bytes."""

    __slots__ = ("_position", "_segment", "_size_bytes")

    def __init__(self, segment: LogSegment, position: int, size_bytes: int) -> None:
        """Retains the segment; raises StorageError where it is closed already."""
        self._segment: LogSegment | None = None
        if not segment.retain():
            raise StorageError(f"{segment.path}: the segment is closed")
        self._segment = segment
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __del__(self) -> None:
        if self._segment is not None:
            self._segment.release()

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Returns the bytes, or `size_bytes` of them from `start` on.

        Raises StorageError, also where they were cut off.
        """
        assert self._segment is not None
        length = self._size_bytes - start if size_bytes is None else min(size_bytes, self._size_bytes - start)
        with storage_errors(self._segment.path):
            data = self._segment.read_at(self._position + start, length)
        if len(data) < length:
            raise StorageError(f"{self._segment.path}: the log was truncated while its records were read")
        return data

    @contextmanager
    def file(self) -> Iterator[tuple[int, int]]:
        """Lends (descriptor, position) for `sendfile`, within the context, which sends fewer bytes where the file ends.

        Raises StorageError.
        """
        assert self._segment is not None
        with storage_errors(self._segment.path), self._segment.descriptor() as fd:
            yield fd, self._position
