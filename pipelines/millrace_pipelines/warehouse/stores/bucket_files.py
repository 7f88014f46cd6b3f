"""pyarrow's file system over the objects of a bucket, which are read and written by obstore.

Paths begin with the bucket's name. There are no folders: a path is one as long as objects lie below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import NamedTuple, cast

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore

from millrace_pipelines.warehouse.errors import StoreError
from millrace_pipelines.warehouse.stores.refusals import one_line, refusal
from millrace_pipelines.warehouse.stores.store_files import CountingWriter, RangeReader, StoreFiles

PART_BYTES = 8 << 20


class ObjectFacts(NamedTuple):
    """An object: its key in the bucket, its size, when it was last written by the store's clock, and its version."""

    key: str
    size_bytes: int
    modified: datetime
    tag: str | None
    version: str | None


class BucketFiles(StoreFiles):
    """The objects of one bucket as pyarrow's files.

    Args:
        address: The bucket's own address, such as `s3://lake`.
        name: The bucket's name, which paths begin with.
        objects: Its client.
    """

    def __init__(self, address: str, name: str, objects: ObjectStore) -> None:
        self.address = address
        self.name = name
        self.objects = objects

    def key(self, path: str) -> str:
        """Returns the key in the bucket of a path."""
        return path.removeprefix(self.name).strip("/")

    def errors(self, path: str) -> AbstractContextManager[None]:
        """Returns a context in which obstore's errors about a path become those of files, or of stores."""
        return store_errors(f"{self.address}/{self.key(path)}")

    def facts(self, key: str) -> ObjectFacts | None:
        """Returns an object's facts; None where there is none."""
        try:
            with self.errors(key):
                return _facts(obstore.head(self.objects, key))
        except FileNotFoundError:
            return None

    def below(self, prefix: str) -> list[ObjectFacts]:
        """Returns all objects below a prefix, by their keys."""
        with self.errors(prefix):
            found = obstore.list(self.objects, prefix or None, chunk_size=1000)
            return sorted(_facts(one) for chunk in found for one in chunk)

    def get_type_name(self) -> str:
        """Returns a name for this kind of file system."""
        return "bucket"

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Returns the objects below a folder, or the objects and folders in it."""
        folder = self.key(selector.base_dir)
        if selector.recursive:
            infos = [self._file_info(one) for one in self.below(folder)]
        else:
            with self.errors(selector.base_dir):
                found = obstore.list_with_delimiter(self.objects, folder or None)
            folders = [pafs.FileInfo(f"{self.name}/{one}", pafs.FileType.Directory) for one in found["common_prefixes"]]
            infos = [*folders, *(self._file_info(_facts(one)) for one in found["objects"])]
        if not infos and not selector.allow_not_found and folder:
            raise FileNotFoundError(f"{selector.base_dir}: nothing is there")
        return infos

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Opens an object for reading."""
        facts = self.facts(self.key(path))
        if facts is None:
            raise FileNotFoundError(f"{path}: no such object")

        def fetch(start: int, length: int) -> bytes:
            with self.errors(path):
                return bytes(obstore.get_range(self.objects, facts.key, start=start, length=length))

        return pa.PythonFile(RangeReader(facts.size_bytes, fetch), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002  # none is written
        """Opens an object for writing; it is there once it is closed."""
        file = obstore.open_writer(self.objects, self.key(path), buffer_size=PART_BYTES)
        return pa.PythonFile(CountingWriter(file, lambda: self.errors(path)), mode="w")

    def delete_file(self, path: str) -> None:
        """Removes an object, which may be gone already."""
        with self.errors(path):
            obstore.delete(self.objects, self.key(path))

    def create_dir(self, path: str, recursive: bool) -> None:  # pyarrow's signature
        """Does nothing: a bucket has no folders."""

    def delete_dir(self, path: str) -> None:
        """Removes all objects below a path."""
        self.delete_dir_contents(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002
        """Removes all objects below a path."""
        keys = [one.key for one in self.below(self.key(path))]
        with self.errors(path):
            obstore.delete(self.objects, keys)

    def copy_file(self, src: str, dest: str) -> None:
        """Copies an object."""
        with self.errors(src):
            obstore.copy(self.objects, self.key(src), self.key(dest))

    def move(self, src: str, dest: str) -> None:
        """Copies an object and removes it."""
        self.copy_file(src, dest)
        self.delete_file(src)

    def __eq__(self, other: object) -> bool:
        """Returns whether the other one has the same bucket."""
        return isinstance(other, BucketFiles) and (self.name, self.objects) == (other.name, other.objects)

    __hash__ = None  # type: ignore[assignment]  # pyarrow asks for equality only

    def info(self, path: str) -> pafs.FileInfo:
        """Returns what is at a path: an object, a folder of objects, or nothing."""
        facts = self.facts(self.key(path))
        if facts is not None:
            return self._file_info(facts)
        with self.errors(path):
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
def store_errors(where: str) -> Iterator[None]:
    """Raises obstore's errors as those of files, or of stores; a missing object stays FileNotFoundError.

    Args:
        where: The address of what is asked for.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        raise FileExistsError(f"{where}: another version is there") from error
    except (BaseError, FileNotFoundError) as error:
        if (refused := refusal(where, str(error))) is not None:
            raise refused from error
        if isinstance(error, FileNotFoundError):
            raise
        raise StoreError(f"{where}: the store does not do it: {one_line(str(error))}") from error
