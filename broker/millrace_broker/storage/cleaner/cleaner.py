"""Rewriting segments so that each key is there once: one pass over a log (docs/formats/compaction.md).

    1. the dirty segments are read up to the end, or until the map is full      key -> last offset that was not aborted
    2. all segments from the log's start to there are read, in groups that fit one segment, and what stays of their
       batches (`batches`) is written to `<base offset of the first>.log.cleaned` and its indexes
    3. the new segment is synced and takes the place of its group (`segment_swap`)

A group's last batch always stays, without records if need be, so that the new segment ends at the offset at which the
next one begins. By that a recovery tells a compacted segment from one that lost its tail. Such a batch bears a
timestamp only where nothing else in its segment does, so that retention by time finds one. Where no record has a
timestamp, retention goes by the time at which the file was last written: the new segment gets that of the newest in its
group, as in Kafka (Cleaner.cleanSegments).

The new segment is synced every few megabytes, as one large sync at its end would delay the syncs of appends.

A pass works on closed segments only, whose bytes never change, and on any thread; no reader, append or flush waits for
it. What a crash leaves of step 2 is removed at the next start. A damaged batch ends the pass before anything is
replaced, so that damage does not get a valid CRC.

What a pass knows of transactions as it goes through a log from its start (KIP-98, KIP-534):

    transaction index        says which batches belong to an aborted transaction, before the marker is met
    a batch                  of an aborted transaction is void: all of it goes; any other is compacted by key
    a marker                 is void where no batch of its transaction was met: nothing is left that needs it

Batches without records count as met. So a marker outlives the last batch of its transaction by one pass at least, and
an aborted transaction stays in the index as long as there is a batch that a reader would take for a committed one.
A void transaction leaves the index at once; its marker goes when its delete horizon has passed (`batches`).

A pass stays below the first unstable offset, so every transaction that it meets is decided. The rules are those of
Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from millrace.errors import CorruptRecordError, StorageError
from millrace.fs import Buffer, FileSystem
from millrace.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from millrace.records.compression import codec_of, decompress
from millrace.records.control import ControlType, decode_marker
from millrace_broker.storage.cleaner.batches import (
    CleaningRules,
    OffsetMap,
    RecordCounts,
    cleaned,
    offsets_only,
    record_slices,
)
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.filenames import CLEANED_FILE_SUFFIX
from millrace_broker.storage.segments.damage import AllowedGaps
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_swap import discard
from millrace_broker.storage.throttle import Throttle

READ_BYTES = 128 << 10
WRITE_BYTES = 256 << 10
SYNC_BYTES = 8 << 20
MAX_POSITION = 2**31 - 1


def fill_map(  # noqa: PLR0917 -- what is read, what is known, what is filled, and at which pace
    fs: FileSystem,
    segments: Sequence[LogSegment],
    first_dirty_offset: int,
    transactions: CleanedTransactions,
    offsets: OffsetMap,
    throttle: Throttle,
) -> int:
    """Puts each key's newest offset in the dirty segments into `offsets`; returns the offset after the last one read.

    It ends early where the map is full. Raises RecordError for a damaged batch, or OSError.
    """
    next_offset = first_dirty_offset
    for segment in segments:
        found = segment.find(first_dirty_offset)
        start = segment.size_bytes if found is None else found.position
        for header, batch in _batches(fs, segment, start, throttle):
            if not transactions.is_void(header, batch) and not header.is_control:
                full_at = _put_batch(header, batch, first_dirty_offset, offsets, throttle)
                if full_at is not None:
                    return full_at
            next_offset = header.next_offset
        next_offset = max(next_offset, segment.next_offset)
    return next_offset


def _put_batch(
    header: BatchHeader, batch: memoryview, first_dirty_offset: int, offsets: OffsetMap, throttle: Throttle
) -> int | None:
    """Puts a batch's keys into the map; returns the first offset whose key found no room, None if all found room."""
    body = decompress(codec_of(header.codec_id), batch[HEADER_BYTES:])
    for record in throttle.paced(record_slices(header, body)):
        offset = header.base_offset + record.offset_delta
        if offset < first_dirty_offset or record.key is None:
            continue
        if not offsets.put(record.key, offset):
            return offset
    return None


