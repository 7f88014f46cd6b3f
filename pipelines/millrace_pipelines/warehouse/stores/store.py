"""The door to a table's files, wherever they lie: what every store does, and the names that all of them share.

Data files go through pyarrow, commits through delta-rs, small files through this door.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.fs as pafs

DEAD_LETTERS_SUFFIX = "__dead_letters"
LOG_DIRECTORY = "_delta_log"
LINEAGE_FOLDER = "_lineage"
STAGED = "#"
"""Stands in the temporary names under which delta-rs writes its log's files."""


def dead_letters_dir(table_dir: str) -> str:
    """Returns the folder of a table's dead letters."""
    return table_dir.rstrip("/") + DEAD_LETTERS_SUFFIX


class FileIdentity(NamedTuple):
    """The place of a file: the table's location, and the file's inode, None in an object store."""

    path: str
    inode: int | None

    def is_same_file(self, other: FileIdentity) -> bool:
        """Returns whether both are the same file: after a move the inode is the same, on another mount the path."""
        return self.path == other.path or (self.inode is not None and self.inode == other.inode)


class Store(ABC):
    """The files of one table.

    Attributes:
        is_local: Whether the table is a folder.
        location: The table as delta-rs names it: an absolute path, or `s3://…`.
        filesystem: pyarrow's file system with the files.
        root: The path of the table's folder in `filesystem`.
        storage_options: Options for delta-rs, beside what it takes from the environment.
    """

    is_local: bool

    def __init__(
        self, location: str, filesystem: pafs.FileSystem, root: str, storage_options: dict[str, str] | None = None
    ) -> None:
        self.location = location
        self.filesystem = filesystem
        self.root = root
        self.storage_options = storage_options

    @abstractmethod
    def make(self) -> None:
        """Creates the table's folder; does nothing for an object store."""

    @abstractmethod
    def output(self, name: str) -> AbstractContextManager[pa.NativeFile]:
        """Opens a new file for writing, in folders that are made; it is complete when the context ends."""

    @abstractmethod
    def sync(self, name: str) -> None:
        """Makes a file and its name durable."""

    @abstractmethod
    def sync_made(self) -> None:
        """Makes the name of the table's folder durable."""

    @abstractmethod
    def sync_commit(self, version: int) -> None:
        """Makes a version's commit file, its checkpoint, and their names durable."""

    @abstractmethod
    def identity(self, name: str) -> FileIdentity:
        """Returns the identity of a file."""

    @abstractmethod
    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small file durably; `content` gets the new file's identity. A crash leaves the old or new one."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Creates a small file durably, whole or not at all; raises FileExistsError where there is one."""

    @abstractmethod
    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes files, which may be gone already; the removal is durable when this returns."""

    def path(self, name: str) -> str:
        """Returns the path in `filesystem` of one of the table's files."""
        return f"{self.root}/{name}"

    def size_bytes(self, name: str) -> int | None:
        """Returns the size of a file; None where there is none."""
        [info] = self.filesystem.get_file_info([self.path(name)])
        return info.size if info.type is pafs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        """Returns the content of a small file; None where there is none."""
        if self.size_bytes(name) is None:
            return None
        with self.filesystem.open_input_file(self.path(name)) as file:
            return file.read()

    def remove(self, name: str) -> None:
        """Removes a file; raises FileNotFoundError where there is none."""
        self.filesystem.delete_file(self.path(name))

    def names(self) -> list[str]:
        """Returns the names of all files outside of the table's log, sorted; none where there is no folder."""
        selector = pafs.FileSelector(self.root, recursive=True, allow_not_found=True)
        found = [info.path for info in self.filesystem.get_file_info(selector) if info.type is pafs.FileType.File]
        names = [path.removeprefix(f"{self.root}/") for path in found]
        return sorted(name for name in names if not name.startswith(f"{LOG_DIRECTORY}/"))

    @contextmanager
    def _output(self, name: str) -> Iterator[pa.NativeFile]:
        with self.filesystem.open_output_stream(self.path(name)) as stream:
            yield stream


def checked_json(name: str, said: object, indent: int | None = None) -> bytes:
    """Returns the JSON of a small file: the value `said` under a name, and its CRC-32."""
    return json.dumps({name: said, "crc32": _checksum(said)}, indent=indent).encode()


def said_in(content: bytes | None, name: str) -> list[Any]:
    """Returns the value in content of `checked_json`; an empty list where the content is None or damaged."""
    try:
        found = json.loads(content or b"")
        said: list[Any] = found[name]
        return said if found["crc32"] == _checksum(said) else []
    except (ValueError, KeyError, TypeError):
        return []


def _checksum(said: object) -> int:
    return crc32(json.dumps(said).encode())
