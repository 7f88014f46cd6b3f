"""The segments that a log has now, where the log starts and ends, and what happens to files that it has no more.

    begin           adds a new active segment at the end
    drop_first      takes the oldest one out; `rename_dropped` renames its files to `.deleted`, on another thread
    replace         puts a compacted or healed segment in the place of others, whose files are renamed and removed later
    insert_behind   puts a new segment into a hole, where files of segments were lost (`healing`)
    restart         goes on behind what a truncation has left

What happens to the files of dropped and replaced segments, `deleted_files` says.

Threads: `now` is an immutable value, which any thread may take and keep; one that needs the end offset too reads it
before. `begin`, `drop_first`, `restart` and `release_replaced` belong to the log's own thread, `replace` to that of
compaction. What takes segments out or closes them is done under `names_lock`: `replace` takes it, callers of the other
methods do so themselves; appends and reads never need it. Every change of `now` is made under another lock, so that a
roll on one thread and a replacement on another both stand. Dropped segments are renamed under a third one, so that a
slow disk holds up neither retention nor compaction.

The rule by which the active segment is finished and the next one begun (docs/logs.md):

    segment.bytes     its size would come above it
    segment.ms        its first record is older: by the records' own times, by the clock where they have none;
                      in a compacted topic max.compaction.lag.ms, if it is less
    index             it has no room left, or can't hold the offset

Up to `segment.jitter.ms`, drawn for each segment, is subtracted from `segment.ms`, so that partitions that were made
together do not roll and sync together.

Appended batches go into the active segment, or into a new one that is begun for them (`SegmentWriter`). What is placed
together is one write. A write that fails leaves the log as it was: what came half-way is cut off again, and where even
that fails the data folder goes offline, since what the file ends with is not known. The epoch of the first batch of a
leader is noted before the log's end moves, so that a flush up to there writes it, too. Belongs to the log's own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from random import Random
from threading import Lock
from weakref import ref

from millrace.clock import Clock
from millrace.errors import NotLeaderError, RecordError, StorageError
from millrace.fs import FileSystem
from millrace.records.batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader
from millrace_broker.storage.batches.placement import Placement
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import (
    DirHealth,
    is_disk_full,
    is_out_of_descriptors,
    storage_error,
    storage_errors,
)
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.deleted_files import DeletedFiles
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.recovery.offset_gaps import OffsetGaps
from millrace_broker.storage.segments.damage import DamagedRange
from millrace_broker.storage.segments.damage_search import headers_past_damage
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import SegmentSequence
from millrace_broker.storage.segments.segment_swap import swap_in


class Rolling:
    """Decides when one log begins a new segment; `seed` makes the random part of `segment.jitter.ms` repeatable."""

    __slots__ = ("_begun_at_ms", "_chance", "_clock", "_config", "_jitter_ms", "_roll_ms", "_seed", "segment_bytes")

    def __init__(self, clock: Clock, config: LogConfig, seed: str) -> None:
        self._clock = clock
        self._seed = seed
        self._chance: Random | None = None
        self._begun_at_ms = clock.now_ms()
        self._jitter_ms = 0
        self.config = config

    @property
    def config(self) -> LogConfig:
        """The log's current settings, which hold for the active segment, too."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.segment_bytes, self._roll_ms = config.segment_bytes, config.roll_ms

    def resume(self, segment: LogSegment) -> None:
        """Does what `begin` does for a loaded segment, but reserves no space on a full disk. Raises other OSErrors."""
        try:
            self.begin(segment)
        except OSError as error:
            if not is_disk_full(error):
                raise

    def begin(self, segment: LogSegment) -> None:
        """Starts the age of a new active segment; reserves its space if `preallocate` is set. Raises OSError."""
        if self.config.preallocate:
            segment.reserve(self.config.segment_bytes)
        self._begun_at_ms = self._clock.now_ms()
        self._jitter_ms = self._drawn(min(self.config.segment_jitter_ms, self._roll_ms))

    def _drawn(self, up_to_ms: int) -> int:
        if not up_to_ms:
            return 0
        self._chance = self._chance or Random(self._seed)  # noqa: S311 -- it spreads load and keeps no secret
        return self._chance.randint(0, up_to_ms)

    def is_due(self, active: LogSegment, size_bytes: int, last_offset: int, max_timestamp: int) -> bool:
        """Returns whether an append of this size, last offset and largest timestamp needs a new segment."""
        active_bytes, began_ms = active.size_bytes, active.first_timestamp
        if not active_bytes:
            return False
        age_ms = max_timestamp - began_ms if began_ms != NO_TIMESTAMP else self._clock.now_ms() - self._begun_at_ms
        return (
            active_bytes + size_bytes > self.segment_bytes
            or age_ms > self._roll_ms - self._jitter_ms
            or active.is_index_full
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        )


