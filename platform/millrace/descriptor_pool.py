"""More open files than the operating system allows: a `FileSystem` that lends its descriptors in turn.

    descriptor handed out  ->  file  ->  descriptor of the operating system, or none at the moment

The descriptors that `PooledFileSystem` hands out are its own, and there may be any number of them. At most `limit`
have an open file behind them: the file that was used longest ago gives its descriptor back, and is opened again when
it is used. Users notice nothing of it, because a file that has none

    is renamed, itself or its folder    and is opened again by the new name: all names are changed through here
    is deleted or replaced              gets a descriptor before its name goes, and keeps it to the end
    is locked                           keeps its descriptor, which the lock hangs on
    was written and not synced          keeps it as long as another one can give its own back; else it is synced first,
                                        and an error of that belongs to its next `fsync`: a descriptor opened later
                                        need not be told what befell the writes of an earlier one

So there are more than `limit` only where those in use at one moment, deleted and locked are more by themselves.

Threads: any. A file in use is never closed, and names change under the lock that opening takes.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Lock

from millrace.fs import Buffer, FileSystem

NO_DESCRIPTOR = -1
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
OTHER_USES = 64  # sockets that listen, event loops, the log's checkpoints
MIN_LIMIT = 16


def file_limit(process_limit: int, max_connections: int) -> int:
    """How many of a process's descriptors files may have: what connections leave, three quarters of them at least.

    Thousands of logs that are written to in turn want one each; a connection that finds none is accepted later.

    `process_limit` is RLIMIT_NOFILE's; -1 means there is none.
    """
    if process_limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(process_limit - min(max_connections + OTHER_USES, process_limit // 4), MIN_LIMIT)


class _File:
    """A file that somebody has open. `users` are the calls that run on it right now."""

    __slots__ = ("error", "fd", "is_closed", "is_kept", "is_unsynced", "path", "users")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.users = 0
        self.is_kept = False
        self.is_closed = False
        self.is_unsynced = False
        self.error: OSError | None = None


class PooledFileSystem:
    """`fs` with at most `limit` files open."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._lock = Lock()
        self._descriptors = count(1)
        self._files: dict[int, _File] = {}
        self._folders: dict[str, dict[_File, None]] = {}
        self._open_count = 0
        # Files that could give their descriptor back, the one used longest ago first.
        self._synced: OrderedDict[_File, None] = OrderedDict()
        self._unsynced: OrderedDict[_File, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        """Descriptors of the operating system in use."""
        return self._open_count

    # Files.

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing."""
        with self._lock:
            file = _File(path, self._open(path, create=create))
            self._enter(file)
            self._synced[file] = None
            descriptor = next(self._descriptors)
            self._files[descriptor] = file
            return descriptor

    def close(self, fd: int) -> None:
        """Give the descriptor back."""
        with self._lock:
            file = self._files.pop(fd)
            self._remove(file)
            file.is_closed = True
            if not file.users:
                self._idle(file).pop(file, None)
                self._give_back(file)

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        file = self._use(fd)
        try:
            return self._fs.size(file.fd)
        finally:
            self._leave(file)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read at a position."""
        file = self._use(fd)
        try:
            return self._fs.pread(file.fd, length, position)
        finally:
            self._leave(file)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position."""
        file = self._use(fd)
        file.is_unsynced = True
        try:
            return self._fs.pwritev(file.fd, buffers, position)
        finally:
            self._leave(file)

    def truncate(self, fd: int, size: int) -> None:
        """Set the file's size."""
        file = self._use(fd)
        file.is_unsynced = True
        try:
            self._fs.truncate(file.fd, size)
        finally:
            self._leave(file)

    def reserve(self, fd: int, size: int) -> None:
        """Take room on the disk."""
        file = self._use(fd)
        try:
            self._fs.reserve(file.fd, size)
        finally:
            self._leave(file)

    @contextmanager
    def descriptor(self, fd: int) -> Iterator[int]:
        """The descriptor of the operating system that the file has now, and keeps within the context."""
        file = self._use(fd)
        try:
            with self._fs.descriptor(file.fd) as descriptor:
                yield descriptor
        finally:
            self._leave(file)

    def fsync(self, fd: int) -> None:
        """Sync bytes and size; an error that the file met when its descriptor was given back is raised here."""
        file = self._use(fd)
        file.is_unsynced = False  # before it is: what is written meanwhile says so itself
        try:
            self._fs.fsync(file.fd)
            if file.error is not None:
                error, file.error = file.error, None
                raise error
        finally:
            self._leave(file)

    def lock(self, fd: int) -> None:
        """Lock; the file keeps its descriptor from now on."""
        file = self._use(fd)
        file.is_kept = True
        try:
            self._fs.lock(file.fd)
        finally:
            self._leave(file)

    # Names.

    def rename(self, source: str, target: str) -> None:
        """Put `source` in the place of `target`, and remember the new name of the files that are open under it."""
        with self._lock:
            with self._losing_name(target):
                self._fs.rename(source, target)
            for file in self._named(source):
                self._move(file, target)
            for file in list(self._folders.get(source, ())):
                self._move(file, os.path.join(target, os.path.basename(file.path)))

    def unlink(self, path: str) -> None:
        """Remove a name; who has the file open goes on."""
        with self._lock, self._losing_name(path):
            self._fs.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Sync the folder's names."""
        self._fs.fsync_dir(path)

    def sync_tree(self, path: str) -> None:
        """Sync everything below the folder."""
        self._fs.sync_tree(path)

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents."""
        self._fs.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self._fs.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Sorted names."""
        return self._fs.listdir(path)

    def exists(self, path: str) -> bool:
        """Whether the name exists."""
        return self._fs.exists(path)

    # Descriptors come and go. The caller holds the lock.

    def _open(self, path: str, *, create: bool = False) -> int:
        self._shrink(room=1)
        while True:
            try:
                fd = self._fs.open(path, create=create)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._make_room():
                    raise
            else:
                self._open_count += 1
                return fd

    def _shrink(self, room: int = 0) -> None:
        """Down to the limit, and `room` below it, as far as files can give their descriptors back."""
        while self._open_count + room > self._limit and self._make_room():
            pass

    def _make_room(self) -> bool:
        """Let the file that was used longest ago give its descriptor back; false where none can."""
        idle = self._synced or self._unsynced
        if not idle:
            return False
        file, _ = idle.popitem(last=False)
        try:
            if file.is_unsynced:
                file.is_unsynced = False
                self._fs.fsync(file.fd)
        except OSError as error:
            file.error = error
        finally:
            self._give_back(file)
        return True

    def _give_back(self, file: _File) -> None:
        if file.fd != NO_DESCRIPTOR:
            fd, file.fd = file.fd, NO_DESCRIPTOR
            self._open_count -= 1
            self._fs.close(fd)

    def _idle(self, file: _File) -> OrderedDict[_File, None]:
        return self._unsynced if file.is_unsynced else self._synced

    @contextmanager
    def _losing_name(self, path: str) -> Iterator[None]:
        """Who has this name open keeps a descriptor to the end, unless the body fails and the name stays."""
        files = [file for file in self._named(path) if not file.is_kept]
        try:
            for file in files:
                self._idle(file).pop(file, None)
                file.is_kept = True
                if file.fd == NO_DESCRIPTOR:
                    file.fd = self._open(path)
            yield
        except OSError:
            for file in files:
                file.is_kept = False
                if file.fd != NO_DESCRIPTOR and not file.users:
                    self._idle(file)[file] = None
            self._shrink()
            raise

    # A file is used and left again.

    def _use(self, fd: int) -> _File:
        with self._lock:
            file = self._files.get(fd)
            if file is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if file.fd == NO_DESCRIPTOR:
                file.fd = self._open(file.path)
            elif not file.users:
                (self._unsynced if file.is_unsynced else self._synced).pop(file, None)
            file.users += 1
            return file

    def _leave(self, file: _File) -> None:
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.is_closed:
                self._give_back(file)
            elif not file.is_kept:
                (self._unsynced if file.is_unsynced else self._synced)[file] = None

    # Which file has which name. The caller holds the lock.

    def _named(self, path: str) -> list[_File]:
        return [file for file in self._folders.get(os.path.dirname(path), ()) if file.path == path]

    def _enter(self, file: _File) -> None:
        self._folders.setdefault(os.path.dirname(file.path), {})[file] = None

    def _remove(self, file: _File) -> None:
        name = os.path.dirname(file.path)
        folder = self._folders[name]
        del folder[file]
        if not folder:
            del self._folders[name]

    def _move(self, file: _File, path: str) -> None:
        self._remove(file)
        file.path = path
        self._enter(file)
