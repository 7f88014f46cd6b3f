"""`leader-epoch-checkpoint`: the first offset that each leader wrote (Kafka's format; KIP-101).

    0                           version
    1                           number of entries
    3 42                        epoch, its start offset; both increase

An entry is on the disk before the first batch of its epoch is written. A crash may leave one whose batches are lost;
`truncate` drops it when the log opens.

A file that is damaged, so that it has no such entries, is made again of the log's batches, which bear their epochs. So
is one with an entry that two batches side by side contradict: no checksum covers the file, nor the epoch in a batch.

Epochs that lie below the log start offset are dropped in memory only: the log start offset is known when the log opens,
and they are dropped again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise

from millrace.config import MAX_LONG
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace.leader_states import LAST_LEADER_EPOCH, leader_epoch
from millrace.records.batch import NO_LEADER_EPOCH, BatchHeader
from millrace_broker.storage.checkpoints import DamagedCheckpointError, read_lines, write_lines
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT

logger = logging.getLogger(__name__)

Entry = tuple[int, int]
Batches = Callable[[int], Iterable[BatchHeader]]
"""Gives the headers of a log's batches from an offset on."""


class LeaderEpochs:
    """The leader epochs of one log."""

    __slots__ = ("_entries", "_fs", "_is_behind", "_path", "latest", "newest_found")

    def __init__(self, fs: FileSystem, directory: str, batches: Batches) -> None:
        """Reads the file, or else the headers of the log's `batches`. StorageError."""
        self._fs = fs
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._is_behind = False  # whether the file has epochs that were dropped
        self.latest = NO_LEADER_EPOCH
        """The newest epoch; -1 if none is known."""
        try:
            entries = _parse(self._path, read_lines(fs, self._path))
            _check(self._path, entries, batches)
            self._keep(entries)
        except DamagedCheckpointError as error:
            entries = _epochs_of(batches(0))
            logger.warning("%s; the leader epochs are read from the log's batches: %s", error, entries)
            self._replace_if_possible(entries)
        self.newest_found = self.latest
        """The newest epoch that the file had when it was opened, though nothing of it may be left."""

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Writes that a leader's epoch begins at `start_offset`; durable. StorageError.

        Entries of this or a newer epoch are dropped, as those that begin at or above the offset: both always increase.
        """
        kept = [entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def truncate(self, log_end_offset: int) -> None:
        """Forgets epochs of which the log holds nothing.

        A file that can't be written, as on a full disk, keeps them until the next epoch is written, `catch_up` is
        called, or the log is opened again; it is not read before.
        """
        kept = [entry for entry in self._entries if entry[1] < log_end_offset]
        if kept != self._entries:
            self._replace_if_possible(kept)

    def catch_up(self) -> None:
        """Writes the file if it could not be written when epochs were dropped. StorageError.

        This comes before an append in an epoch that the file has: the log may grow past the start of a dropped one.
        """
        if self._is_behind:
            self._replace(self._entries)

    def raise_start(self, log_start_offset: int) -> None:
        """Forgets epochs that end at or below the log start offset; the one that holds the offset begins there now."""
        below = [epoch for epoch, start_offset in self._entries if start_offset <= log_start_offset]
        if below:
            self._keep([(below[-1], log_start_offset), *self._entries[len(below) :]])

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        write_lines(self._fs, self._path, (f"{epoch} {offset}" for epoch, offset in entries))
        self._is_behind = False
        self._keep(entries)

    def _replace_if_possible(self, entries: list[tuple[int, int]]) -> None:
        try:
            self._replace(entries)
        except StorageError as error:
            logger.warning("the leader epochs %s are not written yet, their file has others: %s", entries, error)
            self._keep(entries)
            self._is_behind = True

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
    """Raises DamagedCheckpointError where an entry can't be true of the batches. StorageError."""
    for number, (epoch, start) in enumerate(entries):
        before = entries[number - 1] if number else None
        end = entries[number + 1][1] if number + 1 < len(entries) else MAX_LONG
        if _is_contradicted(epoch, start, end, before, batches):
            raise DamagedCheckpointError(f"{path}: epoch {epoch} does not begin at offset {start} in the log")


def _is_contradicted(epoch: int, start: int, end: int, before: Entry | None, batches: Batches) -> bool:
    """Returns whether two batches have another epoch behind the start, or the epoch reaches to before it.

    An epoch begins with a batch, but for the first one: its start is raised with that of the log.
    """
    ahead = list(islice(batches(start), 2))
    own = [one.partition_leader_epoch for one in ahead if one.base_offset < end]
    if len(own) > 1 and own[0] == own[1] and own[0] not in {epoch, NO_LEADER_EPOCH}:
        return True
    if before is None:
        return False
    if ahead and ahead[0].base_offset < start:
        return True
    earlier = islice(batches(start - 1), 1) if ahead else batches(before[1])
    found = sum(one.partition_leader_epoch == epoch for one in earlier if one.base_offset < start)
    return found > (0 if set(own) == {epoch} else 1)


def _epochs_of(batches: Iterable[BatchHeader]) -> list[tuple[int, int]]:
    """Returns where each epoch begins; no checksum covers a batch's epoch, so one that can't be is passed over."""
    entries: list[tuple[int, int]] = []
    latest = NO_LEADER_EPOCH
    for header in batches:
        if latest < header.partition_leader_epoch <= LAST_LEADER_EPOCH:
            latest = header.partition_leader_epoch
            entries.append((latest, header.base_offset))
    return entries