class LogSegments:
    """The state that the parts of one log share: its segments (`now`), its bounds, and whether it is closed.

    `names_changed` says whether the folder has file names that were not synced. `truncations` counts how often the end
    was cut off, by which a reader of files on another thread notices it. `high_watermark` is None where it is the log's
    end, as no follower is waited for. `gaps` says where offsets may be left out. `is_held` says that a worker truncates
    or moves the log (`Replica.hold`).
    """

    __slots__ = (
        "_fs", "_now_lock", "_released", "_replaced", "deleted", "directory",
        "end_offset", "gaps", "health", "high_watermark", "is_closed", "is_held", "names_changed", "names_lock", "now",
        "start_offset", "topic_partition", "truncations",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        segments: Iterable[LogSegment],
        *,
        start_offset: int,
        end_offset: int,
        health: DirHealth,
        gaps: OffsetGaps,
        deleted: Iterable[str] = (),
    ) -> None:
        """Takes the loaded segments, and the paths of files of deleted ones that are left, which are due."""
        self.directory = directory
        self.gaps = gaps
        self.topic_partition = topic_partition
        self.now = SegmentSequence(segments)
        self.start_offset = max(start_offset, self.now[0].base_offset)
        self.end_offset = end_offset
        self.high_watermark: int | None = None
        self.health = health
        self.is_closed = False
        self.is_held = False
        self.names_changed = True
        self.names_lock = Lock()
        self._now_lock = Lock()
        self._fs = fs
        self.deleted = DeletedFiles(fs, clock, directory, health, deleted)
        # Lists, as nearly all logs have none of these, and an empty deque takes 0.7 KB.
        self._replaced: list[LogSegment] = []
        self._released: list[ref[LogSegment]] = []  # replaced, and perhaps still held by readers
        self.truncations = 0

    def check_writable(self, *, by_holder: bool = False) -> None:
        """Raises StorageError where the log is closed or its data folder is offline.

        Raises NotLeaderError while the log is held, unless for the worker that holds it: clients ask again.
        """
        if self.is_held and not by_holder:
            raise NotLeaderError(f"{self.topic_partition}: the log is being cut or moved")
        if self.health.reason is not None:
            raise StorageError(f"{self.directory}: offline: {self.health.reason}")
        if self.is_closed:
            raise StorageError(f"{self.directory}: the log is closed")

    def begin(self, base_offset: int, rolling: Rolling) -> LogSegment:
        """Adds a new active segment and ends the one before; nothing is synced. An OSError changes nothing."""
        segment = self._made(base_offset, rolling.config, rolling.begin)
        self.now.active.finish()
        with self._now_lock:
            self.now = SegmentSequence((*self.now, segment))
        self.names_changed = True
        return segment

    def restart(self, kept: Sequence[LogSegment], base_offset: int, rolling: Rolling) -> LogSegment:
        """Replaces the segments, after a truncation, by those that are left and a new active one. Raises OSError."""
        segment = self._made(base_offset, rolling.config, rolling.resume)
        with self._now_lock:
            self.now = SegmentSequence((*kept, segment))
        self.names_changed = True
        return segment

    def _made(self, base_offset: int, config: LogConfig, take_room: Callable[[LogSegment], None]) -> LogSegment:
        segment = LogSegment(self._fs, self.directory, base_offset, config)
        with ExitStack() as undo:
            undo.callback(segment.release)
            segment.begin()
            take_room(segment)
            undo.pop_all()
        return segment

    def led_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yields headers of batches that end above an offset; of a recovered segment, two of each leader epoch.

        Raises StorageError.
        """
        if offset >= self.end_offset:
            return
        for segment in self.now[self.now.floor_index(offset) :]:
            with storage_errors(segment.path), suppress(RecordError):
                headers = segment.led or self._headers_in(segment, offset)
                yield from (header for header in headers if header.next_offset > offset)

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yields the headers of all batches from the one that holds `offset` on, but for those that damage hides.

        Raises StorageError.
        """
        for segment in self.now[self.now.floor_index(offset) :]:
            with storage_errors(segment.path), suppress(RecordError):
                yield from self._headers_in(segment, offset)

    def _headers_in(self, segment: LogSegment, offset: int) -> Iterator[BatchHeader]:
        return (header for _, header in headers_past_damage(self._fs, segment, offset))

    def drop_first(self, snapshot: str, delay_ms: int) -> None:
        """Takes the oldest segment out, so that the log starts at the next one.

        Its files and the producer `snapshot` at its base offset are renamed later (`DeletedFiles.rename_dropped`).
        """
        segment = self.now[0]
        self.deleted.drop(segment, snapshot, delay_ms)
        with self._now_lock:
            self.now = SegmentSequence(self.now[1:])
        self.start_offset = max(self.start_offset, self.now[0].base_offset)
        segment.release()

    def replace(self, old: Sequence[LogSegment], new: LogSegment, truncations: int, delay_ms: int) -> bool:
        """Puts a new segment in place of the old ones that it was made of; returns whether it did.

        It does nothing where an old segment is gone, the log takes no writes, or it was truncated meanwhile
        (`truncations`): values may have been cut off for which older ones were dropped. A StorageError takes the data
        folder offline, as only opening it again tells which segments the disk has. The old ones stay open until
        `release_replaced`, which the log's own thread calls, as it may be reading one.
        """
        with self.names_lock:
            if self.is_closed or self.health.reason is not None or self.truncations != truncations:
                return False
            if not self.now.holds(old):
                return False
            try:
                deleted = swap_in(self._fs, self.directory, old, new)
            except OSError as error:
                self.health.fail(f"a new segment could not be put in place: {error}")
                raise storage_error(self.directory, error) from error
            with self._now_lock:
                self.now = self.now.with_replaced(old, new)
            self.deleted.add(deleted, delay_ms)
            self._replaced.extend(old)
        return True

    def insert_behind(self, before: LogSegment, new: LogSegment, hole: DamagedRange, truncations: int) -> bool:
        """Puts a new segment behind `before`, into the hole at its end, under its final names; returns whether it did.

        It does nothing where `before` is gone, or the log takes no writes or was truncated. A crash leaves the segment
        or the hole. A StorageError takes the data folder offline.
        """
        with self.names_lock:
            if self.is_closed or self.health.reason is not None or self.truncations != truncations:
                return False
            if not self.now.holds([before]):
                return False
            with self.health.guard(new.path):
                new.change_suffix("")
                self._fs.fsync_dir(self.directory)
            with self._now_lock:
                before.damage = tuple(one for one in before.damage if one is not hole)
                before.next_offset = hole.start_offset
                self.now = self.now.with_replaced([before], before, new)
        return True

    def release_replaced(self) -> None:
        """Closes the segments that were replaced, except for readers that keep them open (`LogSegment.retain`)."""
        while self._replaced:
            segment = self._replaced.pop(0)
            self._released = [*(each for each in self._released if each() is not None), ref(segment)]
            segment.release()

    def empty_replaced(self, end_offset: int) -> None:
        """Empties the files of replaced segments that reach above `end_offset`, for readers that still hold them.

        The caller holds `names_lock`. Raises OSError.
        """
        released = (each() for each in self._released)
        for segment in (*self._replaced, *released):
            if segment is not None and segment.next_offset > end_offset and segment.retain():
                try:
                    self._fs.truncate(segment.fd, 0)
                finally:
                    segment.release()

    def close(self) -> None:
        """Closes all segments; from then on the log takes no write and no flush."""
        self.is_closed = True
        self.deleted.forget_dropped()
        for segment in self.now:
            segment.release()


