"""Finding and reading what a log holds: batches by offset, records by time, aborted transactions.

Each method takes one snapshot of the segments, so what appends, retention and compaction do meanwhile is not seen.
Damage that a read meets is set aside (`damage_search`); a read of what is damaged raises DamagedRangeError, and one
that begins before it ends there: what is read of closed segments is checked first (`checked_bytes`). Belongs to
the log's own thread, but for `aborted_transactions`, which compaction's thread calls too.

The header of a batch has the largest timestamp of its records, so a look-up by time decompresses no batch without a
candidate. A batch may hold millions of records, so such a look-up pauses at each (`millrace.turns`).

Many batches are read only when the socket takes them (`LogSlice`). The answer to a fetch can hold many megabytes and
its reader can be slow, so the answer holds the place of the batches and not their bytes. A slice keeps the segment's
file open, even if retention or compaction takes the segment out meanwhile; the file is given back with the last
reference to the slice.

Where the log is truncated meanwhile, the file ends before the batches do, and nothing is written there again
(`truncation`): what was cut can't be read any more, nor what took its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary, ref

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, OffsetOutOfRangeError, RecordError, StorageError
from millrace.fs import FileSystem
from millrace.records.batch import NO_TIMESTAMP, BatchHeader
from millrace.records.bodies import TimedOffset, record_times
from millrace.turns import each
from millrace_broker.storage.batches.scan import Located
from millrace_broker.storage.failures import storage_error, storage_errors
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments
from millrace_broker.storage.segments.batch_epochs import WrongEpoch, mend
from millrace_broker.storage.segments.checked_bytes import CheckedBytes, checked, known_end
from millrace_broker.storage.segments.damage import DamagedRangeError, covering, is_repaired
from millrace_broker.storage.segments.damage_search import past_damage, set_aside_end, set_aside_from
from millrace_broker.storage.segments.indexes import AbortedTransaction, find_aborted
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import SegmentSequence
from millrace_broker.storage.segments.time_entries import fits_its_batch, learn_newest, newest_behind

LATEST = -1
EARLIEST = -2


class LogSlice:
    """Whole batches that lie in a segment's file, which is kept open; `len()` is their size in bytes."""

    __slots__ = ("_position", "_segment", "_size_bytes")

    def __init__(self, segment: LogSegment, position: int, size_bytes: int) -> None:
        """Keeps the segment's files open from now on; raises StorageError where they are closed already."""
        self._segment: LogSegment | None = None
        if not segment.retain():
            raise StorageError(f"{segment.path}: the segment is closed")
        self._segment = segment
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __del__(self) -> None:
        if self._segment is not None:
            self._segment.release()

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Returns the batches' bytes, or `size_bytes` of them from `start` on.

        Raises StorageError, also where a truncation has cut them off.
        """
        assert self._segment is not None
        length = self._size_bytes - start if size_bytes is None else min(size_bytes, self._size_bytes - start)
        with storage_errors(self._segment.path):
            data = self._segment.read_at(self._position + start, length)
        if len(data) < length:
            raise StorageError(f"{self._segment.path}: the log was truncated while its records were read")
        return data

    @contextmanager
    def file(self) -> Iterator[tuple[int, int]]:
        """Gives (descriptor, position) for `sendfile` within the context; a file that was cut since sends fewer bytes.

        Raises StorageError.
        """
        assert self._segment is not None
        with storage_errors(self._segment.path), self._segment.descriptor() as fd:
            yield fd, self._position


FoundBatches = tuple[LogSegment, Located]
"""Batches, and the segment that they are in; made for each read, so without a class."""


class LogReader:
    """Reads the batches of one log, and searches them by timestamp."""

    __slots__ = ("_checked", "_entries", "_fs", "_opened", "_opened_bytes", "_segments")

    def __init__(self, fs: FileSystem, segments: LogSegments, epochs: LeaderEpochs) -> None:
        self._fs = fs
        self._entries = lambda: epochs.entries  # called where something is checked, which most reads do not
        self._segments = segments
        self._checked: WeakKeyDictionary[LogSegment, CheckedBytes] = WeakKeyDictionary()
        self._opened, self._opened_bytes = ref(segments.now.active), segments.now.active.size_bytes

    def read(self, offset: int, max_bytes: int, up_to_offset: int, *, at_least_one: bool) -> bytes:
        """Returns the bytes of whole batches from the one with `offset` on, at most `max_bytes` (see `Log.read`)."""
        found = self._find(offset, max_bytes, up_to_offset, at_least_one=at_least_one)
        return b"" if found is None else _read(found)

    def read_or_find(
        self, offset: int, max_bytes: int, up_to_offset: int, read_at_once_bytes: int, *, at_least_one: bool
    ) -> bytes | LogSlice:
        """Returns the bytes of whole batches; above `read_at_once_bytes`, a slice of the file (`Log.read_or_find`)."""
        found = self._find(offset, max_bytes, up_to_offset, at_least_one=at_least_one)
        if found is None:
            return b""
        segment, located = found
        if located.size_bytes <= read_at_once_bytes:
            return _read(found)
        return LogSlice(segment, located.position, located.size_bytes)

    def _find(self, offset: int, max_bytes: int, up_to_offset: int, *, at_least_one: bool) -> FoundBatches | None:
        start_offset, end_offset = self._segments.start_offset, self._segments.end_offset
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRangeError(
                f"{self._segments.topic_partition}: offset {offset} is not in {start_offset}..{end_offset}"
            )
        end_offset = min(end_offset, up_to_offset)
        if offset >= end_offset:
            return None
        segments = self._segments.now
        try:
            for index in range(segments.floor_index(offset), len(segments)):
                segment = segments[index]
                if segment.base_offset >= end_offset:
                    break
                try:
                    located = self._locate(segment, offset, max_bytes, end_offset, at_least_one=at_least_one)
                except RecordError:
                    locate = partial(self._locate, segment, offset, max_bytes, end_offset, at_least_one=at_least_one)
                    located = past_damage(self._fs, segment, offset, self._gapless_from, locate)
                if located is not None:
                    return (segment, located) if located.size_bytes else None
                self._check_end(segments, index, offset, end_offset)
        except OSError as error:
            raise storage_error(self._segments.directory, error) from error
        return None

    def _locate(
        self, segment: LogSegment, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
    ) -> Located | None:
        """Does what `LogSegment.locate` does, but for damage, before which it ends (`checked_bytes`).

        Raises CorruptRecordError where the file has been cut, as readers would get a part of a batch.
        """
        found = segment.locate(offset, max_bytes, end_offset, at_least_one=at_least_one)
        if found is None or not found.size_bytes:
            return found
        if found.data is None:
            self._check_size(segment, known_end(segment, found))
        if self._was_appended(segment, found.position):
            return found
        known = self._checked.get(segment)
        if known is None:
            known = self._checked[segment] = CheckedBytes()
        part, wrong = checked(self._fs, segment, known, offset, found, self._gapless_from, self._entries)
        if wrong:
            self._mend(segment, wrong)
        return part

    def _check_size(self, segment: LogSegment, end: int) -> None:
        size_bytes = self._fs.size(segment.fd)
        if size_bytes < end:
            raise CorruptRecordError(f"the file ends at {size_bytes}, expected {end}")

    def _mend(self, segment: LogSegment, wrong: Sequence[WrongEpoch]) -> None:
        """Mends leader epochs of a segment, unless its log is about to be cut: then a later check does. Raises OSError.

        The four bytes of each are in memory, as they were just read; the next scrub finds those that a crash loses.
        """
        lock = self._segments.names_lock
        if lock.acquire(blocking=False):
            try:
                if not self._segments.is_held and segment in self._segments.now:
                    mend(self._fs, segment, wrong)
            finally:
                lock.release()

    def _was_appended(self, segment: LogSegment, position: int) -> bool:
        """Returns whether this process has appended what is at a position of the active segment, and so checked it.

        Where damage is known by now, nothing of that counts.
        """
        if segment is not self._segments.now.active or segment.damage:
            return False
        return segment is not self._opened() or position >= self._opened_bytes

    def _check_end(self, segments: SegmentSequence, index: int, offset: int, end_offset: int) -> None:
        """Raises DamagedRangeError where a closed segment lacks batches from an offset up to the next segment.

        A segment with a batch at or above `end_offset` goes on where the read ends, so it lacks none at its end.
        """
        segment, following = segments[index], segments[index + 1 : index + 2]
        if not following or not offset < following[0].base_offset:
            return
        if segment.position_of(end_offset) < segment.size_bytes:
            return
        next_base = following[0].base_offset
        if next_base <= self._gapless_from or is_repaired(segment.repaired, offset, next_base):
            return
        if not set_aside_from(self._fs, segment, offset, self._gapless_from):
            set_aside_end(segment, offset)
        raise DamagedRangeError(segment.path, covering(segment.damage, offset) or segment.damage[-1])

    @property
    def _gapless_from(self) -> int:
        return self._segments.gaps.gapless_from

    def set_damage_aside(self, offset: int) -> bool:
        """Sets aside the first damage from an offset on in its segment, on any thread (see `Log.set_damage_aside`)."""
        segments = self._segments.now
        segment = segments[segments.floor_index(offset)]
        if not segment.retain():
            return False
        try:
            with storage_errors(segment.path):
                return set_aside_from(self._fs, segment, offset, self._gapless_from)
        finally:
            segment.release()

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record not older than `timestamp_ms`; None if there is none."""
        with storage_errors(self._segments.directory):
            return self._first_not_older(self._segments.now, timestamp_ms, self._segments.start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record with the largest timestamp, as `Log` does.

        A segment that compaction left without records still bears a time, so the next largest is tried where no record
        is found. Records without timestamps come last: where there are no others, the first one is told, as Kafka does.
        """
        segments, start_offset = self._segments.now, self._segments.start_offset
        with storage_errors(self._segments.directory):
            newest = {self._max_timestamp_from(segment, start_offset) for segment in segments}
            for timestamp_ms in sorted(newest, reverse=True):
                found = self._first_not_older(segments, timestamp_ms, start_offset)
                if found is not None:
                    return found
        return None

    def newest_timestamp_ms(self) -> int:
        """Returns the largest timestamp of segments that have records to read, as `Log.newest_timestamp_ms` does."""
        start_offset = self._segments.start_offset
        return max(
            (segment.max_timestamp for segment in self._segments.now if segment.next_offset > start_offset),
            default=NO_TIMESTAMP,
        )

    def offsets_before(self, timestamp_ms: int, max_count: int, up_to_offset: int, now_ms: int) -> list[int]:
        """Returns offsets at which a reader may begin, as `Log.offsets_before` does. Raises StorageError."""
        segments, start_offset = self._segments.now, self._segments.start_offset
        with storage_errors(self._segments.directory):
            starts = [(max(segment.base_offset, start_offset), segment.largest_timestamp) for segment in segments]
        if segments.active.size_bytes:
            starts.append((self._segments.end_offset, now_ms))
        return offsets_before(starts, timestamp_ms, max_count, up_to_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records from `start_offset` up to `end_offset`; raises StorageError."""
        segments = self._segments.now
        with storage_errors(self._segments.directory):
            indexes = (each.transaction_index for each in segments[segments.floor_index(start_offset) :])
            return find_aborted(indexes, start_offset, end_offset)

    def _first_not_older(
        self, segments: SegmentSequence, timestamp_ms: int, start_offset: int
    ) -> tuple[int, int] | None:
        for segment in segments:
            self._make_newest_known(segment)
            if segment.max_timestamp >= timestamp_ms:
                search = partial(find_timestamp, segment, timestamp_ms, start_offset)
                record = past_damage(self._fs, segment, segment.base_offset, self._gapless_from, search)
                if record is not None:  # a producer may have given a timestamp beyond 64 bits
                    return min(record.timestamp_ms, MAX_LONG), record.offset
        return None

    def _make_newest_known(self, segment: LogSegment) -> None:
        if not segment.is_newest_known:
            read = partial(newest_behind, segment)
            learn_newest(segment, past_damage(self._fs, segment, segment.base_offset, self._gapless_from, read))

    def _max_timestamp_from(self, segment: LogSegment, start_offset: int) -> int:
        self._make_newest_known(segment)
        search = partial(max_timestamp_from, segment, start_offset)
        return past_damage(self._fs, segment, start_offset, self._gapless_from, search)


def _read(found: FoundBatches) -> bytes:
    segment, located = found
    try:
        return segment.read_at(located.position, located.size_bytes) if located.data is None else located.data
    except OSError as error:
        raise storage_error(segment.path, error) from error


def find_timestamp(segment: LogSegment, timestamp_ms: int, start_offset: int) -> TimedOffset | None:
    """Returns the first record at `start_offset` or above that is not older than `timestamp_ms`; None without one.

    If a batch's header claims such a timestamp but none of its records has it, the batch's last record is returned: to
    search on would decompress every batch with such a header.
    """
    for position, header in each(segment.headers(_behind_older(segment, timestamp_ms))):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            last = None
            for last in _records(segment, position, header):
                if last.timestamp_ms >= timestamp_ms and last.offset >= start_offset:
                    return last
            if last is not None and header.base_offset >= start_offset:
                return last._replace(timestamp_ms=header.max_timestamp)
    return None


def _behind_older(segment: LogSegment, timestamp_ms: int) -> int:
    """Returns a position before which no batch has a record as new, by the time index. Raises RecordError."""
    older = segment.time_index.floor(timestamp_ms - 1) if segment.trusts_index else None
    if older is None:
        return 0
    if not fits_its_batch(segment, older):
        raise CorruptRecordError(f"{segment.time_index.path}: timestamp {older[0]} is not that of entry {older[1]}")
    floor = segment.offset_index.floor(older[1])
    return 0 if floor is None else floor[1]


def max_timestamp_from(segment: LogSegment, start_offset: int) -> int:
    """Returns the largest timestamp of records at `start_offset` or above; -1 where there is none."""
    if start_offset <= segment.base_offset:
        return segment.max_timestamp
    headers = each(segment.headers(segment.position_of(start_offset)))
    return max((_newest(segment, position, header, start_offset) for position, header in headers), default=NO_TIMESTAMP)


def _newest(segment: LogSegment, position: int, header: BatchHeader, start_offset: int) -> int:
    if start_offset <= header.base_offset:
        return header.max_timestamp
    records = _records(segment, position, header)
    return max((record.timestamp_ms for record in records if record.offset >= start_offset), default=NO_TIMESTAMP)


def _records(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[TimedOffset]:
    return iter(each(record_times(header, memoryview(segment.read_at(position, header.size_bytes)))))


def offsets_before(
    starts: Sequence[tuple[int, int]], timestamp_ms: int, max_count: int, up_to_offset: int
) -> list[int]:
    """Returns up to `max_count` offsets at which a reader may begin, as Kafka 0.7 and 0.8 do, newest first.

        segment       0 … 41      42 … 99      100 …         log end offset 117
        its time      09:00       10:00        11:00         now

        LATEST (-1)   117, 100, 42, 0          the end, then the segments' first offsets, backwards
        EARLIEST (-2) 0
        10:30         42, 0                    from the newest whose time is not after 10:30; none where all are younger

    The time of a segment is that of its newest record. Where no record has a time, and where there is no record, it is
    the time at which the file was last written, which Apache Kafka takes for every segment. A newest segment that is
    empty begins at the log end offset, which then has the time of that file. A consumer is not told of what lies above
    the high watermark: that is told instead, once.

    Args:
        starts: (first offset, time) of each segment, oldest first; then (log end offset, now), unless the newest
            segment is empty.
        timestamp_ms: a time, LATEST or EARLIEST.
        max_count: how many are wanted.
        up_to_offset: the high watermark, for a consumer.
    """
    if max_count < 1:
        return []
    timed = [*starts]
    if timestamp_ms == EARLIEST:
        timed = timed[:1]
    elif timestamp_ms != LATEST:
        while timed and timed[-1][1] > timestamp_ms:
            timed.pop()
    found = [offset for offset, _ in timed[: -max_count - 1 : -1]]
    visible = [offset for offset in found if offset <= up_to_offset]
    return visible if len(visible) == len(found) else [up_to_offset, *visible]
