"""The segments that a log has now, and what happens to the files of those that it has no more.

    begin           a new active segment at the end
    drop_first      the oldest one goes; `delete` renames its files to `.deleted`
    replace         a compacted segment takes the place of neighbours, whose files are renamed to `.deleted`

Renamed files are removed by `remove_deleted` once `file.delete.delay.ms` is over; a start removes them at once.

Threads: `now` is an immutable value, which any thread may take and keep. `begin`, `drop_first`, `delete` and
`release_replaced` belong to the log's own thread, `replace` to compaction's. Whoever renames or closes segment files
excludes the others by `names_lock`, which the caller takes; appends and reads never do. Every change of `now` is made
under a lock of its own, so that a roll on one thread and a replacement on another both stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from threading import Lock

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import DELETED_FILE_SUFFIX
from millrace_broker.storage.rolling import Rolling
from millrace_broker.storage.segment import LogSegment
from millrace_broker.storage.segment_sequence import SegmentSequence
from millrace_broker.storage.segment_swap import swap_in


class LogSegments:
    """`now` is the list as it is; the methods put another in its place."""

    __slots__ = ("_clock", "_deleted", "_fs", "_now_lock", "_replaced", "directory", "names_lock", "now")

    def __init__(self, fs: FileSystem, clock: Clock, directory: str, segments: Iterable[LogSegment]) -> None:
        self.now = SegmentSequence(segments)
        self.names_lock = Lock()
        self._now_lock = Lock()
        self._fs = fs
        self._clock = clock
        self.directory = directory
        self._deleted: deque[tuple[int, str]] = deque()
        self._replaced: deque[LogSegment] = deque()

    def begin(self, base_offset: int, rolling: Rolling) -> LogSegment:
        """Add a new active segment and finish the one that was; nothing is synced. OSError leaves all as it was."""
        segment = LogSegment(self._fs, self.directory, base_offset, rolling.config)
        with ExitStack() as undo:
            undo.callback(segment.release)
            segment.begin()
            rolling.begin(segment)
            undo.pop_all()
        self.now.active.finish()
        with self._now_lock:
            self.now = self.now.with_added(segment)
        return segment

    def drop_first(self) -> LogSegment:
        """Take the oldest segment out."""
        segment = self.now[0]
        with self._now_lock:
            self.now = self.now.without_first(1)
        return segment

    def delete(self, segment: LogSegment, snapshot: str, delay_ms: int) -> None:
        """Rename the files of one that was taken out, and the producers' snapshot at its base; OSError passes.

        The names are synced before the next one goes, so a crash leaves no gap.
        """
        due_ms = self._clock.monotonic_ms() + delay_ms
        for path in (*segment.file_paths(), *([snapshot] if self._fs.exists(snapshot) else [])):
            self._fs.rename(path, path + DELETED_FILE_SUFFIX)
            self._deleted.append((due_ms, path + DELETED_FILE_SUFFIX))
        self._fs.fsync_dir(self.directory)
        segment.release()

    def replace(self, old: Sequence[LogSegment], new: LogSegment, delay_ms: int) -> None:
        """Put a compacted segment in the place of those that it was made of; OSError passes.

        They stay open until the log's own thread, which may be reading one, calls `release_replaced`.
        """
        deleted = swap_in(self._fs, self.directory, old, new)
        with self._now_lock:
            self.now = self.now.with_replaced(old, new)
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._deleted.extend((due_ms, path) for path in deleted)
        self._replaced.extend(old)

    def release_replaced(self) -> None:
        """Close the segments that were replaced; readers that hold one by `retain` keep it."""
        while self._replaced:
            self._replaced.popleft().release()

    def remove_deleted(self) -> int:
        """Remove the files whose delay is over; returns how many. StorageError."""
        removed = 0
        while self._deleted and self._deleted[0][0] <= self._clock.monotonic_ms():
            _, path = self._deleted.popleft()
            with storage_errors(path):
                if self._fs.exists(path):
                    self._fs.unlink(path)
                    removed += 1
        return removed

    def release(self) -> None:
        """The log is closed: let go of its segments."""
        for segment in self.now:
            segment.release()
