"""The files of segments that a log has no more, until they are removed (`log_checkpoints` has the steps).

    drop            takes a segment that left the log's beginning; `rename_dropped` renames its files to `.deleted`
    add             takes files that were renamed, as by compaction
    leave_name      keeps the name of a `.log` whose segment is removed; `leave_sign` makes one
    take_due        takes the files out whose `file.delete.delay.ms` is over, for `remove`

A start removes such files at once, but for those by which it knows that first segments are not lost (`lost_segments`).
They are due again then. A crash leaves the newest of the segments that were dropped and not renamed yet, so a log may
start below where it did, and has no gap.

Any thread may call these. Renames and removals take a lock of their own, so that a slow disk holds up neither retention
nor compaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock

from millrace.clock import Clock
from millrace.fs import FileSystem, file_size
from millrace_broker.storage.failures import DirHealth, storage_errors
from millrace_broker.storage.filenames import DELETED_FILE_SUFFIX, LOG_SUFFIX, segment_file_name
from millrace_broker.storage.segments.segment import LogSegment


class DeletedFiles:
    """The files of one log's deleted segments."""

    __slots__ = ("_clock", "_directory", "_dropped", "_due", "_fs", "_health", "_lock")

    def __init__(
        self, fs: FileSystem, clock: Clock, directory: str, health: DirHealth, left: Iterable[str] = ()
    ) -> None:
        """Takes the paths of files that a start has left, which are due."""
        self._fs = fs
        self._clock = clock
        self._directory = directory
        self._health = health
        self._lock = Lock()
        self._due = dict.fromkeys(left, clock.monotonic_ms())  # when, by the path
        # A list, as nearly all logs have none of these, and an empty deque takes 0.7 KB.
        self._dropped: list[tuple[int, LogSegment, str]] = []  # with the producers' snapshot at its base

    def drop(self, segment: LogSegment, snapshot: str, delay_ms: int) -> None:
        """Takes a segment, and the path of the producers' snapshot at its base offset. Waits for no disk."""
        self._dropped.append((self._clock.monotonic_ms() + delay_ms, segment, snapshot))

    def rename_dropped(self) -> None:
        """Adds `.deleted` to the files of the segments taken out, oldest first. Raises StorageError.

        Each segment's names are synced before the next one's change, so a crash leaves no gap. A failed rename is tried
        again.
        """
        if not self._dropped:
            return
        with self._lock, storage_errors(self._directory):
            while self._dropped and self._health.reason is None:
                due_ms, segment, snapshot = self._dropped[0]
                self._leave_name(segment, due_ms)
                for path in (*segment.file_paths(), *([snapshot] if self._fs.exists(snapshot) else [])):
                    self._rename(path, due_ms)
                self._fs.fsync_dir(self._directory)
                del self._dropped[0]

    def forget_dropped(self) -> None:
        """Leaves the files of dropped segments as they are, as the folder may get another name now."""
        with self._lock:
            self._dropped.clear()

    def add(self, paths: Iterable[str], delay_ms: int) -> None:
        """Takes the paths of files whose names end with `.deleted` already."""
        with self._lock:
            self._due.update(dict.fromkeys(paths, self._clock.monotonic_ms() + delay_ms))

    def leave_name(self, segment: LogSegment) -> None:
        """Adds `.deleted` to the `.log` of a segment whose files are about to go, synced. Raises OSError."""
        with self._lock:
            self._leave_name(segment, self._clock.monotonic_ms())
            self._fs.fsync_dir(self._directory)

    def leave_sign(self, offset: int) -> None:
        """Makes an empty file, synced, that says that nothing is lost between an offset and the first segment.

        Raises StorageError.
        """
        with self._lock, storage_errors(self._directory):
            self._make_sign(offset, self._clock.monotonic_ms())
            self._fs.fsync_dir(self._directory)

    def _leave_name(self, segment: LogSegment, due_ms: int) -> None:
        if self._fs.exists(segment.path):
            self._rename(segment.path, due_ms)
        else:  # it was lost while it was open
            self._make_sign(segment.base_offset, due_ms)

    def _rename(self, path: str, due_ms: int) -> None:
        self._fs.rename(path, path + DELETED_FILE_SUFFIX)
        self._due[path + DELETED_FILE_SUFFIX] = due_ms

    def _make_sign(self, offset: int, due_ms: int) -> None:
        path = os.path.join(self._directory, segment_file_name(offset, LOG_SUFFIX) + DELETED_FILE_SUFFIX)
        self._fs.close(self._fs.open(path, create=True))
        self._due.setdefault(path, due_ms)

    @property
    def are_due(self) -> bool:
        """Whether there are files whose delay is over."""
        if not self._due:
            return False
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            return any(due_ms <= now_ms for due_ms in self._due.values())

    def take_due(self, *, keeps_names: bool = False) -> list[str]:
        """Returns the paths of files whose delay is over, to be removed; `keeps_names` leaves each `.log` in the list.

        That is for a log of which the next start knows that it began before the first segment.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            due = [path for path, due_ms in self._due.items() if due_ms <= now_ms]
            for path in due:
                if not (keeps_names and path.endswith(LOG_SUFFIX + DELETED_FILE_SUFFIX)):
                    del self._due[path]
        return due

    def remove(self, paths: Iterable[str]) -> int:
        """Removes files that `take_due` has returned; returns how many. Raises StorageError.

        One that is in the list, as its name is still needed or was given again meanwhile, is only emptied.
        """
        removed = 0
        for path in paths:
            with self._lock, storage_errors(path):
                if not self._fs.exists(path):
                    self._due.pop(path, None)
                elif path not in self._due:
                    self._fs.unlink(path)
                    removed += 1
                elif file_size(self._fs, path):
                    self._empty(path)
        return removed

    def _empty(self, path: str) -> None:
        fd = self._fs.open(path)
        try:
            self._fs.truncate(fd, 0)
        finally:
            self._fs.close(fd)
