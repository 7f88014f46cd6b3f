"""More open files than the operating system allows: a `FileSystem` that lends its descriptors in turn.

    descriptor handed out  ->  file  ->  descriptor of the operating system, or none at the moment

The descriptors that `PooledFileSystem` hands out are its own, and there may be any number of them. At most `limit`
have an open file behind them: a file that has not been used for long gives its descriptor back, and is opened again
when it is used. Callers do not notice, because a file without one

    is renamed, itself or its folder    and is opened again by the new name: all names are changed through here
    is deleted or replaced              gets a descriptor before its name goes, and keeps it to the end
    is locked                           keeps its descriptor, which the lock hangs on
    was written and not synced          keeps it as long as another one can give its own back; else it is synced first,
                                        and its next `fsync` raises an error of that: a descriptor opened later
                                        may not be told what became of the writes of an earlier one

So there are more than `limit` only where those in use at one moment, deleted and locked are more by themselves.

Files with a descriptor stand in line to give it back. A file that was used since it got its place moves to the end
instead ("second chance"): this is nearly the order of use, and costs only a flag at each use.

Threads: any. Descriptors come and go, and names change, under a lock; a file that has its descriptor is used without:

    a user of a file     leaves a pin on it, then asks whether it `is_at_hand`: if not, takes the lock and opens it
    the taker            says that it is not, then looks for pins: if there is one, says that it is and leaves it

In either order one sees what the other did, so a file in use is never closed. That takes steps which all threads see
in their order, and an `append` and a `pop` of lists which are done at once: CPython's interpreter lock gives both.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Lock
from typing import TypeVar

from millrace.fs import Buffer, FileSystem

Result = TypeVar("Result")

NO_DESCRIPTOR = -1
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
OTHER_USES = 64  # sockets that listen, event loops, the log's checkpoints
MIN_LIMIT = 16


def file_limit(process_limit: int, max_connections: int) -> int:
    """Returns how many of a process's descriptors files may use: all that connections leave, at least three quarters.

    A connection for which no descriptor is left is accepted later. `process_limit` is RLIMIT_NOFILE; -1 means none.
    """
    if process_limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(process_limit - min(max_connections + OTHER_USES, process_limit // 4), MIN_LIMIT)


class _File:
    """An open file, which may have no descriptor at the moment; `pins` has an element for each call that uses it."""

    __slots__ = (
        "error", "fd", "folder", "is_at_hand", "is_closed", "is_kept", "is_unsynced", "path", "pins", "was_used",
    )  # fmt: skip

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.folder = ""  # in which the pool has it
        self.fd = fd
        self.pins: list[None] = []
        self.is_at_hand = True
        self.was_used = False
        self.is_kept = False
        self.is_closed = False
        self.is_unsynced = False
        self.error: OSError | None = None


class PooledFileSystem:
    """A FileSystem over `fs` that uses at most `limit` descriptors for any number of open files.

    It closes descriptors of files that are not in use, and opens them again for the next call.
    """

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._lock = Lock()
        self._descriptors = count(1)
        self._files: dict[int, _File] = {}
        self._folders: dict[str, dict[_File, None]] = {}
        self.open_count = 0  # descriptors of the operating system in use
        # Files in line. One that was written to since it came is in the wrong line, and moves over in its turn.
        self._synced: OrderedDict[_File, None] = OrderedDict()
        self._unsynced: OrderedDict[_File, None] = OrderedDict()

    # Files.

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file for reading and writing, and returns its number in this pool; `create` makes a missing one."""
        with self._lock:
            file = _File(path, self._open(path, create=create))
            self._enter(file)
            self._synced[file] = None
            descriptor = next(self._descriptors)
            self._files[descriptor] = file
            return descriptor

    def close(self, fd: int) -> None:
        """Closes the file; its descriptor is closed once no call uses the file any more."""
        with self._lock:
            file = self._files.pop(fd)
            self._remove(file)
            self._leave_line(file)
            file.is_closed = True
            self._take_away(file)

    def size(self, fd: int) -> int:
        """Returns the size of the file in bytes."""
        file = self._use(fd)
        try:
            return self._fs.size(file.fd)
        finally:
            self._leave(file)

    def modified_ms(self, fd: int) -> int:
        """Returns when the file was last written, in milliseconds since 1970."""
        file = self._use(fd)
        try:
            return self._fs.modified_ms(file.fd)
        finally:
            self._leave(file)

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Sets the time of the file's last write, in milliseconds since 1970."""
        file = self._use(fd)
        try:
            self._fs.set_modified_ms(file.fd, time_ms)
        finally:
            self._leave(file)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Returns up to `length` bytes at a position."""
        file = self._use(fd)
        try:
            return self._fs.pread(file.fd, length, position)
        finally:
            file.pins.pop()  # as `_leave` does
            if file.is_closed:
                self._left(file)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes the buffers one after the other at `position`; returns the number of bytes written."""
        file = self._use(fd)
        file.is_unsynced = True
        try:
            return self._fs.pwritev(file.fd, buffers, position)
        finally:
            file.pins.pop()  # as `_leave` does
            if file.is_closed:
                self._left(file)

    def truncate(self, fd: int, size: int) -> None:
        """Cuts or extends the file to `size` bytes."""
        file = self._use(fd)
        file.is_unsynced = True
        try:
            self._fs.truncate(file.fd, size)
        finally:
            self._leave(file)

    def reserve(self, fd: int, size: int) -> None:
        """Reserves disk space for `size` bytes of the file."""
        file = self._use(fd)
        try:
            self._fs.reserve(file.fd, size)
        finally:
            self._leave(file)

    @contextmanager
    def descriptor(self, fd: int) -> Iterator[int]:
        """Yields the operating system's descriptor of the file, which is not closed within the context."""
        file = self._use(fd)
        try:
            with self._fs.descriptor(file.fd) as descriptor:
                yield descriptor
        finally:
            self._leave(file)

    def make_private(self, fd: int) -> None:
        """Lets nobody but the file's owner open it."""
        file = self._use(fd)
        try:
            self._fs.make_private(file.fd)
        finally:
            self._leave(file)

    def fsync(self, fd: int) -> None:
        """Syncs the file's bytes and size; raises, too, an OSError that an earlier sync by this pool has had."""
        file = self._use(fd)
        file.is_unsynced = False  # before it is: what is written meanwhile says so itself
        try:
            self._fs.fsync(file.fd)
            if file.error is not None:
                error, file.error = file.error, None
                raise error
            self._stand_with_synced(file)
        finally:
            self._leave(file)

    def lock(self, fd: int) -> None:
        """Locks the file; its descriptor is never taken from now on, as the lock would go with it."""
        file = self._use(fd)
        try:
            with self._lock:
                self._keep(file)
            self._fs.lock(file.fd)
        finally:
            self._leave(file)

    # Names.

    def rename(self, source: str, target: str) -> None:
        """Renames `source` to `target`; open files that this renames are opened again under the new name."""
        with self._lock:
            with self._losing_name(target):
                self._fs.rename(source, target)
            for file in self._named(source):
                self._move(file, target)
            for file in list(self._folders.get(source, ())):
                self._move(file, os.path.join(target, os.path.basename(file.path)))

    def unlink(self, path: str) -> None:
        """Removes a file's name; a file that is open can still be used by its number."""
        with self._lock, self._losing_name(path):
            self._fs.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Syncs the names in the folder to the disk."""
        self._with_room(self._fs.fsync_dir, path)

    def sync_tree(self, path: str) -> None:
        """Syncs all files and names below the folder to the disk."""
        self._with_room(self._fs.sync_tree, path)

    def mkdir(self, path: str) -> None:
        """Makes a folder and its parents."""
        self._fs.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        self._fs.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted."""
        return self._with_room(self._fs.listdir, path)

    def exists(self, path: str) -> bool:
        """Returns whether a file or folder has this name."""
        return self._fs.exists(path)

    def _with_room(self, work: Callable[[str], Result], path: str) -> Result:
        """Returns what `work` returns for the path; while there is no free descriptor, takes an open file's."""
        while True:
            try:
                return work(path)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                with self._lock:
                    if not self._make_room():
                        raise

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
                self.open_count += 1
                return fd

    def _shrink(self, room: int = 0) -> None:
        """Closes unused files' descriptors until `room` of the limit are free, or no unused file has one."""
        while self.open_count + room > self._limit and self._make_room():
            pass

    def _make_room(self) -> bool:
        """Closes the descriptor of one unused file, of a synced one if possible; returns False where there is none."""
        for file in _turns(self._synced):
            if file.is_unsynced:
                self._unsynced[file] = None
            elif self._take_away(file):
                return True
            else:
                self._synced[file] = None
        for file in _turns(self._unsynced):
            if self._take_away(file):
                return True
            self._unsynced[file] = None
        return False

    def _take_away(self, file: _File) -> bool:
        """Closes a file's descriptor, after a sync if needed; while a call uses the file, only returns False."""
        file.is_at_hand = False
        if file.pins:
            file.is_at_hand = file.fd != NO_DESCRIPTOR
            return False
        if file.fd != NO_DESCRIPTOR:
            try:
                if file.is_unsynced and not file.is_closed:
                    file.is_unsynced = False
                    self._fs.fsync(file.fd)
            except OSError as error:
                file.error = error
            finally:
                fd, file.fd = file.fd, NO_DESCRIPTOR
                self.open_count -= 1
                self._fs.close(fd)
        return True

    def _bring(self, file: _File) -> None:
        """Opens the file again if it has no descriptor."""
        if file.fd == NO_DESCRIPTOR:
            file.fd = self._open(file.path)
        file.is_at_hand = True

    def _stand(self, file: _File) -> None:
        (self._unsynced if file.is_unsynced else self._synced)[file] = None

    def _stand_with_synced(self, file: _File) -> None:
        with self._lock:
            if file in self._unsynced and not file.is_unsynced:
                del self._unsynced[file]
                self._synced[file] = None

    def _leave_line(self, file: _File) -> None:
        self._synced.pop(file, None)
        self._unsynced.pop(file, None)

    def _keep(self, file: _File) -> None:
        self._leave_line(file)
        file.is_kept = True

    @contextmanager
    def _losing_name(self, path: str) -> Iterator[None]:
        """Lets open files keep their descriptors for good while the block removes their name; undone if that fails."""
        kept: list[_File] = []
        try:
            for file in self._named(path):
                if not file.is_kept:
                    kept.append(file)
                    self._keep(file)
                    self._bring(file)
            yield
        except OSError:
            for file in kept:
                file.is_kept = False
                if file.is_at_hand:
                    self._stand(file)
            self._shrink()
            raise

    # A file is used and left again. The caller does not hold the lock.

    def _use(self, fd: int) -> _File:
        file = self._files.get(fd)
        if file is None:
            raise _bad_descriptor()
        file.pins.append(None)
        if not file.is_at_hand:
            self._use_again(file)
        file.was_used = True
        return file

    def _use_again(self, file: _File) -> None:
        """Gives a file that a call is about to use its descriptor back; raises OSError where it can't be opened."""
        try:
            with self._lock:
                if file.is_closed and file.fd == NO_DESCRIPTOR:
                    raise _bad_descriptor()
                if not file.is_at_hand:
                    self._bring(file)
                    self._stand(file)
        except OSError:
            self._leave(file)
            raise

    def _leave(self, file: _File) -> None:
        file.pins.pop()
        if file.is_closed:
            self._left(file)

    def _left(self, file: _File) -> None:
        """Closes the descriptor of a closed file, once no call uses the file any more."""
        with self._lock:
            self._take_away(file)

    # Which file has which name. The caller holds the lock.

    def _named(self, path: str) -> list[_File]:
        return [file for file in self._folders.get(os.path.dirname(path), ()) if file.path == path]

    def _enter(self, file: _File) -> None:
        file.folder = os.path.dirname(file.path)
        self._folders.setdefault(file.folder, {})[file] = None

    def _remove(self, file: _File) -> None:
        files = self._folders[file.folder]
        del files[file]
        if not files:
            del self._folders[file.folder]

    def _move(self, file: _File, path: str) -> None:
        self._remove(file)
        file.path = path
        self._enter(file)


def _turns(line: OrderedDict[_File, None]) -> Iterator[_File]:
    """Yields files and removes them from `line`: first those that were not used since they came into it."""
    for is_second in (False, True):
        for _ in range(len(line)):
            file, _ = line.popitem(last=False)
            if file.was_used and not is_second:
                file.was_used = False
                line[file] = None
            else:
                yield file


def _bad_descriptor() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))
