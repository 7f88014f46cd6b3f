"""PyIceberg's files: those on a disk of this machine are on the disk, with their names, once they are closed.

PyIceberg syncs nothing. A catalog would then name metadata, manifests or a list of them that a power cut takes away.
"""

from __future__ import annotations

import io
import os
from types import TracebackType

import pyarrow.fs as pafs
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from millrace.fs import FileSystem, write_file_durably
from millrace_pipelines.machine import DISK

LOCAL = ("file:", "/")
IMPLEMENTATION = "py-io-impl"


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's file system by pyarrow, but for files that are written to a disk of this machine."""

    def new_output(self, location: str) -> PyArrowFile:
        """Returns a file to be written."""
        if not location.startswith(LOCAL):
            return super().new_output(location)
        _, _, path = self.parse_location(location)
        return _SyncedFile(location, path, pafs.LocalFileSystem())


class _SyncedFile(PyArrowFile):
    """A file of this machine that is written whole, synced, and then gets its name."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Opens the file; raises FileExistsError where it is there, and that is not wanted."""
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} is there already")
        return _SyncedStream(self._path, DISK)


class _SyncedStream(io.BytesIO):
    """What is written to a file, which is durable when the stream is closed, and not there where that never comes."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        super().__init__()
        self._path = path
        self._fs = fs
        self._is_wanted = True

    def close(self) -> None:
        """Writes the file, syncs it and its name."""
        if not self.closed and self._is_wanted:
            make_folders(os.path.dirname(self._path), self._fs)
            write_file_durably(self._fs, self._path, self.getvalue())
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_wanted = kind is None
        super().__exit__(kind, error, trace)


def make_folders(path: str, fs: FileSystem) -> None:
    """Creates a folder and those above it, as far as they are missing, and makes their names durable."""
    if path and not fs.exists(path):
        make_folders(os.path.dirname(path), fs)
        fs.mkdir(path)
        fs.fsync_dir(os.path.dirname(path))
