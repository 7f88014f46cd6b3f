"""Taking a log to the disk: what a flush syncs, and the recovery point that it moves (docs/durability.md).

An append is acknowledged while fewer than `flush.messages` records, it included, are not synced. One that comes to more
owes a sync: the log is put into its data directory's lane (`sync_lane`), and the append waits for the recovery point.

    recovery point                 log end offset
          |  unsynced segments           |
          [ closed ][ closed ][ active …
             batches and indexes  batches

A closed segment is synced once, with its indexes, and sealed. Of the active one only the batches are synced: whatever
the recovery point, it is walked after a crash. Then come the producers' snapshots, the leader epochs that their file
lacks, then the folder's names, and only then does the recovery point move, so a crash at any step costs nothing below
it.
"""

from __future__ import annotations

from threading import Lock

from millrace.clock import Clock
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.sync_lane import SyncLane


class Flushing:
    """Syncs one log. `lock` is held by each flush, and by whoever closes or truncates the log.

    With `commits_synced` nothing counts as committed before it is synced. `commit_limit` is the number of unsynced
    records from which on nothing more is committed: 1 with `commits_synced`, else `flush.messages`.
    """

    __slots__ = (
        "_clock", "_epochs", "_fs", "_lane", "_last_flush_ms", "_producers", "_segments",
        "commit_limit", "commits_synced", "flush_messages", "lock", "recovery_point",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 -- the parts of a log, wired once
        self,
        fs: FileSystem,
        clock: Clock,
        segments: LogSegments,
        producers: ProducerStateManager,
        epochs: LeaderEpochs,
        lane: SyncLane,
        *,
        recovery_point: int,
        flush_messages: int,
    ) -> None:
        self.lock = Lock()
        self.recovery_point = recovery_point
        self._fs = fs
        self._clock = clock
        self._segments = segments
        self._producers = producers
        self._epochs = epochs
        self._lane = lane
        self._last_flush_ms = clock.monotonic_ms()
        self.flush_messages = self.commit_limit = flush_messages
        self.commits_synced = False

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose log this is."""
        return self._segments.topic_partition

    @property
    def is_offline(self) -> bool:
        """Whether the data directory takes no flush any more."""
        return self._segments.health.reason is not None

    def reconfigure(self, flush_messages: int) -> None:
        """Sets another `flush.messages`, and puts the log into the sync lane if that many records are not synced.

        Raises StorageError where the log has no lane, so that it is synced here, and that fails.
        """
        self.flush_messages = flush_messages
        self._set_commit_limit()

    def commit_synced(self, *, commits_synced: bool) -> None:
        """Sets whether a record must be synced to count as committed; raises StorageError as `put_if_owed` does."""
        self.commits_synced = commits_synced
        self._set_commit_limit()

    def _set_commit_limit(self) -> None:
        self.commit_limit = 1 if self.commits_synced else self.flush_messages
        self.put_if_owed()

    def owes(self, offset: int) -> bool:
        """Returns whether an append up to `offset` has to wait for a sync before it is acknowledged."""
        return self._are_too_many(offset, self.flush_messages)

    @property
    def committable_offset(self) -> int:
        """The offset below which records may count as committed, as far as syncs are concerned."""
        end = self._segments.end_offset
        return self._synced_offset if self._are_too_many(end, self.commit_limit) else end

    def _are_too_many(self, offset: int, limit: int) -> bool:
        return offset - self.recovery_point >= limit and offset - self._synced_offset >= limit

    @property
    def _synced_offset(self) -> int:
        """The recovery point, or the log start offset if higher, as deleted records need no sync."""
        return max(self.recovery_point, self._segments.start_offset)

    def put_if_owed(self) -> None:
        """Puts the log into the sync lane, which flushes it, if `commit_limit` or more records are not synced.

        Raises StorageError where the log has no lane, so that it is flushed here, and that fails.
        """
        if self._are_too_many(self._segments.end_offset, self.commit_limit):
            self._lane.put(self)

    def flush_soon(self) -> None:
        """Puts the log into the sync lane, which flushes it; without a lane, may raise StorageError."""
        self._lane.put(self)

    def sync(self) -> bool:
        """Flushes what is appended so far, unless it is synced. Raises StorageError.

        Returns false if the disk has no room for indexes or leader epochs, without which the recovery point doesn't
        move.
        """
        end = self._segments.end_offset
        if self.recovery_point < end:
            self.flush()
        return self.recovery_point >= end or self._segments.is_closed

    def is_due(self, now_ms: int, flush_ms: int) -> bool:
        """Returns whether `flush_ms` have passed (monotonic `now_ms`), or a closed segment waits to be sealed.

        One that was synced while it still grew may wait, too: after a clean start, the first append may roll.
        """
        segments, recovery_point = self._segments, self.recovery_point
        if recovery_point >= segments.end_offset or segments.health.reason is not None:
            return False
        now = segments.now
        is_closed_waiting = recovery_point < now.active.base_offset or not all(one.is_sealed for one in now[-2:-1])
        return is_closed_waiting or now_ms - self._last_flush_ms >= flush_ms

    def flush(self) -> None:
        """Syncs all that is appended so far; a closed log has nothing to flush. Raises StorageError."""
        with self.lock:
            if not self._segments.is_closed:
                started_s = self._clock.monotonic_s()
                self._flush(closing=False)
                self._segments.health.flushes.observe(self._clock.monotonic_s() - started_s)

    def check_all_flushed(self) -> None:
        """Raises StorageError where the disk had no room for all that the last flush had to write."""
        if self.recovery_point < self._segments.end_offset:
            raise StorageError(f"{self._segments.directory}: the disk has no room for indexes or leader epochs")

    def finish(self) -> None:
        """Syncs a log before it is closed, and frees its indexes; the caller holds `lock`. Raises StorageError."""
        segments, active = self._segments, self._segments.now.active
        active.finish_times()
        with storage_errors(segments.directory):
            segments.names_changed |= self._producers.take_snapshot(segments.end_offset)
        self._flush(closing=True)
        if not active.is_sealed:
            raise StorageError(f"{segments.directory}: the disk has no room for the indexes")
        if self._epochs.is_unwritten:
            raise StorageError(f"{segments.directory}: the disk has no room for the leader epochs")

    def _flush(self, *, closing: bool) -> None:
        health, directory = self._segments.health, self._segments.directory
        if health.reason is not None:
            raise StorageError(f"{directory}: offline: {health.reason}")
        end = self._segments.end_offset  # read before the segments, which hold all that is below it
        segments = self._segments.now
        self._last_flush_ms = self._clock.monotonic_ms()
        for segment in segments[segments.floor_index(self.recovery_point - 1) :]:
            if not segment.is_sealed and segment.retain():
                try:
                    if not self._sync(segment, is_growing=segment is segments.active and not closing):
                        end = min(end, segment.next_offset)
                finally:
                    segment.release()
        with health.guard(directory):
            self._producers.sync_snapshots()
            end = self._epochs.flushed_end(end)
            self._sync_names()
        self.recovery_point = max(self.recovery_point, end)

    def _sync_names(self) -> None:
        if self._segments.names_changed:
            self._segments.names_changed = False  # before the sync: a roll meanwhile sets it again
            try:
                self._fs.fsync_dir(self._segments.directory)
            except OSError:
                self._segments.names_changed = True
                raise

    def _sync(self, segment: LogSegment, *, is_growing: bool) -> bool:
        """Syncs a segment; returns false if its indexes find no room: the recovery point then stays below.

        A growing segment's indexes may be missing: after a crash, recovery reads all of it and rebuilds them.
        """
        with self._segments.health.guard(segment.path):
            has_room = segment.write_indexes()
            if is_growing or not has_room:
                segment.sync_batches()
            else:
                segment.sync()
                segment.seal()
        return is_growing or has_room
