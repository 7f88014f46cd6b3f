"""Healing a log: what other replicas have takes the place of its damaged ranges (docs/logs.md).

Damage inside a segment: another segment is written and swapped for the damaged one, as a compacted one is
(`segment_swap`). Bytes that nobody has are copied as they are, and stay damaged.

    damaged     [ 0 … 39 ]? ? ? ? ? ? ? ? ?[ 100 … 119 ]? ? ?
    fetched               [ 40 … 69 ][ 70 … 99 ]         nothing
    healed      [ 0 … 39 ][ 40 … 69 ][ 70 … 99 ][ 100 … 119 ]? ? ?

A hole behind the last batch of a segment, as where the files of the next ones are gone: further segments are put there.
A segment that has no batch left is written again up to its size first, as two can't have one base offset.

    segments    0 [ 0 … 39 ]  missing: 40 … 119                  120 [ 120 …
    healed      0 [ 0 … 39 ]  40 [ 40 … 79 ]    80 [ 80 … 119 ]  120 [ 120 …

Where the bytes in front of such a hole are damaged, too, the segment is written again up to its size, and so are they:
what is missing then is a hole.

    step                                              what a crash behind it leaves
    1  write and sync <base>.{log,index,…}.healed.tmp the damage; the next start removes `.tmp`
    2  swap it in, or rename it into the hole         the damage, or less of it
    3  name what is left in `damaged-ranges`          less damage; whoever reads the file compares it with the segment

No CRC covers a base offset. A batch is confirmed by the one in front of it, which ends there, and one behind damage by
nothing: it is fetched again with the damage (`with_batch_behind`). Where other replicas have a batch across its
beginning it is damage, too (`widen`), and where their batch reaches over the log's end, that is wrong (`extend_end`).

Before step 2 a new segment is walked as a start walks one, so that nothing is trusted that was written here.

What was damaged when the log was opened has hidden producers' batches and markers from it, and leader epochs. These are
then read again from the log (`reread_producers`), and so are both where they were taken from headers that may have been
damaged (`ProducerStateManager.unchecked`, `LeaderEpochs.are_unchecked`), or where an index of aborted transactions has
changed on the disk.

Threads: `roll` belongs to the log's own, `reread_producers` and `compare_leader_epochs` to a worker that has the log
for itself, the others to any.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import islice
from typing import Self

from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import CorruptRecordError, RecordError, StorageError
from millrace.fs import Buffer, FileSystem
from millrace.records.batch import BatchHeader
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import HEALED_FILE_SUFFIX
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments, SegmentWriter
from millrace_broker.storage.log.truncation import Truncation
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.segments.damage import AllowedGaps, DamagedRange, Synced, covering
from millrace_broker.storage.segments.damage_search import add_holes, note_missing
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_swap import discard

COPY_BYTES = 256 << 10
SYNC_BYTES = 8 << 20  # one large sync at the end would delay the syncs of appends
MAX_POSITION = 2**31 - 1


class NewSegment:
    """A segment that is being written beside the log's; used as a context, which removes what was not taken.

    Its methods raise StorageError.
    """

    def __init__(
        self, fs: FileSystem, directory: str, config: LogConfig, base_offset: int, suffix: str = HEALED_FILE_SUFFIX
    ) -> None:
        """Makes the files, with a suffix, in place of those that an earlier attempt has left. Raises StorageError."""
        self._fs = fs
        arguments = fs, directory, base_offset, config, suffix
        with storage_errors(directory):
            discard(fs, LogSegment(*arguments))
            self.segment = LogSegment(*arguments)
        self._unsynced_bytes = 0
        self._is_taken = False

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the files, unless the segment was taken."""
        if not self._is_taken:
            discard(self._fs, self.segment)

    def put(self, data: Buffer) -> None:
        """Appends bytes to the segment's file."""
        size_bytes = memoryview(data).nbytes
        with storage_errors(self.segment.path):
            if self.segment.size_bytes + size_bytes > MAX_POSITION:
                raise StorageError(f"{self.segment.path}: what was fetched is too large for a segment")
            self.segment.write([data], size_bytes)
            self._unsynced_bytes += size_bytes
            if self._unsynced_bytes >= SYNC_BYTES:
                self.segment.sync_batches()
                self._unsynced_bytes = 0

    def finish(self, end_offset: int, missing: Collection[DamagedRange], modified_ms: int | None) -> LogSegment:
        """Walks the file, whose batches may leave out offsets up to `end_offset`; returns the synced segment."""
        segment = self.segment
        with storage_errors(segment.path):
            synced = Synced(MAX_LONG, end_offset, is_end=True)
            segment.recover(AllowedGaps(end_offset), truncate=False, synced=synced)
            add_holes(self._fs, segment)
            for one in missing:
                if covering(segment.damage, one.start_offset) is None:
                    segment.add_damage(one)
            segment.finish()
            segment.next_offset = end_offset
            if modified_ms is not None:
                segment.set_modified_ms(modified_ms)
            if not segment.write_indexes():
                raise StorageError(f"{segment.path}: the disk has no room for the indexes")
            segment.sync()
            segment.seal()
        return segment

    def taken(self) -> None:
        """Keeps the files: the segment is the log's now."""
        self._is_taken = True


