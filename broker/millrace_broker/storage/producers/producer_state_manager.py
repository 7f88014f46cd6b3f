"""The producers of one log, in memory and in snapshots (docs/formats/producers.md).

    00000000000000000042.snapshot      the producers before offset 42, where a segment begins
    00000000000000000057.snapshot      the same at the last clean shutdown
    [ segment 0 ][ segment 42 …… 57 …

A snapshot is taken when a segment is rolled and when the log closes. A log that is opened, or whose end was cut off,
takes its state from the newest snapshot and the batches behind it. A snapshot that a crash has torn is deleted. One
above the log's end tells of batches that are lost; it is deleted too, durably, so that it does not come back when the
log has grown again.

A log that is opened checks these batches first, as what they say goes into the next snapshot. Later their headers are
taken as they are, since a segment may be large; what heals then is read again (`unchecked`).

Everything belongs to the log's thread, except `entries` and `first_unstable_offset`, which any thread may ask for, and
`sync_snapshots`, which the flush of another thread may call.

`<offset>.snapshot` says what a log knows of its producers before `offset`, in Kafka's format:

    file    := version i16 = 1, crc u32, count i32, entry*        crc: CRC-32C of all that follows it
    entry   := producer id i64, producer epoch i16, last sequence i32, last offset i64, offset delta i32,
               timestamp i64, coordinator epoch i32, first offset of the open transaction i64

-1 stands for no sequence, offset, epoch or transaction. Five batches are known in memory, and only the last of them is
written here. A crash may leave a file that is cut short or full of zeros. `decode_snapshot` refuses it, and the state
is rebuilt from an older one. A snapshot is never the only copy of what the log still holds.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, ProducerError, RecordError
from millrace.fs import FileSystem, read_file
from millrace.records.batch import NO_OFFSET, NO_PRODUCER_ID, BatchHeader
from millrace.records.checksum import crc32c
from millrace.records.control import EndTransactionMarker, decode_marker, decode_mirror_end
from millrace_broker.storage.batches.placement import Append, LogAppendInfo
from millrace_broker.storage.filenames import PRODUCER_SNAPSHOT_SUFFIX, parse_snapshot_file_name, segment_file_name
from millrace_broker.storage.producers.producer_state import (
    MAX_BATCHES,
    BatchMetadata,
    CompletedTransaction,
    ProducerEntry,
    Turn,
    check_batch,
    check_epoch,
    check_marker,
    find_duplicate,
    next_turn,
    turn_of,
    with_batch,
    with_batches,
    with_marker,
)
from millrace_broker.storage.segments.damage_search import headers_past_damage, set_aside_from
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)


SNAPSHOT_VERSION = 1
_START = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the bytes of a producer snapshot, in Kafka's format."""
    packed = [_pack(entry) for entry in entries]
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _START.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Returns the entries of a producer snapshot; raises CorruptRecordError for other bytes or another version."""
    head_bytes = _START.size + _COUNT.size
    if len(content) < head_bytes:
        raise CorruptRecordError(f"{len(content)} bytes are no producer snapshot")
    version, crc = _START.unpack_from(content)
    (count,) = _COUNT.unpack_from(content, _START.size)
    if version != SNAPSHOT_VERSION:
        raise CorruptRecordError(f"a producer snapshot of version {version}, expected {SNAPSHOT_VERSION}")
    if crc32c(content[_START.size :]) != crc:
        raise CorruptRecordError("the CRC-32C of the producer snapshot does not match")
    if len(content) - head_bytes != count * _ENTRY.size:
        raise CorruptRecordError(f"a producer snapshot of {count} entries in {len(content)} bytes")
    return [_unpack(fields) for fields in _ENTRY.iter_unpack(content[head_bytes:])]


def _pack(entry: ProducerEntry) -> bytes:
    delta = entry.batches[-1].offset_delta if entry.batches else 0
    return _ENTRY.pack(
        entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset, delta,
        entry.last_timestamp, entry.coordinator_epoch, entry.transaction_first_offset,
    )  # fmt: skip


def _unpack(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_first_offset = fields
    return ProducerEntry(
        producer_id=producer_id,
        epoch=epoch,
        batches=(BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else (),
        last_timestamp=timestamp,
        coordinator_epoch=coordinator_epoch,
        transaction_first_offset=max(transaction_first_offset, NO_OFFSET),
    )


class _Known:
    """A producer's entry, and the newest batches since the entry was made (`recent`), which it doesn't have yet.

    A batch with the expected producer id, epoch, attributes and sequence (`turn`) breaks no rule: it is only added to
    `recent`, and the entry is updated when it is asked for. After a marker `turn` is None: the next batch is checked.
    """

    __slots__ = ("entry", "recent", "turn")

    def __init__(self, entry: ProducerEntry, turn: Turn | None) -> None:
        self.entry = entry
        self.turn = turn  # the turn of a batch that follows, None where none is known
        self.recent: tuple[tuple[Sequence[BatchHeader], Sequence[LogAppendInfo]], ...] = ()

    def now(self) -> ProducerEntry:
        """Returns the entry with the batches of `recent`."""
        appended = [(header, place.first_offset) for run in self.recent for header, place in zip(*run, strict=True)]
        return with_batches(self.entry, appended) if appended else self.entry


class ProducerStateManager:
    """The state of one log's producers: entries by id, and transactions that are open or not yet replicated.

    Attributes:
        unchecked: the base offsets of segments whose headers were taken without a comparison of the batches' CRCs.
    """

    __slots__ = (
        "_completed", "_directory", "_fs", "_known", "_may_have_forgotten", "_open_transactions", "_snapshot_offset",
        "_unsynced", "unchecked",
    )  # fmt: skip

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._known: dict[int, _Known] = {}
        self._open_transactions: dict[int, int] = {}
        self._completed: list[CompletedTransaction] = []
        self._snapshot_offset = 0
        self._may_have_forgotten = False  # producers of batches in the log, as mirroring has ended behind them
        self._unsynced: list[int] = []
        self.unchecked: set[int] = set()

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """The current entry of every producer that is known."""
        return {producer_id: known.now() for producer_id, known in self._known.copy().items()}

    # Appending.

    def settled(self, header: BatchHeader) -> LogAppendInfo | ProducerError | None:
        """Returns None for a produced batch to be written, else the offsets that it got before, or an error."""
        turn = turn_of(header)
        known = self._known.get(turn[0])
        if known is not None and known.turn == turn:
            return None
        try:
            duplicate = self.check(header)
        except ProducerError as error:
            return error
        return None if duplicate is None else _place_of(duplicate)

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the batch in the producer's state that `header` repeats, None for a new one.

        Raises ProducerError where a new batch doesn't follow on the producer's last.
        """
        entry = self._entry(header.producer_id)
        duplicate = find_duplicate(entry, header)
        if duplicate is None:
            check_batch(entry, header)
        return duplicate

    def check_epoch(self, header: BatchHeader) -> None:
        """Raises InvalidProducerEpochError for a batch of an older epoch than the producer's last."""
        check_epoch(self._entry(header.producer_id), header)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether the producer has written, in this epoch, in a transaction that has not ended."""
        known = self._known.get(producer_id)
        return known is not None and known.entry.has_open_transaction and known.entry.epoch == producer_epoch

    def guard(self, producer_id: int) -> object:
        """Returns an object to compare by identity: it is another once a marker of the producer came (KIP-890)."""
        return self._known.get(producer_id)

    def append(self, header: BatchHeader, base_offset: int) -> None:
        """Updates the producer's state for an appended data batch."""
        entry = with_batch(self._entry(header.producer_id), header, base_offset)
        self._remember(entry, next_turn(header))

    def append_run(self, run: Sequence[Append], places: Sequence[LogAppendInfo], turn: Turn) -> None:
        """Updates a producer's state for consecutive batches; `turn` is what the next must have (`next_turn`)."""
        first = run[0][1][0][1]
        known = self._known.get(turn[0])
        if known is None or known.turn != turn_of(first):
            appended = [(found[0][1], place.first_offset) for (_, found), place in zip(run, places, strict=True)]
            self._remember(with_batches(self._entry(turn[0]), appended), turn)
            return
        if len(run) > MAX_BATCHES:
            run, places = run[-MAX_BATCHES:], places[-MAX_BATCHES:]
        headers = [first] if len(run) == 1 else [found[0][1] for _, found in run]
        known.recent = known.recent[1 - MAX_BATCHES :] + ((headers, places),)  # noqa: RUF005  # at half the cost
        known.turn = turn

    def check_marker(self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker) -> None:
        """Raises a ProducerError for a marker of an older producer epoch or coordinator epoch."""
        check_marker(self._entry(producer_id), producer_epoch, marker)

    def append_marker(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker,
        offset: int,
        note_aborted: Callable[[AbortedTransaction], object],
    ) -> None:
        """Updates the producer's state for an appended marker; before that `note_aborted` gets an aborted transaction.

        The order matters to compaction, on its own thread: it takes a transaction that is neither open nor in the
        transaction index for a committed one.
        """
        entry, completed = with_marker(self._entry(header.producer_id), header, marker, offset)
        if completed is not None:
            self._completed.append(completed)
            if completed.is_aborted:
                others = (
                    first for producer, first in self._open_transactions.items() if producer != header.producer_id
                )
                stable_offset = min(others, default=offset + 1)
                note_aborted(AbortedTransaction(completed.producer_id, completed.first_offset, offset, stable_offset))
        self._remember(entry)

    def append_fetched(
        self, header: BatchHeader, batch: memoryview, note_aborted: Callable[[AbortedTransaction], object]
    ) -> None:
        """Updates the state for a batch from the leader, which has checked it, of a producer or a control batch.

        `batch` is looked at only if it is a control batch. Raises RecordError for a marker that can't be read. Where
        mirroring has ended, all producers before are forgotten: they were those of another cluster.
        """
        if not header.is_control:
            self.append(header, header.base_offset)
            return
        if header.producer_id == NO_PRODUCER_ID:
            if decode_mirror_end(header, batch) is not None:
                self._known.clear()
                self._open_transactions.clear()
                self._may_have_forgotten = True
            return
        marker = decode_marker(header, batch)
        if marker is not None:
            self.append_marker(header, marker, header.base_offset, note_aborted)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns where the first transaction begins that has no marker below `high_watermark`, or else that.

        Transactions that have ended below it are forgotten, and stay ended if `high_watermark` goes back.
        """
        if not self._open_transactions and not self._completed:
            return high_watermark
        self._completed = [each for each in self._completed if each.last_offset >= high_watermark]
        return self.first_unstable_offset(high_watermark)

    def first_unstable_offset(self, high_watermark: int) -> int:
        """Returns the same as `last_stable_offset`, but changes nothing, so that any thread may ask."""
        if not self._completed and not self._open_transactions:
            return high_watermark
        completed = (each.first_offset for each in tuple(self._completed) if each.last_offset >= high_watermark)
        return min([high_watermark, *self._open_transactions.copy().values(), *completed])

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that have been silent for `expiration_ms`; returns how many."""
        expired = [key for key, entry in self.entries.items() if entry.is_expired(now_ms, expiration_ms)]
        for producer_id in expired:
            del self._known[producer_id]
        return len(expired)

    def take_over(self, other: ProducerStateManager) -> None:
        """Copies the state of another manager of the same batches, which knows more than its snapshots hold."""
        self._known = {producer_id: _Known(entry, None) for producer_id, entry in other.entries.items()}
        self._open_transactions = dict(other._open_transactions)
        self._may_have_forgotten = other._may_have_forgotten
        self._completed = list(other._completed)

    def _entry(self, producer_id: int) -> ProducerEntry:
        known = self._known.get(producer_id)
        return ProducerEntry(producer_id) if known is None else known.now()

    def _remember(self, entry: ProducerEntry, turn: Turn | None = None) -> None:
        self._known[entry.producer_id] = _Known(entry, turn)
        if entry.has_open_transaction:
            self._open_transactions[entry.producer_id] = entry.transaction_first_offset
        else:
            self._open_transactions.pop(entry.producer_id, None)

    # Snapshots.

    def snapshot_path(self, offset: int) -> str:
        """Returns the path that a snapshot of the state at an offset has, whether or not it exists."""
        return os.path.join(self._directory, segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX))

    def take_snapshot(self, offset: int) -> bool:
        """Writes a snapshot of the state at the log's end, unless it exists; returns whether it did. Raises OSError.

        `sync_snapshots` makes it durable.
        """
        if offset <= self._snapshot_offset:
            return False
        fd = self._fs.open(self.snapshot_path(offset), create=True)
        try:
            self._fs.truncate(fd, 0)
            self._fs.pwritev(fd, [encode_snapshot(self.entries.values())], 0)
        except OSError:
            self._fs.close(fd)
            raise
        self._unsynced.append(fd)
        self._snapshot_offset = offset
        return True

    def sync_snapshots(self) -> None:
        """Blocks until the snapshots' bytes are on the disk; their names are synced with the folder. Raises OSError."""
        while self._unsynced:
            fd = self._unsynced.pop(0)
            try:
                self._fs.fsync(fd)
            finally:
                self._fs.close(fd)

    def close(self) -> None:
        """Closes the files of snapshots that were not synced."""
        while self._unsynced:
            self._fs.close(self._unsynced.pop(0))

    # Opening.

    def load(self, segments: Sequence[LogSegment], *, log_start_offset: int, log_end_offset: int) -> None:
        """Loads the newest snapshot that can be used, and replays the segments from there on. Raises OSError.

        A recovered segment's transaction index is rebuilt, for which the state at its base offset is needed. So later
        snapshots can't be used, unless the segment holds no batch with a producer id.
        """
        offsets = self._tidy([segment.base_offset for segment in segments], log_start_offset, log_end_offset)
        self._snapshot_offset = max(offsets, default=log_start_offset)
        walked = (segment.base_offset for segment in segments if segment.was_recovered and segment.has_producer_ids)
        limit = min(walked, default=log_end_offset)
        start = self._load_newest([offset for offset in offsets if offset <= limit], log_start_offset)
        self._may_have_forgotten = start > log_start_offset
        for segment in segments:
            if segment.next_offset > start or segment.was_recovered:
                self._replay(segment, start)
        self.unchecked.clear()

    def truncate(self, segments: Sequence[LogSegment], *, log_start_offset: int, log_end_offset: int) -> None:
        """Rebuilds the state from snapshots and `segments` after the log was cut at `log_end_offset`.

        Raises OSError.

        A transaction whose marker was cut off is open again. Snapshots above that offset are deleted durably.
        """
        offsets = self._tidy([segment.base_offset for segment in segments], log_start_offset, log_end_offset)
        self._snapshot_offset = max(offsets, default=log_start_offset)
        if not self._known and not self._may_have_forgotten:
            return
        completed = {each.last_offset: each for each in self._completed if each.last_offset < log_end_offset}
        self._clear()
        start = self._load_newest(offsets, log_start_offset)
        for segment in segments:
            if segment.next_offset > start:
                self._replay_batches(segment, start, [])
        completed |= {each.last_offset: each for each in self._completed}
        self._completed = list(completed.values())

    def reload(
        self, segments: Sequence[LogSegment], from_offset: int, *, log_start_offset: int, log_end_offset: int
    ) -> None:
        """Rebuilds the state and the transaction indexes of the segments from `from_offset` on. Raises OSError.

        What was there has hidden batches from the snapshots behind it, which are deleted.
        """
        self._remove([offset for offset in self._found() if offset > from_offset])
        offsets = self._tidy([segment.base_offset for segment in segments], log_start_offset, log_end_offset)
        self._clear()
        start = self._load_newest(offsets, log_start_offset)
        self._snapshot_offset = max(offsets, default=log_start_offset)
        for segment in segments:
            if segment.next_offset > start:
                aborted: list[AbortedTransaction] = []
                self._replay_batches(segment, start, aborted)
                if segment.base_offset >= from_offset and not segment.transaction_index.replace(aborted):
                    segment.unseal()

    def forget_all(self, log_end_offset: int) -> None:
        """Forgets all producers and deletes their snapshots, as the emptied log begins at an offset. Raises OSError."""
        self._clear()
        self.unchecked.clear()
        self._remove(self._found())
        self._snapshot_offset = log_end_offset

    def _clear(self) -> None:
        self._known.clear()
        self._open_transactions.clear()
        self._completed.clear()

    def _found(self) -> list[int]:
        """Returns the offsets of all snapshots in the folder, sorted."""
        names = self._fs.listdir(self._directory)
        return sorted(offset for name in names if (offset := parse_snapshot_file_name(name)) is not None)

    def _tidy(self, bases: Sequence[int], log_start_offset: int, log_end_offset: int) -> list[int]:
        """Removes the snapshots that belong to no segment; returns the offsets of those that stay, sorted."""
        self.unchecked.intersection_update(bases)
        found = self._found()
        newest = max((offset for offset in found if offset <= log_end_offset), default=-1)
        kept = [
            offset
            for offset in found
            if log_start_offset <= offset <= log_end_offset
            and (offset in bases or (offset == newest and offset > bases[-1]))
        ]
        self._remove(offset for offset in found if offset not in kept)
        return kept

    def _load_newest(self, offsets: Sequence[int], log_start_offset: int) -> int:
        for offset in reversed(offsets):
            path = self.snapshot_path(offset)
            try:
                entries = decode_snapshot(read_file(self._fs, path))
            except CorruptRecordError as error:
                logger.warning("%s: %s; rebuilt from the log", path, error)
                self._remove([offset])
                self._snapshot_offset = min(self._snapshot_offset, max(offset - 1, 0))
                continue
            for entry in entries:
                self._remember(entry)
            return offset
        return log_start_offset

    def _replay(self, segment: LogSegment, start_offset: int) -> None:
        aborted: list[AbortedTransaction] = []
        while not segment.was_recovered and set_aside_from(self._fs, segment, start_offset, MAX_LONG):
            pass
        if segment.has_producer_ids:
            self._replay_batches(segment, start_offset, aborted)
        if segment.was_recovered and not segment.transaction_index.replace(aborted):
            segment.unseal()

    def _replay_batches(self, segment: LogSegment, start_offset: int, aborted: list[AbortedTransaction]) -> None:
        self.unchecked.add(segment.base_offset)
        try:
            for at, header in headers_past_damage(self._fs, segment, start_offset):
                if header.producer_id != NO_PRODUCER_ID or header.is_control:
                    batch = memoryview(segment.read_at(at, header.size_bytes) if header.is_control else b"")
                    self.append_fetched(header, batch, aborted.append)
        except RecordError as error:
            logger.warning("%s: the producers of batches behind the damage are not known: %s", segment.path, error)

    def _remove(self, offsets: Iterable[int]) -> None:
        paths = [self.snapshot_path(offset) for offset in offsets]
        for path in paths:
            self._fs.unlink(path)
        if paths:
            self._fs.fsync_dir(self._directory)


def _place_of(batch: BatchMetadata) -> LogAppendInfo:
    return LogAppendInfo(batch.first_offset, batch.last_offset, batch.timestamp, batch.timestamp)
