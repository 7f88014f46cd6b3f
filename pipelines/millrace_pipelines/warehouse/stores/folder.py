"""A table in a folder of this machine, or in one that all workers see.

Files and names are synced, so that a power cut takes nothing committed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from threading import get_ident

import pyarrow as pa
import pyarrow.fs as pafs

from millrace.fs import TEMPORARY_SUFFIX, FileSystem
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, STAGED, FileIdentity, Store


class Folder(Store):
    """The files of a table in a folder, whose path is absolute."""

    is_local = True

    def __init__(self, path: str, disk: FileSystem) -> None:
        super().__init__(path, pafs.LocalFileSystem(), path)
        self._disk = disk

    def make(self) -> None:
        """Creates the folder."""
        self._disk.mkdir(self.root)

    def output(self, name: str) -> AbstractContextManager[pa.NativeFile]:
        """Opens a new file for writing, in folders that are made; it is complete when the context ends."""
        self._disk.mkdir(os.path.dirname(self.path(name)))
        return self._output(name)

    def sync(self, name: str) -> None:
        """Syncs a file, its name, and the names of the folders above it to the disk."""
        path = self.path(name)
        self._sync_file(path)
        while path != self.root:
            path = os.path.dirname(path)
            self._disk.fsync_dir(path)

    def sync_made(self) -> None:
        """Syncs the name of the table's folder to the disk."""
        self._disk.fsync_dir(os.path.dirname(self.root))

    def sync_commit(self, version: int) -> None:
        """Syncs a version's commit file, its checkpoint, and their names to the disk."""
        log = self.path(LOG_DIRECTORY)
        for name in self._disk.listdir(log):
            is_whole = STAGED not in name  # another's may lose that name at any time
            if is_whole and name.startswith((f"{version:020d}.", "_last_checkpoint")):
                self._sync_file(os.path.join(log, name))
        self._disk.fsync_dir(log)

    def identity(self, name: str) -> FileIdentity:
        """Returns the identity of a file: its table's location and its inode."""
        return FileIdentity(self.location, os.stat(self.path(name)).st_ino)

    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small file durably, by a temporary one that gets its name."""
        folder = os.path.dirname(self.path(name))
        is_new = not self._disk.exists(folder)
        self._disk.mkdir(folder)
        temporary = f"{self.path(name)}.{os.getpid()}-{get_ident()}{TEMPORARY_SUFFIX}"
        fd = self._disk.open(temporary, create=True)
        try:
            self._disk.truncate(fd, 0)
            with self._disk.descriptor(fd) as descriptor:
                identity = FileIdentity(self.location, os.fstat(descriptor).st_ino)
            self._disk.pwritev(fd, [content(identity)], 0)
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        self._disk.rename(temporary, self.path(name))
        self._disk.fsync_dir(folder)
        if is_new:
            self._disk.fsync_dir(os.path.dirname(folder))

    def create(self, name: str, content: bytes) -> None:
        """Creates a small file durably, whole or not at all; raises FileExistsError where there is one."""
        staged = f"{self.path(name)}{STAGED}{uuid.uuid4().int}"
        fd = self._disk.open(staged, create=True)
        try:
            self._disk.pwritev(fd, [content], 0)
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        try:
            os.link(staged, self.path(name))
        finally:
            self._disk.unlink(staged)
        self._disk.fsync_dir(os.path.dirname(staged))

    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes files, which may be gone already; the removal is synced to the disk when this returns."""
        folders = set()
        for name in names:
            if self.size_bytes(name) is not None:
                self.remove(name)
            folders.add(os.path.dirname(self.path(name)))
        for folder in sorted(folders):
            self._disk.fsync_dir(folder)

    def _sync_file(self, path: str) -> None:
        fd = self._disk.open(path)
        try:
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
