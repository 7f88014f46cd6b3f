"""Where a table's files lie: a folder of this machine (or one that all workers see), or a bucket of S3.

    /srv/warehouse/flights        a folder: files and names are synced, so that a power cut takes nothing committed
    s3://bucket/flights           an object store with conditional put: an object is durable once its upload ends

Data files go through pyarrow, commits through delta-rs. For S3 both take keys, region and endpoint from the
environment of each process, driver and workers alike: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
AWS_REGION, AWS_ENDPOINT_URL.

Leases tell which operations are writing into a table:

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

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from zlib import crc32

import pyarrow as pa
import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace.fs import TEMPORARY_SUFFIX, FileSystem

DEAD_LETTERS_SUFFIX = "__dead_letters"
LOG_DIRECTORY = "_delta_log"
LINEAGE_FOLDER = "_lineage"
S3 = "s3"
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


class TableFiles:
    """The files of one table.

    Attributes:
        location: The table as delta-rs names it: an absolute path, or `s3://…`.
        storage_options: Options for delta-rs, beside what it takes from the environment.
        filesystem: pyarrow's file system with the files.
        root: The path of the table's folder in `filesystem`.
    """

    def __init__(
        self,
        location: str,
        filesystem: pafs.FileSystem,
        root: str,
        *,
        disk: FileSystem | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self.location = location
        self.filesystem = filesystem
        self.root = root
        self.storage_options = storage_options
        self._disk = disk

    @property
    def is_local(self) -> bool:
        """Returns whether the table is a folder."""
        return self._disk is not None

    def path(self, name: str) -> str:
        """Returns the path in `filesystem` of one of the table's files."""
        return f"{self.root}/{name}"

    def make(self) -> None:
        """Creates the table's folder; does nothing for an object store."""
        if self._disk is not None:
            self._disk.mkdir(self.root)

    @contextmanager
    def output(self, name: str) -> Iterator[pa.NativeFile]:
        """Opens a new file for writing, in folders that are made; it is complete when the context ends."""
        if self._disk is not None:
            self._disk.mkdir(os.path.dirname(self.path(name)))
        with self.filesystem.open_output_stream(self.path(name)) as stream:
            yield stream

    def sync(self, name: str) -> None:
        """Syncs a file, its name, and the names of the folders above it to the disk."""
        if self._disk is None:
            return
        path = self.path(name)
        _sync_file(path, self._disk)
        while path != self.root:
            path = os.path.dirname(path)
            self._disk.fsync_dir(path)

    def sync_made(self) -> None:
        """Syncs the name of the table's folder to the disk."""
        if self._disk is not None:
            self._disk.fsync_dir(os.path.dirname(self.root))

    def sync_commit(self, version: int) -> None:
        """Syncs a version's commit file, its checkpoint, and their names to the disk."""
        if self._disk is None:
            return
        log = self.path(LOG_DIRECTORY)
        for name in self._disk.listdir(log):
            is_whole = STAGED not in name  # another's may lose that name at any time
            if is_whole and name.startswith((f"{version:020d}.", "_last_checkpoint")):
                _sync_file(os.path.join(log, name), self._disk)
        self._disk.fsync_dir(log)

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

    def identity(self, name: str) -> FileIdentity:
        """Returns the identity of a file: its table's location and its inode."""
        return FileIdentity(self.location, os.stat(self.path(name)).st_ino if self.is_local else None)

    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small file durably; `content` gets the new file's identity. A crash leaves the old or new one."""
        if self._disk is None:
            with self.filesystem.open_output_stream(self.path(name)) as stream:
                stream.write(content(FileIdentity(self.location, None)))
            return
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
        """Creates a small file in a folder durably, whole or not at all; raises FileExistsError where there is one."""
        assert self._disk is not None
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

    def remove(self, name: str) -> None:
        """Removes a file; raises FileNotFoundError where there is none."""
        self.filesystem.delete_file(self.path(name))

    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes files, which may be gone already; the removal is synced to the disk when this returns."""
        folders = set()
        for name in names:
            if self.size_bytes(name) is not None:
                self.remove(name)
            folders.add(os.path.dirname(self.path(name)))
        if self._disk is not None:
            for folder in sorted(folders):
                self._disk.fsync_dir(folder)

    def names(self) -> list[str]:
        """Returns the names of all files outside of the table's log, sorted; none where there is no folder."""
        selector = pafs.FileSelector(self.root, recursive=True, allow_not_found=True)
        found = [info.path for info in self.filesystem.get_file_info(selector) if info.type is pafs.FileType.File]
        names = [path.removeprefix(f"{self.root}/") for path in found]
        return sorted(name for name in names if not name.startswith(f"{LOG_DIRECTORY}/"))


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


def store_at(location: str, disk: FileSystem) -> TableFiles:
    """Returns the files of the table at a location; raises WarehouseError for an address that is no folder or s3://."""
    address = urlsplit(location)
    if len(address.scheme) < 2 or "://" not in location:
        path = os.path.abspath(location)
        if unquote(path) != path:
            raise WarehouseError(
                f"{location}: Delta Lake would take this for {unquote(path)}; give the folder another name"
            )
        return TableFiles(path, pafs.LocalFileSystem(), path, disk=disk)
    if address.scheme != S3 or not address.netloc or not address.path.strip("/"):
        raise WarehouseError(f"{location}: a table is a folder, or s3://bucket/path")
    root = f"{address.netloc}{address.path}".rstrip("/")
    return TableFiles(f"s3://{root}", _s3(), root, storage_options=_delta_options())


def bucket_at(location: str) -> tuple[pafs.FileSystem, str] | None:
    """Returns the file system of a bucket and the path in it; None for a folder of this machine.

    Raises:
        WarehouseError: A kind of address that is not served.
    """
    address = urlsplit(location)
    if len(address.scheme) < 2 or "://" not in location:
        return None
    if address.scheme != S3 or not address.netloc:
        raise WarehouseError(f"{location}: tables are in a folder, or in s3://bucket or below")
    return _s3(), f"{address.netloc}{address.path}".rstrip("/")


def _s3() -> pafs.FileSystem:
    return pafs.S3FileSystem(
        region=os.environ.get("AWS_REGION"), endpoint_override=os.environ.get("AWS_ENDPOINT_URL") or None
    )


def _delta_options() -> dict[str, str]:
    """Returns options for delta-rs: a commit fails if its object exists; plain HTTP only for an http:// endpoint."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return {"conditional_put": "etag"} | ({"allow_http": "true"} if endpoint.startswith("http://") else {})


def _sync_file(path: str, disk: FileSystem) -> None:
    fd = disk.open(path)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)


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
