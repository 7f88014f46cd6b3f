"""Which offsets the batches of a fetch account for: intervals of offsets, from the first to the one after the last.

    asked 100    [98 ── 103][104 ── 107]     gap     [112 ── 115]   → next 116
                                         108 ── 111

A batch accounts for the offsets from its base offset to its last one. No checksum covers base offset, length and leader
epoch, so they are proven by their neighbours: intervals rise without overlap, and the first one reaches the asked
offset. What lies between two of them, or has no record inside of one, is absent. Only compaction explains that; who
reads has to ask (`client.damaged_batches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import MAGIC_V2, NO_LEADER_EPOCH, BatchHeader, Buffer, walk
from millrace.records.message_set import message_offsets, runs


class Interval(NamedTuple):
    """All offsets from `from_offset` up to, not including, `until_offset`."""

    from_offset: int
    until_offset: int

    def __str__(self) -> str:
        return f"{self.from_offset}-{self.until_offset - 1}"


class Extent(NamedTuple):
    """The offset after the last whole batch of a fetch, and the leader epoch of that batch."""

    next_offset: int
    leader_epoch: int = NO_LEADER_EPOCH


def rising(
    batches: Iterable[tuple[int, BatchHeader]], asked_offset: int, *, goes_on: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of batches, and checks that their offsets rise.

    Raises CorruptRecordError for a batch that begins below the end of the one before, or ends below `asked_offset`.

    Args:
        batches: The batches of one fetch, as `walk` yields them.
        asked_offset: The offset that was fetched from; the first batch may begin below it.
        goes_on: Whether a batch that was read before ends at `asked_offset`, so that none may begin below it.
    """
    least_base_offset, end_offset = asked_offset if goes_on else 0, asked_offset
    for position, header in batches:
        base_offset, next_offset = header.base_offset, header.next_offset
        if base_offset < least_base_offset or next_offset <= end_offset:
            raise _does_not_rise(position, header, end_offset)
        yield position, header
        least_base_offset = end_offset = next_offset


def _does_not_rise(position: int, header: BatchHeader, end_offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the batch at position {position} of the answer says that it has the offsets "
        f"{header.base_offset}-{header.last_offset}, where {end_offset} or later ones are expected"
    )


def extent(records: Buffer, asked_offset: int, *, goes_on: bool = False) -> Extent:
    """Returns how far the bytes of a fetch from `asked_offset` go; to that offset if they have no whole batch.

    `goes_on` says that a batch that was read before ends exactly at `asked_offset`.

    Raises:
        CorruptRecordError: The offsets of batches or messages do not rise from `asked_offset` on.
    """
    found = Extent(asked_offset)
    for magic, run in runs(records):
        found = _extent_of_batches(run, found, goes_on) if magic == MAGIC_V2 else _extent_of_messages(run, found)
        goes_on = True
    return found


def _extent_of_batches(run: memoryview, before: Extent, goes_on: bool) -> Extent:
    """Returns how far the bytes up to the end of these batches go; checks that offsets rise, as `rising` does."""
    end_offset, leader_epoch = before
    least_base_offset = end_offset if goes_on else 0
    for position, header in walk(run):
        base_offset, leader_epoch = header.base_offset, header.partition_leader_epoch
        next_offset = base_offset + header.last_offset_delta + 1
        if base_offset < least_base_offset or next_offset <= end_offset:
            raise _does_not_rise(position, header, end_offset)
        least_base_offset = end_offset = next_offset
    return Extent(end_offset, leader_epoch)


def _extent_of_messages(run: memoryview, before: Extent) -> Extent:
    end_offset = before.next_offset
    for offset in message_offsets(run):
        if offset < end_offset:
            raise CorruptRecordError(f"a message has offset {offset}, where {end_offset} is expected")
        end_offset = offset + 1
    return before._replace(next_offset=end_offset)
