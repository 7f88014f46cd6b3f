"""Compares the leader epochs of batches, which no checksum covers, with those of their log, and mends them.

    the log's epochs    (3, 0)                                (5, 40)
    batches             [3: 0 … 9] [7: 10 … 19] [3: 20 … 39]  [5: 40 …
    mended                         [3: 10 … 19]

Either may be wrong: no checksum covers `leader-epoch-checkpoint` either. So a batch is mended only if a batch beside it
shows that the log's epoch is right, and if its own can't be right: epochs never go down along a log, and this one would
from the batch before it, or to the one behind. Where a batch beside it is not known, the log's epochs before and behind
take its place. What is not certain is told, and left alone.

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
from millrace.leader_states import LAST_LEADER_EPOCH
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


class _Suspect(NamedTuple):
    """A batch that has another epoch than its log, the known epoch of the one before, and the log's around its own."""

    wrong: WrongEpoch
    before: int | None
    least: int
    most: int

    def decided(self, behind: int | None) -> WrongEpoch:
        """Returns whether it can be mended, by the known epoch of the batch behind it."""
        is_confirmed = self.wrong.epoch in {self.before, behind}
        least = self.least if self.before is None else self.before
        most = self.most if behind is None else behind
        return self.wrong._replace(is_certain=is_confirmed and not least <= self.wrong.found <= most)


class EpochComparison:
    """Compares the epochs of batches that follow each other with those of their log.

    Args:
        entries: the log's epochs.
        end_offset: up to which offset these are all.

    Attributes:
        wrong: the batches that differ, complete after `finish`.
    """

    __slots__ = (
        "_before", "_begin", "_end", "_end_offset", "_entries", "_expected", "_least", "_most", "_suspect", "wrong",
    )  # fmt: skip

    def __init__(self, entries: Entries, end_offset: int = MAX_LONG) -> None:
        self.wrong: list[WrongEpoch] = []
        self._entries = entries
        self._end_offset = end_offset
        self._begin = self._end = 0  # the offsets of the epoch that is expected now
        self._expected = NO_LEADER_EPOCH
        self._least, self._most = 0, LAST_LEADER_EPOCH  # the log's epochs before and behind it
        self._before: int | None = None  # the epoch of the batch before, if the log has the same
        self._suspect: _Suspect | None = None  # the batch before, if the log has another epoch

    def note(self, position: int, header: BatchHeader) -> None:
        """Compares the next batch, which is at a position of its segment."""
        base_offset, found = header.base_offset, header.partition_leader_epoch
        if base_offset >= self._end_offset:
            return
        if not self._begin <= base_offset < self._end:
            self._expect_at(base_offset)
        expected = self._expected
        if found == expected or NO_LEADER_EPOCH in {found, expected}:
            known = found if found == expected != NO_LEADER_EPOCH else None
            self._decide(known)
            self._before = known
            return
        self._decide(None)
        wrong = WrongEpoch(position, base_offset, found, expected, is_certain=False)
        self._suspect = _Suspect(wrong, self._before, self._least, self._most)
        self._before = None

    def finish(self) -> None:
        """Ends the comparison."""
        self._decide(None)

    def _decide(self, behind: int | None) -> None:
        """Decides on the batch before, behind which one of a known epoch lies, or None."""
        if self._suspect is not None:
            self.wrong.append(self._suspect.decided(behind))
            self._suspect = None

    def _expect_at(self, offset: int) -> None:
        entries = self._entries
        slot = bisect_right(entries, offset, key=lambda entry: entry[1]) - 1
        behind = entries[slot + 1 : slot + 2]
        self._begin = entries[slot][1] if slot >= 0 else 0
        self._end = behind[0][1] if behind else MAX_LONG
        self._expected = entries[slot][0] if slot >= 0 else NO_LEADER_EPOCH
        self._least = entries[slot - 1][0] if slot > 0 else 0
        self._most = behind[0][0] if behind else LAST_LEADER_EPOCH


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
