"""`leader-epoch-checkpoint`: the first offset that each leader wrote (Kafka's format; KIP-101).

    0                           version
    1                           number of entries
    3 42                        epoch, its start offset; both increase

The file may lag behind the log, so that no append waits for it:

    batch of a new epoch     is written, and the epoch is known in memory
    flush                    writes the file, then moves the recovery point
    crash                    may leave a file without epochs that begin at or above the recovery point
    start                    takes these from the headers of the batches there

So what the file lacks, the batches have: an epoch whose batches a crash has lost is lost with them. It is known to
those who gave it, ZooKeeper or `metadata.json`, before anything is written in it. Where a full disk has kept it out of
`metadata.json`, the file has it first (`is_written_first`). A crash may also leave an entry whose batches are lost;
`truncate` drops it when the log opens. On a full disk the recovery point stays below the first epoch that the file
lacks.

A file that is damaged, so that it has no such entries, is made again of the log's batches, and so is one with an entry
that two batches side by side contradict: no checksum covers the file. None covers a batch's epoch and base offset
either: what can't be, or what the next batch contradicts, is passed over. The same is done where the file lacks the
epoch with which the log begins, as one that was lost does: a leader that does not know where an epoch ended takes a
follower's records for its own. Where a leader says that it does not know a follower's newest epoch, the follower's
batches decide (`compare`); where a leader would have a follower cut off a batch of the epoch that the same batch has
here, the batch decides (`confirm`). What damage has hidden or changed is added when it heals, and what the file says is
then looked at again (`add`).

Epochs that lie below the log start offset are dropped in memory only: the log start offset is known when the log opens,
and they are dropped again.

Threads: `flushed_end` may be called on any, the others belong to the log's own. The file is written under a lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from threading import Lock

from millrace.config import MAX_LONG
from millrace.errors import StorageError
from millrace.fs import FileSystem, write_file_durably
from millrace.leader_states import LAST_LEADER_EPOCH, leader_epoch
from millrace.records.batch import NO_LEADER_EPOCH, BatchHeader
from millrace_broker.storage.checkpoints import DamagedCheckpointError, encode_lines, read_lines
from millrace_broker.storage.failures import is_disk_full, storage_errors
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT

logger = logging.getLogger(__name__)

Entry = tuple[int, int]
Batches = Callable[[int], Iterable[BatchHeader]]
"""Gives the headers of a log's batches from an offset on."""


