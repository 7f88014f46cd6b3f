"""Leases tell which operations are writing into a table.

    DIR/_running/<operation id>.lease      locked for as long as the operation runs

An operation that writes data files holds a lease from before the first file until after the commit, or until its files
are removed. The lock ends with its process, so a lease that can be locked belongs to a crashed one. A file that no
commit names is garbage exactly if its operation holds no lease; this is asked in three steps:

    1. list the files         a file's lease is older than the file
    2. list the held leases   an operation without a lease has committed, or never will
    3. load the table         the files that it names now stay

A lease gets its name only once it is locked, so that it is never seen unlocked while its operation lives. Readers of
Delta tables pass over names that begin with an underscore. In its lease an operation may note how far it is, in a line
of PROGRESS_BYTES: the time of its start, tasks done, tasks in all, records read. In an object store there are no locks,
and so no leases.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from millrace.fs import TEMPORARY_SUFFIX, FileSystem
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import DEAD_LETTERS_SUFFIX

LEASES_DIRECTORY = "_running"
LEASE_SUFFIX = ".lease"
PROGRESS_BYTES = 84


class Progress(NamedTuple):
    """The progress of a running operation: when it began its tasks, tasks done, all tasks, and records read."""

    started_ms: int
    tasks_done: int
    tasks: int
    records: int


class Running(NamedTuple):
    """An operation that holds a lease; `progress` is None where the operation has noted none."""

    operation_id: str
    started_ms: int
    progress: Progress | None


class Lease:
    """The locked file that shows others that an operation runs; without a descriptor, in a bucket, it does nothing."""

    def __init__(self, fs: FileSystem, fd: int | None = None) -> None:
        self._fs = fs
        self._fd = fd
        self._lock = threading.Lock()  # another thread notes, while the one that holds the lease may end it

    def note(self, progress: Progress) -> None:
        """Writes the operation's progress into the lease file; does nothing once the lease has ended."""
        line = (" ".join(f"{number:20}" for number in progress) + "\n").encode()
        with self._lock, suppress(OSError):  # a disk without room shows itself where rows are written
            if self._fd is not None:
                self._fs.pwritev(self._fd, [line], 0)

    def end(self) -> None:
        """Releases the lock."""
        with self._lock:
            if self._fd is not None:
                self._fs.close(self._fd)
            self._fd = None


@contextmanager
def lease(location: str, operation_id: str, fs: FileSystem) -> Iterator[Lease]:
    """Holds an operation's lease (a locked file) on a table and on its dead letters while the context lasts."""
    store = store_at(location, fs)
    if not store.is_local or not fs.exists(store.root):
        yield Lease(fs)
        return
    leases = os.path.join(store.root, LEASES_DIRECTORY)
    path = os.path.join(leases, operation_id + LEASE_SUFFIX)
    fs.mkdir(leases)
    fd = fs.open(path + TEMPORARY_SUFFIX, create=True)
    held = Lease(fs, fd)
    try:
        fs.lock(fd)
        fs.rename(path + TEMPORARY_SUFFIX, path)
        yield held
    finally:
        with suppress(FileNotFoundError):
            fs.unlink(path)
        held.end()


def sees_lease(location: str, operation_id: str, fs: FileSystem) -> bool:
    """Returns whether this process sees the folder in which an operation holds its lease; a bucket is seen by all."""
    store = store_at(location, fs)
    return not store.is_local or fs.exists(os.path.join(store.root, LEASES_DIRECTORY, operation_id + LEASE_SUFFIX))


def held_leases(location: str, fs: FileSystem, *, dry_run: bool = False) -> set[str]:
    """Returns the ids of the operations that run on a table; unless `dry_run`, removes the lease files of crashed ones.

    An operation that writes dead letters may hold the lease of the table of rows.
    """
    store = store_at(location, fs)
    if not store.is_local:
        return set()
    rows = store.root.removesuffix(DEAD_LETTERS_SUFFIX)
    return {operation_id for root in {store.root, rows} for operation_id in _held_in(root, fs, dry_run)}


def running(location: str, fs: FileSystem) -> list[Running]:
    """Returns the operations that run on a table, in the order of their ids; it changes nothing."""
    found = (_running(location, one, fs) for one in sorted(held_leases(location, fs, dry_run=True)))
    return [one for one in found if one is not None]


def _running(location: str, operation_id: str, fs: FileSystem) -> Running | None:
    path = os.path.join(store_at(location, fs).root, LEASES_DIRECTORY, operation_id + LEASE_SUFFIX)
    try:
        fd = fs.open(path)
    except FileNotFoundError:  # it has just ended
        return None
    try:
        if fs.size(fd) < PROGRESS_BYTES:
            return Running(operation_id, fs.modified_ms(fd), None)
        progress = Progress(*map(int, fs.pread(fd, PROGRESS_BYTES, 0).split()))
        return Running(operation_id, progress.started_ms, progress)
    finally:
        fs.close(fd)


def _held_in(root: str, fs: FileSystem, dry_run: bool) -> set[str]:
    leases = os.path.join(root, LEASES_DIRECTORY)
    if not fs.exists(leases):
        return set()
    names = [name for name in fs.listdir(leases) if name.endswith(LEASE_SUFFIX)]
    return {name.removesuffix(LEASE_SUFFIX) for name in names if _is_held(os.path.join(leases, name), fs, dry_run)}


def _is_held(path: str, fs: FileSystem, dry_run: bool) -> bool:
    try:
        fd = fs.open(path)
    except FileNotFoundError:
        return False
    try:
        fs.lock(fd)
        if not dry_run:
            with suppress(FileNotFoundError):
                fs.unlink(path)
    except BlockingIOError:
        return True
    finally:
        fs.close(fd)
    return False
