"""Folders that were renamed to `-delete`, until `file.delete.delay.ms` is over; a start removes them at once."""

from __future__ import annotations

from collections import deque
from threading import Lock

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import remove_tree
from millrace_broker.storage.failures import storage_errors


class DeletedDirs:
    """Folders that wait for their removal. Any thread may add and remove."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._lock = Lock()
        self._waiting: deque[tuple[int, str]] = deque()

    def add(self, path: str, delay_ms: int) -> None:
        """Lets a folder be removed once `delay_ms` have passed."""
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, path))

    def remove_due(self) -> int:
        """Removes the folders whose delay is over; returns how many. Raises StorageError."""
        removed = 0
        while (path := self._next_due()) is not None:
            with storage_errors(path):
                remove_tree(self._fs, path)
            removed += 1
        return removed

    def _next_due(self) -> str | None:
        with self._lock:
            is_due = self._waiting and self._waiting[0][0] <= self._clock.monotonic_ms()
            return self._waiting.popleft()[1] if is_due else None
