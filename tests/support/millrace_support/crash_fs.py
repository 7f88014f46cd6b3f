"""A file system in memory that loses power, runs full and fails on demand.

Each file has the bytes that a reader sees and those that were synced. Each folder has the names that a reader sees,
those that were synced, and between them a journal of changes in order, where a rename is one change. A crash leaves

    kill     everything that was written: the process died, the machine did not
    cut      what was synced, and of the rest what chance decides: of each folder's changes any, but those of one
             name in order; of each file the old bytes, the new ones, a torn mixture, or the new size with zeros.
             A file's time of the last write is the one that was synced

Operations that change something are counted. A test looks at what a crash would leave at each of them in turn,

    for operation in fs.each_change(life):
        check(fs.after_cut(Random(operation)))

or cuts the power at one of them, after which everything but `close` raises `PowerCutError`. The operation at which the
power goes may be half done.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from random import Random
from threading import Lock

from millrace.clock import SystemClock
from millrace.fs import Buffer
from millrace_support.crash_life import Life

_REAL_TIME_MS = SystemClock().now_ms


class PowerCutError(Exception):
    """The machine is off. This is no OSError, because code that handles those isn't running any more."""


class _File:
    """The bytes and the time of the last write, as a reader sees them and as the disk has them."""

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.data = bytearray(content)
        self.synced = content
        self.modified_ms = self.synced_modified_ms = modified_ms

    def sync(self) -> None:
        """Copies bytes and time to the disk."""
        self.synced = bytes(self.data)
        self.synced_modified_ms = self.modified_ms

    def survivor(self, chance: Random | None) -> _File:
        """Returns the file after a power cut."""
        data = bytes(self.data)
        if chance is None or data == self.synced:
            return _File(self.synced, self.synced_modified_ms)
        torn_at = chance.randint(0, len(data))
        zeros = bytes(max(len(data) - len(self.synced), 0))
        outcomes = (self.synced, data, data[:torn_at] + self.synced[torn_at:], self.synced + zeros)
        return _File(chance.choice(outcomes), self.synced_modified_ms)

    def copy(self) -> _File:
        """Returns the file after the death of the process."""
        file = _File(self.synced, self.synced_modified_ms)
        file.data[:] = self.data
        file.modified_ms = self.modified_ms
        return file


class _Folder:
    """The names as a reader sees them, as the disk has them, and the changes between the two."""

    def __init__(self, names: dict[str, _File | _Folder] | None = None) -> None:
        self.names = dict(names or {})
        self.synced = dict(self.names)
        self.journal: list[dict[str, _File | _Folder | None]] = []

    def change(self, names: dict[str, _File | _Folder | None]) -> None:
        """Makes one atomic change, in which None removes a name."""
        _apply(self.names, names)
        self.journal.append(names)

    def sync(self) -> None:
        """Copies all changes to the disk."""
        self.synced = dict(self.names)
        self.journal.clear()

    def lose(self, name: str) -> None:
        """Removes a name from all that a reader sees, now and after a crash."""
        self.names.pop(name, None)
        self.synced.pop(name, None)
        for change in self.journal:
            change.update({name: None} if name in change else {})

    def survivor(self, chance: Random | None) -> _Folder:
        """Returns the folder after a power cut."""
        names, lost = dict(self.synced), set[str]()
        odds = 0.0 if chance is None else chance.random()
        for change in self.journal:
            if chance is None or chance.random() < odds or not lost.isdisjoint(change):
                lost |= change.keys()
            else:
                _apply(names, change)
        return _Folder({name: node.survivor(chance) for name, node in sorted(names.items())})

    def copy(self) -> _Folder:
        """Returns the folder after the death of the process; what was not synced before is still not synced."""
        copies: dict[int, _File | _Folder] = {}

        def copy(node: _File | _Folder) -> _File | _Folder:
            return copies.setdefault(id(node), node.copy())

        folder = _Folder({name: copy(node) for name, node in self.synced.items()})
        for change in self.journal:
            folder.change({name: None if node is None else copy(node) for name, node in change.items()})
        return folder


def _do_nothing() -> None:
    """Does nothing, for operations that are done as a whole or not at all."""


