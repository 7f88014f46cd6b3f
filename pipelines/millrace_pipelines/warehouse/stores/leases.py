"""Leases tell which operations are writing into a table.

An operation that writes data files holds a lease from before the first file until after the commit, or until its files
are removed. A file that no commit names is garbage exactly if its operation holds no lease; this is asked in four
steps:

    1. list the files         a file's lease is older than the file
    2. list the held leases   an operation without a lease has committed, or never will
    3. fence                  only where a lease had to be ended: a commit that may be on its way can't be made any more
    4. load the table         the files that it names now stay

In a folder a lease is a locked file (`folder_leases`), in a bucket or in HDFS one that expires (`timed_leases`).
Readers of Delta tables pass over names that begin with an underscore. In its lease an operation may note how far it is.

Before each commit the leases of those who make it are confirmed (`confirm_leases`). They are those that the code holds
by whom the commit is made, as its `ContextVar` has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.bucket import Bucket
from millrace_pipelines.warehouse.stores.folder_leases import FolderLeases
from millrace_pipelines.warehouse.stores.hdfs import Hdfs
from millrace_pipelines.warehouse.stores.lease import Asked, Lease, Leases, Running
from millrace_pipelines.warehouse.stores.store import DEAD_LETTERS_SUFFIX, Store
from millrace_pipelines.warehouse.stores.timed_leases import ConditionalStore, TimedLeases
from millrace_pipelines.warehouse.stores.versioned_files import VersionedFiles

_held: ContextVar[tuple[Lease, ...]] = ContextVar("_held", default=())


@contextmanager
def lease(location: str, operation_id: str, fs: FileSystem) -> Iterator[Lease]:
    """Holds an operation's lease on a table and on its dead letters while the context lasts."""
    with _leases_at(location, fs).hold(operation_id) as held:
        token = _held.set((*_held.get(), held))
        try:
            yield held
        finally:
            _held.reset(token)


def confirm_leases() -> None:
    """Confirms the leases that this code holds; raises LeaseLostError where one is lost."""
    for held in _held.get():
        held.confirm()


def sees_lease(location: str, operation_id: str, fs: FileSystem) -> bool:
    """Returns whether this process sees the folder in which an operation holds its lease; a bucket is seen by all."""
    return _leases_at(location, fs).sees(operation_id)


def asked_leases(location: str, fs: FileSystem, *, dry_run: bool = False) -> Asked:
    """Returns who runs on a table; unless `dry_run`, ends the leases of those that don't any more.

    An operation that writes dead letters may hold the lease of the table of rows. Before a file of an operation that
    was ended is removed, a fence has to be made; `forget_ended` is called after it.
    """
    asked = [_leases_at(each, fs).ask(dry_run=dry_run) for each in _holders(location)]
    return Asked(frozenset().union(*(one.held for one in asked)), frozenset().union(*(one.ended for one in asked)))


def held_leases(location: str, fs: FileSystem, *, dry_run: bool = False) -> set[str]:
    """Returns the ids of the operations that run on a table."""
    return set(asked_leases(location, fs, dry_run=dry_run).held)


def forget_ended(location: str, ended: frozenset[str], fs: FileSystem) -> None:
    """Removes leases that were ended, once fences have been made."""
    for each in _holders(location):
        _leases_at(each, fs).forget(ended)


def running(location: str, fs: FileSystem) -> list[Running]:
    """Returns the operations that run on a table, in the order of their ids; it changes nothing."""
    return _leases_at(location, fs).running()


def _holders(location: str) -> set[str]:
    """Returns the tables whose leases tell who writes into a table: itself, and that whose dead letters it has."""
    whole = location.rstrip("/")
    return {whole, whole.removesuffix(DEAD_LETTERS_SUFFIX)}


def conditional(store: Store) -> ConditionalStore | None:
    """Returns the small files of a store that are written on conditions; None for a folder, which has locks."""
    match store:
        case Bucket():
            return store
        case Hdfs():
            return VersionedFiles(store)
    return None


def _leases_at(location: str, fs: FileSystem) -> Leases:
    store = store_at(location, fs)
    files = conditional(store)
    return FolderLeases(store.root, fs) if files is None else TimedLeases(files, CLOCK)