class SegmentRewriter:
    """Writes the records that compaction keeps to new segments; the groups must come in order from the log's start."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        rules: CleaningRules,
        transactions: CleanedTransactions,
    ) -> None:
        self.counts = RecordCounts()
        self._fs = fs
        self._directory = directory
        self._config = config
        self._rules = rules
        self._transactions = transactions
        self._waiting: list[tuple[BatchHeader, Buffer]] = []
        self._waiting_bytes = 0
        self._unsynced_bytes = 0

    def rewrite(self, group: Sequence[LogSegment], throttle: Throttle) -> LogSegment:
        """Compacts neighbouring segments into a new one and returns that, synced under its `.cleaned` names.

        Raises RecordError for a damaged batch, StorageError, CompactionStoppedError or OSError, with the new files
        removed.
        """
        new = LogSegment(self._fs, self._directory, group[0].base_offset, self._config, CLEANED_FILE_SUFFIX)
        try:
            new.recover(AllowedGaps(), truncate=True)
            self._copy(group, new, throttle)
            new.finish()
            new.set_modified_ms(group[-1].modified_ms)
            new.sync()
            new.seal()
        except BaseException:
            discard(self._fs, new)
            raise
        return new

    def _copy(self, group: Sequence[LogSegment], new: LogSegment, throttle: Throttle) -> None:
        dropped: BatchHeader | None = None
        for segment in group:
            for header, batch in _batches(self._fs, segment, 0, throttle):
                is_void = self._transactions.is_void(header, batch)
                left = cleaned(header, batch, self._rules, self.counts, is_void=is_void, paced=throttle.paced)
                dropped = header if left is None else None
                if left is not None:
                    self._put(new, left, throttle)
            for aborted in self._transactions.take_needed():
                new.transaction_index.append(aborted)
        self._write(new, throttle)
        if dropped is not None:
            bears_time = new.max_timestamp >= 0
            self._put(new, offsets_only(dropped, -1 if bears_time else dropped.max_timestamp), throttle)
            self._write(new, throttle)

    def _put(self, new: LogSegment, batch: Buffer, throttle: Throttle) -> None:
        self._waiting.append((read_header(batch), batch))
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= WRITE_BYTES:
            self._write(new, throttle)

    def _write(self, new: LogSegment, throttle: Throttle) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        data = b"".join(batch for _, batch in waiting)
        if new.size_bytes + len(data) > MAX_POSITION:
            raise StorageError(f"{new.path}: the recompressed batches are too large for a segment")
        position = new.write([data], len(data))
        for header, batch in waiting:
            new.add(position, header.last_offset, header.max_timestamp)
            position += len(batch)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNC_BYTES:
            new.sync_batches()
            self._unsynced_bytes = 0
        throttle.take(len(data))


def remove_stale(fs: FileSystem, directory: str) -> None:
    """Removes the `.cleaned` files that an earlier pass of this process has left in a log's folder. Raises OSError."""
    for name in fs.listdir(directory):
        if name.endswith(CLEANED_FILE_SUFFIX):
            fs.unlink(os.path.join(directory, name))


def _batches(
    fs: FileSystem, segment: LogSegment, position: int, throttle: Throttle
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields (header, bytes) of each batch from the one at `position` on, at the throttle's rate.

    Raises CorruptRecordError for a batch whose CRC is wrong, and for one whose offsets (no CRC covers them) are not
    above those of the batch before it or not within the segment.
    """
    end, chunk, start = segment.size_bytes, memoryview(b""), position
    least_offset = segment.base_offset
    while position < end:
        if position - start + HEADER_BYTES > len(chunk):
            chunk, start = _portion(fs, segment, position, READ_BYTES, throttle), position
        header = read_header(chunk, position - start)
        if position - start + header.size_bytes > len(chunk):
            chunk, start = _portion(fs, segment, position, max(header.size_bytes, READ_BYTES), throttle), position
        batch = chunk[position - start : position - start + header.size_bytes]
        check_crc(batch, 0, header)
        if not least_offset <= header.base_offset < header.next_offset <= segment.next_offset:
            raise CorruptRecordError(
                f"{segment.path}, position {position}: offsets {header.base_offset}-{header.last_offset} are not among "
                f"{least_offset}-{segment.next_offset - 1}, which are left of the segment"
            )
        least_offset = header.next_offset
        yield header, batch
        position += header.size_bytes


def _portion(fs: FileSystem, segment: LogSegment, position: int, length: int, throttle: Throttle) -> memoryview:
    """Returns up to `length` bytes of a segment from `position` on, but at least a header's.

    Raises CorruptRecordError where the file is shorter, as its log was truncated.
    """
    length = max(min(length, segment.size_bytes - position), HEADER_BYTES)
    throttle.take(length)
    data = fs.pread(segment.fd, length, position)
    if len(data) < length:
        raise CorruptRecordError(f"{segment.path} ends at {position + len(data)}, expected {position + length}")
    return memoryview(data)


class CleanedTransactions:
    """Tells one pass of compaction which transactional batches no reader needs. They must be passed in offset order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Takes all aborted transactions that overlap the offsets of the pass."""
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        self._needed: list[AbortedTransaction] = []

    def is_void(self, header: BatchHeader, batch: memoryview) -> bool:
        """Returns whether no reader needs a batch: it is an aborted transaction's, or a marker without batches before.

        Raises RecordError where a marker can't be decoded.
        """
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            aborted = self._coming.popleft()
            self._aborting[aborted.producer_id] = aborted
        if header.is_control:
            return self._is_void_marker(header, batch)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        found = self._aborting.get(header.producer_id)
        return found is not None and header.last_offset < found.last_offset

    def take_needed(self) -> list[AbortedTransaction]:
        """Returns the aborted transactions with batches whose markers `is_void` has met since the last call."""
        needed, self._needed = self._needed, []
        return needed

    def _is_void_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        marker = decode_marker(header, batch)
        if marker is None:
            return not header.record_count
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if marker.control_type is ControlType.ABORT:
            aborted = self._aborting.pop(header.producer_id, None)
            if was_met and aborted is not None:
                self._needed.append(aborted)
        return not was_met
