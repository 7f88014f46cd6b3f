"""Compares the leader epochs of batches, which no checksum covers, with those of their log, and mends them.

    the log's epochs    (3, 0)                                (5, 40)
    batches             [3: 0 … 9] [7: 10 … 19] [3: 20 … 39]  [5: 40 …
    mended                         [3: 10 … 19]

Either may be wrong: no checksum covers `leader-epoch-checkpoint` either. So a batch is mended only if batches beside it
have what the log's epochs say of them. One of the same epoch is enough, unless the batch has the epoch before or behind
that one: then it may be right, and the border wrong, and it takes both. What is not certain is told, and left alone.

Four bytes are written in their place. Readers get the old or the new ones. A crash may leave the old ones, or a part of
the new ones: the next check finds them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.fs import FileSystem
from millrace.records.batch import NO_LEADER_EPOCH, BatchHeader
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)

OFFSET, EPOCH = Struct(">q"), Struct(">i")
EPOCH_POSITION = 12  # in a batch, behind its base offset and its length

Entries = Sequence[tuple[int, int]]
"""Leader epochs with their first offsets, oldest first."""


class WrongEpoch(NamedTuple):
    """A batch that has another leader epoch (`found`) than its log says (`epoch`), and whether it can be mended."""

    position: int
    base_offset: int
    found: int
    epoch: int
    is_certain: bool

    def __str__(self) -> str:
        return f"leader epoch {self.found} of the batch at offset {self.base_offset}, where the log has {self.epoch}"


class EpochComparison:
    """Compares the epochs of batches that follow each other with those of their log.

    Args:
        entries: the log's epochs.
        end_offset: up to which offset these are all.

    Attributes:
        wrong: the batches that differ, complete after `finish`.
    """

    __slots__ = ("_before", "_begin", "_end", "_end_offset", "_entries", "_expected", "_near", "_suspect", "wrong")

    def __init__(self, entries: Entries, end_offset: int = MAX_LONG) -> None:
        self.wrong: list[WrongEpoch] = []
        self._entries = entries
        self._end_offset = end_offset
        self._begin = self._end = 0  # the offsets of the epoch that is expected now
        self._expected = NO_LEADER_EPOCH
        self._near: tuple[int, ...] = ()  # the epochs before and behind it
        self._before = NO_LEADER_EPOCH  # the epoch of the batch before, if the log has the same
        self._suspect: WrongEpoch | None = None  # the batch before, if the one behind it has yet to confirm its epoch

    def note(self, position: int, header: BatchHeader) -> None:
        """Compares the next batch, which is at a position of its segment."""
        base_offset, found = header.base_offset, header.partition_leader_epoch
        if base_offset >= self._end_offset:
            return
        if not self._begin <= base_offset < self._end:
            self._expect_at(base_offset)
        expected = self._expected
        if found == expected or NO_LEADER_EPOCH in {found, expected}:
            self._decide(expected)
            self._before = expected
            return
        self._decide(NO_LEADER_EPOCH)
        is_near, is_confirmed = found in self._near, self._before == expected
        self._before = NO_LEADER_EPOCH
        one = WrongEpoch(position, base_offset, found, expected, is_confirmed and not is_near)
        if one.is_certain or (is_near and not is_confirmed):
            self.wrong.append(one)
        else:
            self._suspect = one

    def finish(self) -> None:
        """Ends the comparison."""
        self._decide(NO_LEADER_EPOCH)

    def _decide(self, epoch_behind: int) -> None:
        if self._suspect is not None:
            self.wrong.append(self._suspect._replace(is_certain=self._suspect.epoch == epoch_behind))
            self._suspect = None

    def _expect_at(self, offset: int) -> None:
        entries = self._entries
        slot = bisect_right(entries, offset, key=lambda entry: entry[1]) - 1
        behind = entries[slot + 1 : slot + 2]
        self._begin = entries[slot][1] if slot >= 0 else 0
        self._end = behind[0][1] if behind else MAX_LONG
        self._expected = entries[slot][0] if slot >= 0 else NO_LEADER_EPOCH
        self._near = tuple(epoch for epoch, _ in (*entries[max(slot - 1, 0) : max(slot, 0)], *behind))


def mend(fs: FileSystem, segment: LogSegment, wrong: Sequence[WrongEpoch]) -> int:
    """Writes the log's epochs into the batches of a segment that are certainly wrong; returns how many those are.

    Nothing is synced. The caller sees to it that the file is not cut meanwhile. Raises OSError.
    """
    mended = 0
    for one in wrong:
        place = one.position + EPOCH_POSITION
        is_there = one.is_certain and (
            fs.pread(segment.fd, OFFSET.size, one.position) == OFFSET.pack(one.base_offset)
            and fs.pread(segment.fd, EPOCH.size, place) == EPOCH.pack(one.found)
        )
        if is_there:
            fs.pwritev(segment.fd, [EPOCH.pack(one.epoch)], place)
            logger.warning("%s: %s, is mended", segment.path, one)
            mended += 1
    return mended