class SegmentWriter:
    """Writes batches at the log's end, and begins new segments."""

    __slots__ = ("_active", "_epochs", "_producers", "_rolling", "_segments")

    def __init__(
        self, segments: LogSegments, rolling: Rolling, producers: ProducerStateManager, epochs: LeaderEpochs
    ) -> None:
        self._segments = segments
        self._active = segments.now.active
        self._rolling = rolling
        self._producers = producers
        self._epochs = epochs

    def reconfigure(self, config: LogConfig) -> None:
        """Sets the log's settings, by which segments are made from now on."""
        self._rolling.config = config

    @property
    def config(self) -> LogConfig:
        """The settings by which segments are made."""
        return self._rolling.config

    def takes(self, placement: Placement) -> bool:
        """Returns whether laid-out batches fit into the active segment; false for an empty one."""
        active = self._active
        fits = active.size_bytes > 0 and len(placement.batches) <= active.index_room
        return fits and not self._rolling.is_due(
            active, placement.size_bytes, placement.last_offset, placement.max_timestamp
        )

    def write(self, placement: Placement, leader_epoch: int, base_offset: int) -> None:
        """Writes placed batches at `base_offset` and moves the log's end behind them. Raises StorageError."""
        segments, epochs = self._segments, self._epochs
        begins_epoch = leader_epoch not in (epochs.latest, NO_LEADER_EPOCH)
        if begins_epoch:
            epochs.announce(leader_epoch, base_offset)
        buffers, size_bytes, batches, _, last_offset, max_timestamp = placement
        segment = self._active
        if self._rolling.is_due(segment, size_bytes, last_offset, max_timestamp):
            segment = self.roll()
        try:
            start = segment.write(buffers, size_bytes)
        except OSError as error:
            segments.health.note_refusal(error)
            if not is_out_of_descriptors(error):
                self._undo_write(segment)
            raise storage_error(segment.path, error) from error
        if segments.health.is_full:
            segments.health.note_room()
        for position, batch_end, newest in batches:
            segment.add(start + position, batch_end, newest)
        if begins_epoch:
            epochs.assign(leader_epoch, base_offset)
        segments.end_offset = segment.next_offset

    def roll(self) -> LogSegment:
        """Makes a new segment at the log's end the active one; nothing is synced here.

        Raises StorageError.
        """
        segments = self._segments
        try:
            self._producers.take_snapshot(segments.end_offset)
            self._active = segments.begin(segments.end_offset, self._rolling)
        except OSError as error:
            segments.health.note_refusal(error)
            raise storage_error(segments.directory, error) from error
        return self._active

    def restart(self, kept: Sequence[LogSegment], base_offset: int) -> None:
        """Begins a new active segment at `base_offset`, behind those that a truncation has kept. Raises OSError."""
        self._active = self._segments.restart(kept, base_offset, self._rolling)

    def _undo_write(self, segment: LogSegment) -> None:
        try:
            segment.undo_write()
        except OSError as error:
            self._segments.health.fail(f"{segment.path}: a failed write could not be undone: {error}")
