"""pyarrow's file system over the objects of a bucket, which are read and written by obstore.

Paths begin with the bucket's name. There are no folders: a path is one as long as objects lie below it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, cast

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore

from millrace_pipelines.warehouse.errors import StoreDeniedError, StoreError

READ_BYTES = 1 << 16
PART_BYTES = 8 << 20


class ObjectFacts(NamedTuple):
    """An object: its key in the bucket, its size, when it was last written by the store's clock, and its version."""

    key: str
    size_bytes: int
    modified: datetime
    tag: str | None
    version: str | None


class ObjectReader(io.RawIOBase):
    """An object that is read in ranges, each by a request of its own, but for small ones that follow one another."""

    def __init__(self, objects: ObjectStore, facts: ObjectFacts) -> None:
        self._objects = objects
        self._facts = facts
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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._facts.size_bytes}
        self._position = base[origin] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Returns the bytes from the position on, as many as are there of those asked for."""
        rest = max(0, self._facts.size_bytes - self._position)
        length = rest if size is None or size < 0 else min(size, rest)
        start = self._position - self._block_start
        if not 0 <= start <= start + length <= len(self._block):
            self._fetch(min(rest, max(length, READ_BYTES)))
            start = 0
        self._position += length
        return self._block[start : start + length]

    def _fetch(self, length: int) -> None:
        with store_errors(self._facts.key):
            found = obstore.get_range(self._objects, self._facts.key, start=self._position, length=length)
        self._block, self._block_start = bytes(found), self._position


class ObjectWriter(io.RawIOBase):
    """An object that is written in parts, and is there once it is closed."""

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._key = key
        self._file = obstore.open_writer(objects, key, buffer_size=PART_BYTES)
        self._written = 0

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._written

    def write(self, data: Any) -> int:
        """Writes all of the data and returns its length."""
        with store_errors(self._key):
            length = self._file.write(memoryview(data).cast("B"))
        self._written += length
        return length

    def close(self) -> None:
        """Completes the object."""
        if not self.closed:
            super().close()
            with store_errors(self._key):
                self._file.close()


class BucketFiles(pafs.FileSystemHandler):
    """The objects of one bucket as pyarrow's files; `name` is the bucket's, which paths begin with."""

    def __init__(self, name: str, objects: ObjectStore) -> None:
        self.name = name
        self.objects = objects

    def key(self, path: str) -> str:
        """Returns the key in the bucket of a path."""
        return path.removeprefix(self.name).strip("/")

    def facts(self, key: str) -> ObjectFacts | None:
        """Returns an object's facts; None where there is none."""
        try:
            with store_errors(f"{self.name}/{key}"):
                return _facts(obstore.head(self.objects, key))
        except FileNotFoundError:
            return None

    def below(self, prefix: str) -> list[ObjectFacts]:
        """Returns all objects below a prefix, by their keys."""
        with store_errors(f"{self.name}/{prefix}"):
            found = obstore.list(self.objects, prefix or None, chunk_size=1000)
            return sorted(_facts(one) for chunk in found for one in chunk)

    def get_type_name(self) -> str:
        """Returns a name for this kind of file system."""
        return "bucket"

    def normalize_path(self, path: str) -> str:
        """Returns the path as it is."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Returns what is at each path: an object, a folder of objects, or nothing."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Returns the objects below a folder, or the objects and folders in it."""
        folder = self.key(selector.base_dir)
        if selector.recursive:
            infos = [self._file_info(one) for one in self.below(folder)]
        else:
            with store_errors(selector.base_dir):
                found = obstore.list_with_delimiter(self.objects, folder or None)
            folders = [pafs.FileInfo(f"{self.name}/{one}", pafs.FileType.Directory) for one in found["common_prefixes"]]
            infos = [*folders, *(self._file_info(_facts(one)) for one in found["objects"])]
        if not infos and not selector.allow_not_found and folder:
            raise FileNotFoundError(f"{selector.base_dir}: nothing is there")
        return infos

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Opens an object for reading."""
        return self.open_input_stream(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Opens an object for reading."""
        facts = self.facts(self.key(path))
        if facts is None:
            raise FileNotFoundError(f"{path}: no such object")
        return pa.PythonFile(ObjectReader(self.objects, facts), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002  # none is written
        """Opens an object for writing; it is there once it is closed."""
        return pa.PythonFile(ObjectWriter(self.objects, self.key(path)), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002  # always refused
        """Raises StoreError: objects don't grow."""
        raise StoreError(f"{path}: an object can't be appended to")

    def delete_file(self, path: str) -> None:
        """Removes an object, which may be gone already."""
        with store_errors(path):
            obstore.delete(self.objects, self.key(path))

    def create_dir(self, path: str, recursive: bool) -> None:  # pyarrow's signature
        """Does nothing: a bucket has no folders."""

    def delete_dir(self, path: str) -> None:
        """Removes all objects below a path."""
        self.delete_dir_contents(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002
        """Removes all objects below a path."""
        keys = [one.key for one in self.below(self.key(path))]
        with store_errors(path):
            obstore.delete(self.objects, keys)

    def delete_root_dir_contents(self) -> None:
        """Raises StoreError: a bucket is never emptied."""
        raise StoreError(f"{self.name}: a bucket is not emptied")

    def copy_file(self, src: str, dest: str) -> None:
        """Copies an object."""
        with store_errors(src):
            obstore.copy(self.objects, self.key(src), self.key(dest))

    def move(self, src: str, dest: str) -> None:
        """Copies an object and removes it."""
        self.copy_file(src, dest)
        self.delete_file(src)

    def __eq__(self, other: object) -> bool:
        """Returns whether the other one has the same bucket."""
        return isinstance(other, BucketFiles) and (self.name, self.objects) == (other.name, other.objects)

    def __ne__(self, other: object) -> bool:
        """Returns whether the other one has another bucket."""
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # pyarrow asks for equality only

    def _info(self, path: str) -> pafs.FileInfo:
        facts = self.facts(self.key(path))
        if facts is not None:
            return self._file_info(facts)
        with store_errors(path):
            inside = obstore.list_with_delimiter(self.objects, self.key(path) or None)
        is_folder = bool(inside["objects"] or inside["common_prefixes"])
        return pafs.FileInfo(path, pafs.FileType.Directory if is_folder else pafs.FileType.NotFound)

    def _file_info(self, one: ObjectFacts) -> pafs.FileInfo:
        return pafs.FileInfo(
            f"{self.name}/{one.key}", pafs.FileType.File, size=one.size_bytes, mtime=one.modified.timestamp()
        )


def _facts(meta: object) -> ObjectFacts:
    said = cast("dict[str, object]", meta)
    return ObjectFacts(
        str(said["path"]),
        cast("int", said["size"]),
        cast("datetime", said["last_modified"]),
        cast("str | None", said["e_tag"]),
        cast("str | None", said["version"]),
    )


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Raises obstore's errors as those of files, or of stores; a missing object stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (AlreadyExistsError, PreconditionError) as error:
        raise FileExistsError(f"{path}: another version is there") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise StoreDeniedError(f"{path}: the store refuses this with these credentials: {_sentence(error)}") from error
    except BaseError as error:
        raise StoreError(f"{path}: the store does not do it: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """Returns the first line of an error of obstore, which goes on with its source's data."""
    return str(error).partition("\n")[0].partition("<?xml")[0].strip()
