"""What pyarrow's file systems of all stores but folders have in common; in them no file grows."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from millrace_pipelines.warehouse.errors import StoreError

READ_BYTES = 1 << 16


class RangeReader(io.RawIOBase):
    """A file that is read in ranges, each by a request of its own, but for small ones that follow one another.

    Args:
        size_bytes: The file's size.
        fetch: Returns the bytes of a range, which is given by its start and its length.
    """

    def __init__(self, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size_bytes = size_bytes
        self._fetch = fetch
        self._position = 0
        self._block = b""
        self._block_start = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def seek(self, offset: int, origin: int = io.SEEK_SET) -> int:
        """Sets the position and returns it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = base[origin] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Returns the bytes from the position on, as many as are there of those asked for."""
        rest = max(0, self._size_bytes - self._position)
        length = rest if size is None or size < 0 else min(size, rest)
        start = self._position - self._block_start
        if not 0 <= start <= start + length <= len(self._block):
            self._block = self._fetch(self._position, min(rest, max(length, READ_BYTES)))
            self._block_start = self._position
            start = 0
        self._position += length
        return self._block[start : start + length]


class Writing(Protocol):
    """A file of a store that is being written."""

    def write(self, buffer: memoryview, /) -> int:
        """Writes all of a buffer and returns its length."""

    def close(self) -> None:
        """Completes the file."""


class CountingWriter(io.RawIOBase):
    """A file that is written from its start to its end, and is whole once it is closed.

    Args:
        file: The file in the store.
        errors: Returns a context in which the store's errors become ours.
    """

    def __init__(self, file: Writing, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._file = file
        self._errors = errors
        self._written = 0

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._written

    def write(self, data: Any) -> int:
        """Writes all of the data and returns its length."""
        with self._errors():
            length = self._file.write(memoryview(data).cast("B"))
        self._written += length
        return length

    def close(self) -> None:
        """Completes the file."""
        if not self.closed:
            super().close()
            with self._errors():
                self._file.close()


class StoreFiles(pafs.FileSystemHandler):
    """The files of a store as pyarrow's."""

    @abstractmethod
    def info(self, path: str) -> pafs.FileInfo:
        """Returns what is at a path: a file, a folder, or nothing."""

    def normalize_path(self, path: str) -> str:
        """Returns the path as it is."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Returns what is at each path."""
        return [self.info(path) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Opens a file for reading."""
        return self.open_input_stream(path)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002  # always refused
        """Raises StoreError: files are written once."""
        raise StoreError(f"{path}: nothing is appended to a file of a store")

    def delete_root_dir_contents(self) -> None:
        """Raises StoreError: a store is never emptied."""
        raise StoreError("a store is not emptied")

    def __ne__(self, other: object) -> bool:
        """Returns whether the other one has other files."""
        return not self == other