class SegmentHealing(NewSegment):
    """A copy of a segment that takes its place: its damaged ranges are filled one after the other, by position."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        damaged: LogSegment,
        suffix: str = HEALED_FILE_SUFFIX,
    ) -> None:
        super().__init__(fs, directory, config, damaged.base_offset, suffix)
        self._damaged = damaged
        self._copied_to = 0
        self._missing: list[DamagedRange] = []

    def copy_up_to(self, position: int) -> None:
        """Copies the bytes of the damaged segment from where the last range ended up to `position`."""
        with storage_errors(self._damaged.path):
            while self._copied_to < position:
                size_bytes = min(COPY_BYTES, position - self._copied_to)
                data = self._fs.pread(self._damaged.fd, size_bytes, self._copied_to)
                self.put(data)
                self._copied_to = self._copied_to + len(data) if data else position  # the file may have been cut

    def end(self, damaged: DamagedRange, filled_to: int) -> None:
        """Ends a range, filled up to an offset: its damaged bytes are left out if it is whole, or else copied.

        At the segment's end they are left out, too, once as many bytes are there again: the rest is a hole behind them.
        """
        is_last = damaged.end_position >= self._damaged.size_bytes
        is_refilled = is_last and filled_to > damaged.start_offset and self.segment.size_bytes >= damaged.end_position
        if filled_to >= damaged.end_offset or is_refilled:
            self._copied_to = damaged.end_position
        if filled_to >= damaged.end_offset:
            return
        position = self.segment.size_bytes
        self.copy_up_to(damaged.end_position)
        end = self.segment.size_bytes
        self._missing.append(damaged._replace(start_offset=filled_to, position=position, end_position=end))

    def complete(self) -> LogSegment:
        """Copies the rest, and returns the new segment, ready to take the damaged one's place."""
        old, new = self._damaged, self.segment
        self.copy_up_to(old.size_bytes)
        new.repaired = old.repaired
        with storage_errors(old.path):
            modified_ms = old.modified_ms
            try:
                for transaction in old.transaction_index.entries():
                    new.transaction_index.append(transaction)
            except CorruptRecordError:
                new.transaction_index.is_changed = True  # so it is not read before it is made again
        return self.finish(old.next_offset, self._missing, modified_ms)