class LeaderEpochs:
    """The leader epochs of one log with their first offsets, in memory and in `leader-epoch-checkpoint`."""

    __slots__ = (
        "_entries", "_file_lock", "_fs", "_lacks_from", "_path", "are_unchecked", "is_behind", "is_written_first",
        "latest", "newest_found",
    )  # fmt: skip

    def __init__(self, fs: FileSystem, directory: str, batches: Batches) -> None:
        """Reads the file or, if it is damaged, the headers that `batches(0)` yields. Raises StorageError."""
        self._fs = fs
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._file_lock = Lock()
        self._lacks_from: int | None = None  # where the first epoch begins that the file lacks
        self.is_behind = False
        """Whether the file has epochs that were dropped, as it could not be written then."""
        self.is_written_first = False
        """Whether the file has an epoch before the first batch of it is written."""
        self.are_unchecked = False
        """Whether epochs were read from headers of batches whose checksums nobody had compared."""
        self.latest = NO_LEADER_EPOCH
        """The newest epoch; -1 if none is known."""
        try:
            entries = _parse(self._path, read_lines(fs, self._path))
            _check(self._path, entries, batches)
            self._keep(entries)
        except DamagedCheckpointError as error:
            entries = self._read(batches)
            logger.warning("%s; the leader epochs are read from the log's batches: %s", error, entries)
            self._replace_if_possible(entries)
        self.newest_found = self.latest
        """The newest epoch that was found when the log was opened, though nothing of it may be left."""

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """The known leader epochs as (epoch, start offset), oldest first."""
        return tuple(self._entries)

    @property
    def is_unwritten(self) -> bool:
        """Whether an epoch is known that the file does not have yet."""
        return self._lacks_from is not None

    def take_from(self, batches: Iterable[BatchHeader]) -> None:
        """Adds the epochs of `batches`, those at and above the recovery point, which the file may lack."""
        for epoch, start_offset in _epochs_of(batches, self.latest):
            self.assign(epoch, start_offset)
        self.newest_found = max(self.newest_found, self.latest)

    def add(self, batches: Batches, from_offset: int, log_start_offset: int) -> None:
        """Adds the epochs of batches that were hidden before: those not known, and those that begin earlier.

        Where the batches contradict an entry, now that all are seen, the epochs are those of all batches.
        """
        known = dict(self._entries)
        for epoch, start_offset in _epochs_of(batches(from_offset), NO_LEADER_EPOCH):
            known[epoch] = min(start_offset, known.get(epoch, start_offset))
        entries: list[Entry] = []
        for entry in sorted(known.items()):
            entries = [*(one for one in entries if one[1] < entry[1]), entry]
        if _contradicted(entries, batches) is not None:
            entries = self._read(batches)
        self._correct(entries, log_start_offset)

    def begin_at(self, log_start_offset: int, batches: Batches) -> None:
        """Does `raise_start`; where the log begins with an epoch that is not known, all are read from its batches."""
        self.raise_start(log_start_offset)
        first = self._entries[0][1] if self._entries else MAX_LONG
        if first <= log_start_offset:
            return
        oldest = next(iter(batches(log_start_offset)), None)
        if oldest is not None and oldest.base_offset < first and oldest.partition_leader_epoch != NO_LEADER_EPOCH:
            self.are_unchecked = True
            self.add(batches, 0, log_start_offset)

    def compare(self, batches: Batches, log_start_offset: int) -> None:
        """Reads the epochs from the batches where one of these shows another epoch than is known."""
        for number, (epoch, start) in enumerate(self._entries):
            first = next(iter(batches(start)), None)
            end = self._entries[number + 1][1] if number + 1 < len(self._entries) else MAX_LONG
            if first is not None and first.base_offset < end and first.partition_leader_epoch != epoch:
                self._correct(self._read(batches), log_start_offset)
                return

    def confirm(self, batch: BatchHeader, log_start_offset: int) -> None:
        """Takes the epoch of a batch, which another replica's has, too, for that of the entry that begins with it."""
        epoch, begin = batch.partition_leader_epoch, batch.base_offset
        before = [entry for entry in self._entries if entry[1] < begin]
        behind = [entry for entry in self._entries if entry[1] > begin]
        fits = (before[-1][0] if before else NO_LEADER_EPOCH) < epoch < (behind[0][0] if behind else LAST_LEADER_EPOCH)
        if fits and len(before) + len(behind) < len(self._entries):
            self._correct([*before, (epoch, begin), *behind], log_start_offset)

    def _read(self, batches: Batches) -> list[Entry]:
        self.are_unchecked = True
        return list(_epochs_of(batches(0), NO_LEADER_EPOCH))

    def _correct(self, entries: list[Entry], log_start_offset: int) -> None:
        before = self._entries
        self._keep(entries)
        self.raise_start(log_start_offset)
        if self._entries != before:
            logger.warning("%s: the leader epochs %s are wrong; the log has %s", self._path, before, self._entries)
            self._replace_if_possible(self._entries)

    def announce(self, epoch: int, start_offset: int) -> None:
        """Writes an epoch to the file before its first batch, if `is_written_first`. Raises StorageError."""
        if self.is_written_first:
            self._replace(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Adds a leader epoch that begins at `start_offset`; the next flush writes it to the file.

        Entries of this or a newer epoch and entries that start at or above the offset are dropped, as both always
        increase.
        """
        self._keep(self._with(epoch, start_offset))
        if self._lacks_from is None and not self.is_written_first:
            self._lacks_from = start_offset  # after it is kept: a flush meanwhile may write it twice, and not miss it

    def flushed_end(self, end_offset: int) -> int:
        """Writes the epochs that the file lacks; returns `end_offset`, below which the file then has all.

        On a full disk it returns where the first epoch begins that the file lacks, if less. Raises other OSErrors.
        """
        lacks_from, self._lacks_from = self._lacks_from, None
        if lacks_from is None:
            return end_offset
        try:
            with self._file_lock:
                self._write(self._entries)
        except OSError as error:
            self._lacks_from = lacks_from
            if not is_disk_full(error):
                raise
            return min(end_offset, lacks_from)
        return end_offset

    def truncate(self, log_end_offset: int) -> None:
        """Forgets the epochs that begin at or above the new log end offset.

        A file that can't be written, as on a full disk, keeps them until the next epoch is written, `catch_up` is
        called, or the log is opened again; it is not read before.
        """
        kept = [entry for entry in self._entries if entry[1] < log_end_offset]
        if kept != self._entries:
            self._replace_if_possible(kept)

    def catch_up(self) -> None:
        """Writes the file if it still has epochs that were dropped. Raises StorageError.

        This comes before an append in an epoch of the file: the log could grow past the start of a dropped epoch.
        """
        if self.is_behind:
            self._replace(self._entries)

    def raise_start(self, log_start_offset: int) -> None:
        """Forgets the epochs that end at or below the log start offset; the epoch at that offset begins there now."""
        below = [epoch for epoch, start_offset in self._entries if start_offset <= log_start_offset]
        if below:
            self._keep([(below[-1], log_start_offset), *self._entries[len(below) :]])

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        kept = [entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        with storage_errors(self._path), self._file_lock:
            self._write(entries)
            self._keep(entries)
            self._lacks_from = None

    def _write(self, entries: list[tuple[int, int]]) -> None:
        """Writes the file, synced; raises OSError. The caller holds `_file_lock`."""
        write_file_durably(self._fs, self._path, encode_lines(f"{epoch} {offset}" for epoch, offset in entries))
        self.is_behind = False

    def _replace_if_possible(self, entries: list[tuple[int, int]]) -> None:
        try:
            self._replace(entries)
        except StorageError as error:
            logger.warning("the leader epochs %s are not written yet, their file has others: %s", entries, error)
            self._keep(entries)
            self.is_behind = True

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_LEADER_EPOCH


def _parse(path: str, lines: list[list[str]]) -> list[tuple[int, int]]:
    try:
        entries = [(leader_epoch(epoch), int(offset)) for epoch, offset in lines]
    except ValueError as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error
    for before, after in pairwise([(NO_LEADER_EPOCH, -1), *entries]):
        if not (before[0] < after[0] and before[1] < after[1]):
            raise DamagedCheckpointError(f"{path}: epoch {after[0]} at offset {after[1]} does not follow {before}")
    return entries


def _check(path: str, entries: Sequence[Entry], batches: Batches) -> None:
    """Raises DamagedCheckpointError where an epoch's start can't be true by the log's batches. Raises StorageError."""
    if (wrong := _contradicted(entries, batches)) is not None:
        raise DamagedCheckpointError(f"{path}: epoch {wrong[0]} does not begin at offset {wrong[1]} in the log")


def _contradicted(entries: Sequence[Entry], batches: Batches) -> Entry | None:
    """Returns the first entry that can't be true by the log's batches; None without one. Raises StorageError."""
    for number, (epoch, start) in enumerate(entries):
        before = entries[number - 1] if number else None
        end = entries[number + 1][1] if number + 1 < len(entries) else MAX_LONG
        if _is_contradicted(epoch, start, end, before, batches):
            return epoch, start
    return None


def _is_contradicted(epoch: int, start: int, end: int, before: Entry | None, batches: Batches) -> bool:
    """Returns whether the batches around `start` show that `epoch` does not begin there.

    They do if two side by side have another epoch, or one before it has this one, or a batch lies across it. The first
    epoch need not begin with a batch: its start is raised with the log start offset.
    """
    ahead = list(islice(batches(start), 2))
    own = [one.partition_leader_epoch for one in ahead if one.base_offset < end]
    behind = next((one for one in islice(batches(max(start - 1, 0)), 1) if one.next_offset == start), None)
    around = [behind.partition_leader_epoch, *own] if behind is not None else own
    if any(one == other not in {epoch, NO_LEADER_EPOCH} for one, other in pairwise(around)):
        return True
    if before is None:
        return False
    if ahead and ahead[0].base_offset < start:
        return True
    earlier = islice(batches(start - 1), 1) if ahead else batches(before[1])
    found = sum(one.partition_leader_epoch == epoch for one in earlier if one.base_offset < start)
    return found > (0 if set(own) == {epoch} else 1)


def _epochs_of(batches: Iterable[BatchHeader], latest: int) -> Iterator[tuple[int, int]]:
    """Yields (epoch, start offset) of each epoch above `latest`.

    Passes over batches that the next one contradicts by a lower epoch, and those that overlap with others: their base
    offset is wrong, which no checksum covers either.
    """
    headers, end_offset = iter(batches), 0
    header = next(headers, None)
    while header is not None:
        following = next(headers, None)
        epoch = header.partition_leader_epoch
        overlaps = following is not None and following.base_offset < header.next_offset
        if header.base_offset >= end_offset and not overlaps:
            end_offset = header.next_offset
            if latest < epoch <= LAST_LEADER_EPOCH and (following is None or following.partition_leader_epoch >= epoch):
                latest = epoch
                yield latest, header.base_offset
        header = following
