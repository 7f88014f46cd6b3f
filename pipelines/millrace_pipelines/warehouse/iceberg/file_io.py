"""PyIceberg's files: those on a disk of this machine are on the disk, with their names, once they are closed.

PyIceberg syncs nothing. A catalog would then name metadata, manifests or a list of them that a power cut takes away.

Files in buckets are reached as data files are (`stores`), with the same options and credentials; only where the catalog
has settings of its own for that kind of store, or gives credentials with a table, PyIceberg's file systems are used.
"""

from __future__ import annotations

import io
import os
from types import TracebackType
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from millrace.fs import FileSystem, write_file_durably
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.stores.addresses import bucket_at

LOCAL = ("file:", "/")
IMPLEMENTATION = "py-io-impl"
SCHEMES = {"s3a": "s3", "s3n": "s3"}
OWN_SETTINGS = {"s3": "s3.", "gs": "gcs.", "abfss": "adls.", "hdfs": "hdfs."}
"""By the scheme of a store, how the settings of a catalog begin that are for its files."""


def address_in_stores(location: str) -> str:
    """Returns where a file or table is as `stores` name it, from its location in Iceberg's metadata."""
    scheme, colon, rest = location.partition(":")
    if not colon:
        return location.rstrip("/")
    if scheme == "file":
        return f"/{rest.strip('/')}"
    return f"{SCHEMES.get(scheme, scheme)}:{rest.rstrip('/')}"


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's files by pyarrow, but for those that are written to a disk of this machine, and those in stores."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Returns the scheme and host of a location, and its path in the file system that they have."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        container, at, _ = netloc.partition("@")
        return scheme, netloc, f"{container}{urlsplit(location).path}" if at else path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> pafs.FileSystem:
        own = OWN_SETTINGS.get(scheme := SCHEMES.get(scheme, scheme))
        if own is None or any(name.startswith(own) for name in self.properties):
            return super()._initialize_fs(scheme, netloc)
        bucket = bucket_at(f"{scheme}://{netloc}/")
        assert bucket is not None  # as the scheme is that of a store
        return bucket.filesystem

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
