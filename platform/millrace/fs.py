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
    """Files by descriptor, names by path."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing; `create` makes an empty file where none is. FileNotFoundError else."""
        ...

    def close(self, fd: int) -> None:
        """Give the descriptor back; syncs nothing."""
        ...

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        ...

    def modified_ms(self, fd: int) -> int:
        """When the file was last written, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Let the file count as last written at `time_ms`, until it is written to; `fsync` takes that to the disk."""
        ...

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Up to `length` bytes at `position`; fewer only at the end of the file."""
        ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after the other at `position`; returns the bytes written, which is all of them."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut, or extend with zeros, to `size` bytes."""
        ...

    def reserve(self, fd: int, size: int) -> None:
        """Take room on the disk for `size` bytes; the file's size stays. `truncate` gives back what is not used."""
        ...

    def descriptor(self, fd: int) -> AbstractContextManager[int]:
        """The operating system's own descriptor, for `sendfile`; it is not closed within the context."""
        ...

    def fsync(self, fd: int) -> None:
        """Block until the file's bytes and size are on the disk."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Block until the names in the folder are on the disk."""
        ...

    def sync_tree(self, path: str) -> None:
        """Block until all bytes and names at and below the folder are on the disk; others' may be waited for too."""
        ...

    def lock(self, fd: int) -> None:
        """Take the file's exclusive lock until the descriptor closes; BlockingIOError where another one has it."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Put `source` in the place of `target` atomically."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name; FileNotFoundError where there is none."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents; fine if it exists."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name."""
        ...


class OsFileSystem:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        return os.fstat(fd).st_size

    def modified_ms(self, fd: int) -> int:
        """When the file was last written."""
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Set the time of the last write; the time of the last read stays."""
        os.utime(fd, ns=(os.fstat(fd).st_atime_ns, time_ms * 1_000_000))

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read at a position; goes on after short reads, which Linux makes above 2 GiB."""
        data = os.pread(fd, length, position)
        while 0 < len(data) < length:
            more = os.pread(fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position; goes on after short writes."""
        total = sum(map(len, buffers))
        written = os.pwritev(fd, buffers, position)
        while written < total:
            rest = b"".join(buffers)[written:]
            written += os.pwrite(fd, rest, position + written)
        return written

    def truncate(self, fd: int, size: int) -> None:
        """Set the file's size."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, size: int) -> None:
        """fallocate(2); nothing where the file system knows no such thing."""
        if _libc.fallocate(fd, _FALLOC_FL_KEEP_SIZE, 0, size):
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(code, os.strerror(code))

    def descriptor(self, fd: int) -> AbstractContextManager[int]:
        """The same."""
        return nullcontext(fd)

    def fsync(self, fd: int) -> None:
        """Sync bytes and size."""
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        """Sync the folder's names."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> None:
        """syncfs(2): the whole file system that the folder is on, errors told by Linux from 5.8 on."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)

    def lock(self, fd: int) -> None:
        """Lock without waiting, by both kinds of lock: `flock` excludes this process too, `lockf` is Java's."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents."""
        os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Sorted names."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Whether the name exists."""
        return os.path.lexists(path)


def write_file_durably(fs: FileSystem, path: str, content: bytes) -> None:
    """Replace a small file so that a crash leaves either the old content or the new, never a mixture.

    An OSError passes, and leaves the old content; what a full disk has taken of the new one is given back.
    """
    temporary = path + TEMPORARY_SUFFIX
    _write_file(fs, temporary, content, sync=True)
    fs.rename(temporary, path)
    fs.fsync_dir(os.path.dirname(path) or ".")


def write_files_durably(fs: FileSystem, folder: str, contents: Mapping[str, bytes]) -> None:
    """The same for many small files below a folder, each by its path, and for the folders that lead to them.

    It costs two syncs whatever their number, which wait for what others have left unsynced too: dear for a few files,
    cheap for thousands. An OSError passes, and leaves some files with the new content, some without.
    """
    for path, content in contents.items():
        _write_file(fs, path + TEMPORARY_SUFFIX, content, sync=False)
    fs.sync_tree(folder)
    for path in contents:
        fs.rename(path + TEMPORARY_SUFFIX, path)
    fs.sync_tree(folder)


def _write_file(fs: FileSystem, path: str, content: bytes, *, sync: bool) -> None:
    fd = fs.open(path, create=True)
    try:
        fs.truncate(fd, 0)
        fs.pwritev(fd, [content], 0)
        if sync:
            fs.fsync(fd)
    except OSError:
        with suppress(OSError):
            fs.unlink(path)
        raise
    finally:
        fs.close(fd)


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole content of a small file; FileNotFoundError where there is none."""
    fd = fs.open(path)
    try:
        return fs.pread(fd, fs.size(fd), 0)
    finally:
        fs.close(fd)