def _apply(names: dict[str, _File | _Folder], change: dict[str, _File | _Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class CrashFileSystem:
    """A `millrace.fs.FileSystem` under one root folder, `/`.

    `operations` counts the changes. `capacity_bytes` bounds the bytes of all files; beyond it writes fail with ENOSPC.
    `now_ms` is the time of day by which files are written.
    """

    def __init__(self, *, capacity_bytes: int | None = None, now_ms: Callable[[], int] = _REAL_TIME_MS) -> None:
        self.operations = 0
        self.capacity_bytes = capacity_bytes
        self._now_ms = now_ms
        self._root = _Folder()
        self._files: dict[int, _File] = {}
        self._locks: dict[int, _File] = {}
        self._next_fd = 3
        self._lock = Lock()
        self._cut_at: int | None = None
        self._life: Life | None = None
        self._failures: list[tuple[str, int, int]] = []

    # What a test asks for.

    def cut_power_at(self, operation: int) -> None:
        """Cuts the power when `operations` reaches this number."""
        self._cut_at = operation

    def each_change(self, life: Callable[[], object]) -> Iterator[int]:
        """Runs `life`, and yields the number of each of its changes before it is made.

        Meanwhile `after_cut` and `after_kill` return what a crash at this change would leave. Where the loop over the
        changes ends early, the power is cut.

        Raises:
            AssertionError: There was no change.
            BaseException: What `life` raises.
        """
        before, self._life = self.operations, (thread := Life(life))
        thread.start()
        try:
            thread.await_change()
            while not thread.has_ended:
                yield self.operations
                thread.go_on()
                thread.await_change()
        finally:
            self._life = None
            if not thread.has_ended:
                self._cut_at = self.operations
                thread.go_on_to_the_end()
        if thread.error is not None:
            raise thread.error
        assert self.operations > before, "there was no change"

    def fail(self, name: str, *, after: int = 0, code: int = errno.EIO) -> None:
        """Makes the operation called `name` fail once with an OSError, after `after` more successes."""
        self._failures.append((name, after, code))

    def after_cut(self, chance: Random | None = None) -> CrashFileSystem:
        """Returns the disk after a power cut; without `chance` it has exactly what was synced."""
        return self._with_root(self._root.survivor(chance))

    def after_kill(self) -> CrashFileSystem:
        """Returns the disk after the death of the process, which loses nothing that was written."""
        return self._with_root(self._root.copy())

    def content(self, path: str) -> bytes:
        """Returns what a reader sees of a file."""
        return bytes(self._file(path).data)

    def damage(self, path: str, change: Callable[[bytearray], None]) -> None:
        """Changes bytes of a file as a failing disk does: those that a reader sees, and those that are synced."""
        file, synced = self._file(path), bytearray(self._file(path).synced)
        change(file.data)
        change(synced)
        file.synced = bytes(synced)

    def lose(self, path: str) -> None:
        """Loses a name, and no crash brings it back; a descriptor that has the file open keeps it."""
        folder, name = self._parent(path)
        folder.lose(name)

    @property
    def used_bytes(self) -> int:
        """The bytes of all files."""
        return _used_bytes(self._root)

    @property
    def open_files(self) -> int:
        """The number of descriptors that are not closed."""
        return len(self._files)

    def _with_root(self, root: _Folder) -> CrashFileSystem:
        fs = CrashFileSystem(capacity_bytes=self.capacity_bytes, now_ms=self._now_ms)
        fs._root = root
        return fs

    # FileSystem.

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file; creating it counts as a change."""
        self._before("open", changes=False)
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None and create:
            self._before("create")
            node = _File(b"", self._now_ms())
            folder.change({name: node})
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, _Folder):
            raise _os_error(errno.EISDIR, path)
        with self._lock:
            self._next_fd += 1
            self._files[self._next_fd] = node
            return self._next_fd

    def close(self, fd: int) -> None:
        """Closes a descriptor, and releases its lock."""
        self._locks.pop(fd, None)
        del self._files[fd]

    def size(self, fd: int) -> int:
        """Returns the bytes in the file."""
        self._before("size", changes=False)
        return len(self._files[fd].data)

    def modified_ms(self, fd: int) -> int:
        """Returns the time at which the file was last written."""
        self._before("modified_ms", changes=False)
        return self._files[fd].modified_ms

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        """Sets the time of the last write."""
        self._before("set_modified_ms")
        self._files[fd].modified_ms = time_ms

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Reads what a reader sees."""
        self._before("pread", changes=False)
        return bytes(self._files[fd].data[position : position + length])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes bytes; a power cut here leaves half of them, and a full disk takes as many as fit."""
        content, data = b"".join(buffers), self._files[fd].data
        self._files[fd].modified_ms = self._now_ms()
        self._before("pwritev", do_half=partial(_write, data, content[: len(content) // 2], position))
        room = self._room() + max(len(data) - position, 0)
        _write(data, content[:room], position)
        if room < len(content):
            raise _os_error(errno.ENOSPC, "disk")
        return len(content)

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file, or extends it with zeros."""
        self._before("truncate")
        data = self._files[fd].data
        self._files[fd].modified_ms = self._now_ms()
        data[:] = data[:size].ljust(size, b"\0")

    def reserve(self, fd: int, size: int) -> None:
        """Raises OSError if there is no room; nothing is set aside."""
        self._before("reserve")
        if size - len(self._files[fd].data) > self._room():
            raise _os_error(errno.ENOSPC, "disk")

    def descriptor(self, fd: int) -> AbstractContextManager[int]:
        """Raises OSError: the operating system knows no files in memory."""
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(fd))

    def make_private(self, fd: int) -> None:
        """Does nothing, as this disk has one owner."""
        assert fd in self._files

    def fsync(self, fd: int) -> None:
        """Syncs bytes and size, but not the name."""
        self._before("fsync")
        self._files[fd].sync()

    def fsync_dir(self, path: str) -> None:
        """Syncs the folder's names."""
        self._before("fsync_dir")
        self._folder(path).sync()

    def sync_tree(self, path: str) -> None:
        """Syncs all bytes and names below the folder."""
        self._before("sync_tree")
        _sync_tree(self._folder(path))

    def lock(self, fd: int) -> None:
        """Locks a file among the descriptors of this file system."""
        self._before("lock", changes=False)
        locks = tuple(self._locks.items())  # folders are locked on several threads at once
        if any(file is self._files[fd] and holder != fd for holder, file in locks):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        self._locks[fd] = self._files[fd]

    def rename(self, source: str, target: str) -> None:
        """Renames a file: one change within a folder, two changes between folders."""
        self._before("rename")
        folder, name = self._parent(source)
        target_folder, target_name = self._parent(target)
        if name not in folder.names:
            raise _os_error(errno.ENOENT, source)
        node = folder.names[name]
        if folder is target_folder:
            folder.change({name: None, target_name: node})
        else:
            target_folder.change({target_name: node})
            folder.change({name: None})

    def unlink(self, path: str) -> None:
        """Removes a name; a descriptor that has the file open keeps it."""
        self._before("unlink")
        folder, name = self._parent(path)
        if not isinstance(folder.names.get(name), _File):
            raise _os_error(errno.ENOENT, path)
        folder.change({name: None})

    def mkdir(self, path: str) -> None:
        """Creates a folder and its parents."""
        self._before("mkdir")
        folder = self._root
        for name in _parts(path):
            node = folder.names.get(name)
            if node is None:
                node = _Folder()
                folder.change({name: node})
            if not isinstance(node, _Folder):
                raise _os_error(errno.ENOTDIR, path)
            folder = node

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        self._before("rmdir")
        if self._folder(path).names:
            raise _os_error(errno.ENOTEMPTY, path)
        folder, name = self._parent(path)
        folder.change({name: None})

    def listdir(self, path: str) -> list[str]:
        """Returns the names in the folder, sorted."""
        self._before("listdir", changes=False)
        return sorted(self._folder(path).names)

    def exists(self, path: str) -> bool:
        """Returns whether the name exists."""
        self._before("exists", changes=False)
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return False
        return name in folder.names

    def _before(self, name: str, *, changes: bool = True, do_half: Callable[[], None] = _do_nothing) -> None:
        """Counts the operation; lets a test look, cuts the power, or fails if a test has asked for that."""
        with self._lock:
            self.operations += changes
        if changes and (life := self._life) is not None:
            do_half()
            life.await_test()
        if self._cut_at is not None and self.operations >= self._cut_at:
            do_half()
            raise PowerCutError(f"the power went at operation {self.operations}, {name}")
        for slot, (wanted, after, code) in enumerate(self._failures):
            if wanted == name and after > 0:
                self._failures[slot] = (wanted, after - 1, code)
            elif wanted == name:
                del self._failures[slot]
                do_half()
                raise _os_error(code, name)

    def _room(self) -> int:
        return (1 << 62) if self.capacity_bytes is None else max(self.capacity_bytes - self.used_bytes, 0)

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in _parts(path):
            node = folder.names.get(name)
            if not isinstance(node, _Folder):
                raise _os_error(errno.ENOENT, path)
            folder = node
        return folder

    def _file(self, path: str) -> _File:
        folder, name = self._parent(path)
        file = folder.names[name]
        assert isinstance(file, _File)
        return file

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, name = _split(path)
        return self._folder(parent), name


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str]:
    return os.path.split(path)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _write(data: bytearray, content: bytes, position: int) -> None:
    data.extend(bytes(max(position - len(data), 0)))
    data[position : position + len(content)] = content


def _sync_tree(folder: _Folder) -> None:
    folder.sync()
    for node in folder.names.values():
        if isinstance(node, _Folder):
            _sync_tree(node)
        else:
            node.sync()


def _used_bytes(node: _File | _Folder) -> int:
    if isinstance(node, _File):
        return len(node.data)
    return sum(map(_used_bytes, node.names.values()))


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def fs_with_folder(path: str) -> CrashFileSystem:
    """Returns a file system that keeps a folder and those around it through a crash."""
    fs = CrashFileSystem()
    fs.mkdir(path)
    fs.fsync_dir("/")
    fs.fsync_dir(os.path.dirname(path))
    return fs
