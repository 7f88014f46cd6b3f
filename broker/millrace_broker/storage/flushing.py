"""Taking a log to the disk: what a flush syncs, and the recovery point that it moves (spec B2, B8).

    recovery point                 log end offset
          |  unsynced segments           |
          [ closed ][ closed ][ active …
             batches and indexes  batches

A closed segment is synced with its indexes and sealed, and never again. Of the active one the batches are enough:
whatever the recovery point, it is walked after a crash. Then come the producers' snapshots, then the folder's names,
and only then does the recovery point move, so a crash at any step costs nothing that it vouches for.
"""

from __future__ import annotations

from threading import Lock

from millrace.clock import Clock
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.producer_state_manager import ProducerStateManager
from millrace_broker.storage.segment import LogSegment
from millrace_broker.storage.segment_sequence import SegmentSequence


class Flushing:
    """One log's flushes, which exclude one another by `lock`; the caller holds it."""

    __slots__ = (
        "_clock", "_directory", "_fs", "_health", "_last_flush_ms", "_producers", "lock", "names_changed",
        "recovery_point",
    )  # fmt: skip

    def __init__(
        self, fs: FileSystem, clock: Clock, directory: str, producers: ProducerStateManager, health: DirHealth
    ) -> None:
        self.lock = Lock()
        self.recovery_point = 0
        self.names_changed = True
        self._fs = fs
        self._clock = clock
        self._directory = directory
        self._producers = producers
        self._health = health
        self._last_flush_ms = clock.monotonic_ms()

    def is_due(self, now_ms: int, flush_ms: int, log_end_offset: int, segments: SegmentSequence) -> bool:
        """Whether `flush_ms` have passed (monotonic `now_ms`), or a closed segment waits to be synced."""
        if self.recovery_point >= log_end_offset or self._health.reason is not None:
            return False
        return now_ms - self._last_flush_ms >= flush_ms or self.recovery_point < segments.active.base_offset

    def flush(self, log_end_offset: int, segments: SegmentSequence, *, closing: bool = False) -> None:
        """Sync what is below `log_end_offset`, which was read before the segments were. StorageError."""
        if self._health.reason is not None:
            raise StorageError(f"{self._directory}: offline: {self._health.reason}")
        end = log_end_offset
        self._last_flush_ms = self._clock.monotonic_ms()
        for segment in segments[segments.floor_index(self.recovery_point - 1) :]:
            if not segment.is_sealed and segment.retain():
                try:
                    if not self._sync(segment, is_growing=segment is segments.active and not closing):
                        end = min(end, segment.next_offset)
                finally:
                    segment.release()
        with self._health.guard(self._directory):
            self._producers.sync_snapshots()
            if self.names_changed:
                self.names_changed = False  # before it is: a roll meanwhile says so itself
                try:
                    self._fs.fsync_dir(self._directory)
                except OSError:
                    self.names_changed = True
                    raise
        self.recovery_point = max(self.recovery_point, end)

    def _sync(self, segment: LogSegment, *, is_growing: bool) -> bool:
        """Sync a segment; false where the disk has no room for its indexes, so that a crash must have them made anew.

        Those of a growing segment may wait: whatever the recovery point, it is walked after a crash.
        """
        with self._health.guard(segment.path):
            has_room = segment.write_indexes()
            if is_growing or not has_room:
                segment.sync_batches()
            else:
                segment.sync()
                segment.seal()
        return is_growing or has_room
