"""`leader-epoch-checkpoint`: the first offset that each leader wrote (Kafka's format; KIP-101).

    0                           version
    1                           number of entries
    3 42                        epoch, its start offset; both increase

An entry is on the disk before the first batch of its epoch is written. A crash may leave one whose batches are lost;
`truncate` drops it when the log opens.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.storage.checkpoints import read_lines, write_lines
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT

logger = logging.getLogger(__name__)


class LeaderEpochs:
    """The leader epochs of one log."""

    __slots__ = ("_entries", "_fs", "_path", "latest", "newest_found")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        self.latest = NO_LEADER_EPOCH
        """The newest epoch; -1 if none is known."""
        self._keep(_parse(self._path, read_lines(fs, self._path)))
        self.newest_found = self.latest
        """The newest epoch that the file had when it was opened, though nothing of it may be left."""

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Writes that the leader of a newer epoch begins at `start_offset`; durable. StorageError."""
        kept = [entry for entry in self._entries if entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def truncate(self, log_end_offset: int) -> None:
        """Forgets epochs of which the log holds nothing.

        A file that can't be written, as on a full disk, keeps them until the next epoch is written or the log is opened
        again; it is not read before.
        """
        kept = [entry for entry in self._entries if entry[1] < log_end_offset]
        if kept != self._entries:
            try:
                self._replace(kept)
            except StorageError as error:
                logger.warning(
                    "leader epochs from offset %d on stay in their file until it can be written: %s",
                    log_end_offset,
                    error,
                )
                self._keep(kept)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        write_lines(self._fs, self._path, (f"{epoch} {offset}" for epoch, offset in entries))
        self._keep(entries)

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_LEADER_EPOCH


def _parse(path: str, lines: list[list[str]]) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(offset)) for epoch, offset in lines]
    except ValueError as error:
        raise StorageError(f"{path}: {error}") from error
