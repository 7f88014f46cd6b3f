"""Leases in a folder: files that are locked for as long as their operation runs.

    DIR/_running/<operation id>.lease

The lock ends with its process, so a lease that can be locked belongs to a crashed one, which will commit no more. A
lease gets its name only once it is locked, so that it is never seen unlocked while its operation lives. Progress is a
line of PROGRESS_BYTES: the time of the start, tasks done, tasks in all, records read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millrace.fs import TEMPORARY_SUFFIX, FileSystem
from millrace_pipelines.warehouse.stores.lease import (
    LEASE_SUFFIX,
    LEASES_DIRECTORY,
    Asked,
    Lease,
    NoLease,
    Progress,
    Running,
)

PROGRESS_BYTES = 84


class LockedFile:
    """The locked file of an operation that runs."""

    def __init__(self, fs: FileSystem, fd: int) -> None:
        self._fs = fs
        self._fd: int | None = fd
        self._lock = threading.Lock()  # another thread notes, while the one that holds the lease may end it

    def note(self, progress: Progress) -> None:
        """Writes the operation's progress into the file; does nothing once the lease has ended."""
        line = (" ".join(f"{number:20}" for number in progress) + "\n").encode()
        with self._lock, suppress(OSError):  # a disk without room shows itself where rows are written
            if self._fd is not None:
                self._fs.pwritev(self._fd, [line], 0)

    def confirm(self) -> None:
        """Does nothing: nobody can take the lock from a process that lives."""

    def end(self) -> None:
        """Releases the lock."""
        with self._lock:
            if self._fd is not None:
                self._fs.close(self._fd)
            self._fd = None


class FolderLeases:
    """The leases of a table in a folder."""

    def __init__(self, root: str, fs: FileSystem) -> None:
        self._root = root
        self._folder = os.path.join(root, LEASES_DIRECTORY)
        self._fs = fs

    @contextmanager
    def hold(self, operation_id: str) -> Iterator[Lease]:
        """Holds an operation's lease while the context lasts; none where the table's folder isn't there."""
        if not self._fs.exists(self._root):
            yield NoLease()
            return
        path = self._path(operation_id)
        self._fs.mkdir(self._folder)
        fd = self._fs.open(path + TEMPORARY_SUFFIX, create=True)
        held = LockedFile(self._fs, fd)
        try:
            self._fs.lock(fd)
            self._fs.rename(path + TEMPORARY_SUFFIX, path)
            yield held
        finally:
            with suppress(FileNotFoundError):
                self._fs.unlink(path)
            held.end()

    def sees(self, operation_id: str) -> bool:
        """Returns whether the operation's file is there."""
        return self._fs.exists(self._path(operation_id))

    def ask(self, *, dry_run: bool) -> Asked:
        """Returns who runs; unless `dry_run`, removes the files of crashed operations."""
        held = (name for name in self._names() if self._is_held(os.path.join(self._folder, name), dry_run=dry_run))
        return Asked(frozenset(name.removesuffix(LEASE_SUFFIX) for name in held), frozenset())

    def forget(self, ended: frozenset[str]) -> None:
        """Does nothing: a lease that was ended is gone."""

    def running(self) -> list[Running]:
        """Returns the operations that run, in the order of their ids."""
        found = (self._running(one) for one in sorted(self.ask(dry_run=True).held))
        return [one for one in found if one is not None]

    def _path(self, operation_id: str) -> str:
        return os.path.join(self._folder, operation_id + LEASE_SUFFIX)

    def _names(self) -> list[str]:
        if not self._fs.exists(self._folder):
            return []
        return [name for name in self._fs.listdir(self._folder) if name.endswith(LEASE_SUFFIX)]

    def _running(self, operation_id: str) -> Running | None:
        try:
            fd = self._fs.open(self._path(operation_id))
        except FileNotFoundError:  # it has just ended
            return None
        try:
            if self._fs.size(fd) < PROGRESS_BYTES:
                return Running(operation_id, self._fs.modified_ms(fd), None)
            progress = Progress(*map(int, self._fs.pread(fd, PROGRESS_BYTES, 0).split()))
            return Running(operation_id, progress.started_ms, progress)
        finally:
            self._fs.close(fd)

    def _is_held(self, path: str, *, dry_run: bool) -> bool:
        try:
            fd = self._fs.open(path)
        except FileNotFoundError:
            return False
        try:
            self._fs.lock(fd)
            if not dry_run:
                with suppress(FileNotFoundError):
                    self._fs.unlink(path)
        except BlockingIOError:
            return True
        finally:
            self._fs.close(fd)
        return False
