"""The one door to the disk for everything that must survive a crash.

`FileSystem` is what the log needs of an operating system, no more; `OsFileSystem` is the
real one and `millrace_support.crash_fs` one that loses power, runs full and fails on demand.
Paths are plain strings. Files are named by integer descriptors, as the operating system does.

Durability: a write reaches the disk by `fsync(fd)`; a created, renamed or deleted name by
`fsync_dir` of its folder; `sync_tree` does both for everything below a folder. Errors of the operating system pass as
`OSError`: their meaning (disk full, bad sector) belongs to the caller.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol

Buffer = bytes | bytearray | memoryview

TEMPORARY_SUFFIX = ".tmp"  # of a file that is not in its place yet
_FALLOC_FL_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
_libc.syncfs.argtypes = (ctypes.c_int,)


class FileSystem(Protocol):
    """The operations on files and folders that Millrace uses; open files are known by descriptor, others by path."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file for reading and writing; raises FileNotFoundError for a missing one unless `create` is set."""

    def close(self, fd: int) -> None:
        """Closes the descriptor; syncs nothing."""

    def size(self, fd: int) -> int:
        """Returns the size of the file in bytes."""

    def modified_ms(self, fd: int) -> int:
        """Returns when the file was last written, in milliseconds since 1970."""

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Sets the time of the last write, which stays until the next write; `fsync` brings it to the disk."""

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Returns up to `length` bytes at `position`; fewer only at the end of the file."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes all buffers one after the other at `position`; returns the number of bytes written."""

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file to `size` bytes, or extends it with zeros."""

    def reserve(self, fd: int, size: int) -> None:
        """Reserves disk space for `size` bytes; the file's size stays. `truncate` frees what is not used."""

    def descriptor(self, fd: int) -> AbstractContextManager[int]:
        """Yields the operating system's own descriptor, for `sendfile`; it is not closed within the context."""

    def make_private(self, fd: int) -> None:
        """Lets nobody but the file's owner open it from now on."""

    def fsync(self, fd: int) -> None:
        """Blocks until the file's bytes and size are on the disk."""

    def fsync_dir(self, path: str) -> None:
        """Blocks until the names in the folder are on the disk."""

    def sync_tree(self, path: str) -> None:
        """Blocks until all bytes and names at and below the folder are on the disk, and perhaps those of others."""

    def lock(self, fd: int) -> None:
        """Locks the file exclusively until its descriptor closes; raises BlockingIOError where it is locked already."""

    def rename(self, source: str, target: str) -> None:
        """Renames `source` to `target`, atomically; a file of that name is replaced."""

    def unlink(self, path: str) -> None:
        """Removes a file's name; raises FileNotFoundError where there is none."""

    def mkdir(self, path: str) -> None:
        """Makes a folder and its parents; does nothing if it exists."""

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted."""

    def exists(self, path: str) -> bool:
        """Returns whether a file or folder has this name."""


class OsFileSystem:
    """The `FileSystem` of the operating system."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file for reading and writing, made if `create` is set; returns its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        """Closes the descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Returns the size of the file in bytes."""
        return os.fstat(fd).st_size

    def modified_ms(self, fd: int) -> int:
        """Returns when the file was last written, in milliseconds since 1970."""
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Sets the time of the last write, in milliseconds since 1970; the time of the last read stays."""
        os.utime(fd, ns=(os.fstat(fd).st_atime_ns, time_ms * 1_000_000))

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Returns up to `length` bytes at a position; goes on after short reads, which Linux makes above 2 GiB."""
        data = os.pread(fd, length, position)
        while 0 < len(data) < length:
            more = os.pread(fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes the buffers at a position and returns the number of bytes; goes on after short writes."""
        total = sum(map(len, buffers))
        written = os.pwritev(fd, buffers, position)
        while written < total:
            rest = b"".join(buffers)[written:]
            written += os.pwrite(fd, rest, position + written)
        return written

    def truncate(self, fd: int, size: int) -> None:
        """Cuts or extends the file to `size` bytes."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, size: int) -> None:
        """Calls fallocate(2); does nothing where the file system does not have it."""
        if _libc.fallocate(fd, _FALLOC_FL_KEEP_SIZE, 0, size):
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(code, os.strerror(code))

    def descriptor(self, fd: int) -> AbstractContextManager[int]:
        """Yields `fd`, which is the operating system's own descriptor."""
        return nullcontext(fd)

    def make_private(self, fd: int) -> None:
        """Sets the file's mode to 600."""
        os.fchmod(fd, 0o600)

    def fsync(self, fd: int) -> None:
        """Syncs the file's bytes and size to the disk."""
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        """Syncs the names in the folder to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> None:
        """Calls syncfs(2), which syncs the folder's whole file system; Linux reports its errors from 5.8 on."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)

    def lock(self, fd: int) -> None:
        """Locks the file by `flock`, against this process too, and by `lockf`, as Kafka does; never waits."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, source: str, target: str) -> None:
        """Renames `source` to `target`, atomically."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Removes a file's name."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Makes a folder and its parents."""
        os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Returns whether a file or folder has this name."""
        return os.path.lexists(path)


def write_file_durably(fs: FileSystem, path: str, content: bytes, *, is_secret: bool = False) -> None:
    """Replaces a small file so that a crash leaves either the old content or the new, never a mixture.

    With `is_secret` nobody but the owner can read it at any moment. After an OSError the old content is there, and
    the new one's bytes are freed.
    """
    temporary = path + TEMPORARY_SUFFIX
    _write_file(fs, temporary, content, sync=True, is_secret=is_secret)
    fs.rename(temporary, path)
    fs.fsync_dir(os.path.dirname(path) or ".")


def write_files_durably(fs: FileSystem, folder: str, contents: Mapping[str, bytes]) -> None:
    """Replaces many small files below a folder, each by its path, and syncs the folders that lead to them.

    It makes two syncs of the whole file system, whatever the number of files: dear for a few, cheap for thousands.
    After an OSError some files have the new content, some the old one.
    """
    for path, content in contents.items():
        _write_file(fs, path + TEMPORARY_SUFFIX, content, sync=False)
    fs.sync_tree(folder)
    for path in contents:
        fs.rename(path + TEMPORARY_SUFFIX, path)
    fs.sync_tree(folder)


def _write_file(fs: FileSystem, path: str, content: bytes, *, sync: bool, is_secret: bool = False) -> None:
    fd = fs.open(path, create=True)
    try:
        fs.truncate(fd, 0)
        if is_secret:
            fs.make_private(fd)
        fs.pwritev(fd, [content], 0)
        if sync:
            fs.fsync(fd)
    except OSError:
        with suppress(OSError):
            fs.unlink(path)
        raise
    finally:
        fs.close(fd)


def file_size(fs: FileSystem, path: str) -> int:
    """Returns a file's size in bytes; raises FileNotFoundError where there is none."""
    fd = fs.open(path)
    try:
        return fs.size(fd)
    finally:
        fs.close(fd)


def read_file(fs: FileSystem, path: str) -> bytes:
    """Returns the whole content of a small file; raises FileNotFoundError where there is none."""
    fd = fs.open(path)
    try:
        return fs.pread(fd, fs.size(fd), 0)
    finally:
        fs.close(fd)