class LogHealing:
    """Heals the segments of one log.

    Args:
        fs: the door to the files.
        segments: the log's segments.
        writer: makes new ones.
        truncation: moves the log's end.
        producers: who has written.
        leader_epochs: the leader epochs of the log.
        hidden: the base offsets of segments whose damage the log has been opened with.
    """

    __slots__ = (
        "_fs", "_hidden", "_leader_epochs", "_producers", "_reread_from", "_segments", "_truncation", "_writer",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 -- the parts of a log
        self,
        fs: FileSystem,
        segments: LogSegments,
        writer: SegmentWriter,
        truncation: Truncation,
        producers: ProducerStateManager,
        leader_epochs: LeaderEpochs,
        hidden: Collection[int],
    ) -> None:
        self._fs = fs
        self._segments = segments
        self._writer = writer
        self._truncation = truncation
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._hidden = set(hidden)
        self._reread_from: int | None = None

    @property
    def gapless_from(self) -> int:
        """The offset from which on the log leaves out none: neither compaction nor a leader's has removed any."""
        return self._segments.gaps.gapless_from

    def removed_up_to(self) -> int:
        """Returns the offset up to which batches or records were removed, as by compaction; 0 where none was.

        All headers are read. Raises StorageError.
        """
        if not self.gapless_from:
            return 0
        removed_to, expected = 0, self._segments.start_offset
        for segment in self._segments.now:
            with storage_errors(segment.path), suppress(RecordError):
                for _, header in segment.headers(0):
                    ends = [one.end_offset for one in segment.damage if one.start_offset <= expected]
                    is_gap = header.base_offset > max((expected, *ends))
                    if is_gap or header.record_count <= header.last_offset_delta:
                        removed_to = header.next_offset
                    expected = max(expected, header.next_offset)
            expected = max(expected, segment.next_offset)
        return removed_to

    def compare_leader_epochs(self) -> None:
        """Reads the leader epochs from the batches where these contradict them. Raises StorageError."""
        self._leader_epochs.compare(self._segments.headers_from, self._segments.start_offset)

    def confirms_epoch(self, end_offset: int, epoch: int) -> bool:
        """Returns whether the batch that ends at an offset has an epoch that another replica's has, too.

        Then the log's epochs are wrong if they say otherwise, and are corrected. Raises StorageError.
        """
        batch = next(iter(self._segments.headers_from(end_offset - 1)), None) if end_offset > 0 else None
        if batch is None or (batch.next_offset, batch.partition_leader_epoch) != (end_offset, epoch):
            return False
        self._leader_epochs.confirm(batch, self._segments.start_offset)
        return True

    def hides_epoch_at(self, offset: int) -> bool:
        """Returns whether an offset lies in damage with which the log was opened, so that its epoch may be unknown."""
        segment = self._segments.now[self._segments.now.floor_index(offset)]
        return segment.base_offset in self._hidden and covering(segment.damage, offset) is not None

    def damage(self) -> list[tuple[str, DamagedRange]]:
        """Returns the damaged ranges above the log start offset, each with the path of its segment."""
        segments, start = self._segments.now, self._segments.start_offset
        return [(segment.path, one) for segment in segments if segment.damage for one in damage_above(segment, start)]

    def damaged_segments(self) -> list[LogSegment]:
        """Returns the segments with damage that reaches above the log start offset."""
        start = self._segments.start_offset
        return [one for one in self._segments.now if damage_above(one, start)]

    def roll(self) -> None:
        """Begins a new active segment if the present one is damaged or its file gone, so that it can be healed.

        Raises StorageError.
        """
        self._segments.check_writable()
        if self._segments.now.active.damage or self.must_roll:
            self._writer.roll()

    @property
    def must_roll(self) -> bool:
        """Whether the file of the active segment is gone, which is written again once another one has begun."""
        return self._segments.now.active.has_lost_its_name

    def healing(self, damaged: LogSegment) -> SegmentHealing:
        """Returns the beginning of a segment in the place of a damaged, closed one. Raises StorageError."""
        return SegmentHealing(self._fs, self._segments.directory, self._writer.config, damaged)

    def filling(self, base_offset: int) -> NewSegment:
        """Returns the beginning of a segment that goes into a hole at `base_offset`. Raises StorageError."""
        return NewSegment(self._fs, self._segments.directory, self._writer.config, base_offset)

    @property
    def segment_bytes(self) -> int:
        """The size at which segments are to end (`segment.bytes`)."""
        return self._writer.config.segment_bytes

    def most_bytes(self, segment: LogSegment, damaged: DamagedRange) -> int:
        """Returns the size up to which a range is filled again: one at the segment's end may be a hole in part."""
        is_last = damaged.end_position >= segment.size_bytes
        return max(self.segment_bytes, segment.size_bytes) if is_last else MAX_INT

    def with_batch_behind(self, segment: LogSegment, damaged: DamagedRange) -> DamagedRange:
        """Returns a damaged range with the batch, or the damage, right behind it; as it is where the segment ends.

        It ends where the next batch begins. Raises StorageError.
        """
        start = damaged.end_position
        behind = next((one for one in segment.damage if one != damaged and one.position >= start), None)
        if behind is not None and behind.position == start:
            return damaged._replace(end_offset=behind.end_offset, end_position=behind.end_position)
        found: list[tuple[int, BatchHeader]] = []
        with storage_errors(segment.path), suppress(RecordError):
            found.extend(islice(segment.headers(start), 2))
        if not found:
            return damaged
        end = start + found[0][1].size_bytes
        next_offset = segment.next_offset if behind is None else behind.start_offset
        next_offset = next((header.base_offset for at, header in found[1:] if at == end), next_offset)
        return damaged._replace(end_offset=max(next_offset, damaged.end_offset), end_position=end)

    def widen(self, segment: LogSegment, wider: DamagedRange) -> None:
        """Sets aside all of a range that is larger than the damage that is known in it."""
        segment.damage = tuple(
            one for one in segment.damage if one.start_offset < wider.start_offset or wider.end_offset < one.end_offset
        )
        segment.add_damage(wider)

    def extend_end(self, offset: int) -> None:
        """Moves the end of a log that ends with damage up to `offset` (`Truncation.extend_damaged_end`)."""
        self._truncation.extend_damaged_end(offset)

    def put_in_place(
        self, damaged: LogSegment, healing: SegmentHealing, truncations: int, *, is_other: bool = False
    ) -> bool:
        """Swaps the damaged segment for the new one; returns false where the log has changed (`LogSegments.replace`).

        `is_other` says that batches were fetched which the log never had. Raises StorageError.
        """
        new = healing.complete()
        if is_other:
            self._hidden.add(damaged.base_offset)
            self._segments.gaps.begin(damaged.next_offset)  # the other replica may have left out more
        is_replaced = self._segments.replace([damaged], new, truncations, self._writer.config.file_delete_delay_ms)
        if is_replaced:
            healing.taken()
            self._note_placed(damaged.base_offset, new)
        return is_replaced

    def put_into_hole(self, before: LogSegment, filling: NewSegment, filled_to: int, truncations: int) -> bool:
        """Puts a new segment into the hole at the end of `before`; what it does not fill is missing at its own end.

        Returns false where the log has changed meanwhile. Raises StorageError.
        """
        hole = hole_at_end(before)
        if hole is None:
            return False
        filling.segment.repaired = before.repaired
        new = filling.finish(filled_to, (), None)
        note_missing(new, hole.end_offset)
        is_inserted = self._segments.insert_behind(before, new, hole, truncations)
        if is_inserted:
            filling.taken()
            self._note_placed(before.base_offset, new)
        return is_inserted

    def _note_placed(self, base_offset: int, new: LogSegment) -> None:
        is_unchecked = base_offset in self._producers.unchecked or self._leader_epochs.are_unchecked
        if base_offset in self._hidden or is_unchecked:
            self._hidden.add(new.base_offset)
            self._reread_from = min(base_offset, MAX_LONG if self._reread_from is None else self._reread_from)

    @property
    def is_due(self) -> bool:
        """Whether the log has damage, lacks the file of its active segment, or has to read producers' state again."""
        # All logs are asked every second: one look at each segment.
        if self._reread_from is not None or self.must_roll:
            return True
        start = self._segments.start_offset
        return any(
            one.transaction_index.is_changed or (one.damage and damage_above(one, start)) for one in self._segments.now
        )

    @property
    def owes_producers(self) -> bool:
        """Whether `reread_producers` is due: healed batches the state lacks or has wrong, or an index has changed."""
        return self._reread_from is not None or any(one.transaction_index.is_changed for one in self._segments.now)

    def reread_producers(self) -> None:
        """Reads the producers' state and leader epochs again from the first segment on whose damage has hidden some.

        The transaction indexes of these segments are made again, from the first one that has changed on. Nothing is
        appended meanwhile. Raises StorageError.
        """
        segments = self._segments
        changed = [one.base_offset for one in segments.now if one.transaction_index.is_changed]
        from_offset = min(changed if self._reread_from is None else [*changed, self._reread_from], default=None)
        if from_offset is None:
            return
        with storage_errors(segments.directory):
            start, end = segments.start_offset, segments.end_offset
            self._producers.reload(tuple(segments.now), from_offset, log_start_offset=start, log_end_offset=end)
            self._leader_epochs.add(segments.headers_from, from_offset, start)
        self._reread_from = None
        self._hidden &= {one.base_offset for one in segments.now if one.damage}


def damage_above(segment: LogSegment, start_offset: int) -> list[DamagedRange]:
    """Returns a segment's damage but for what lies below the log start offset, where nobody misses it."""
    return [one for one in segment.damage if one.end_offset > start_offset or one.start_offset >= start_offset]


def hole_at_end(segment: LogSegment) -> DamagedRange | None:
    """Returns the hole behind a segment's last batch, up to where the next one begins; None without one."""
    return next((one for one in segment.damage if one.is_hole and one.end_offset >= segment.next_offset), None)
