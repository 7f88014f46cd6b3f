"""How far the bytes of a fetch can be read, and where batches go on behind those that can't be.

    asked 100   [100 ── 103][ ?  damaged  ? ][112 ── 115]      intact up to 104, and again from 112 on

Records may hold bytes that look like batches, and no checksum covers a base offset or a length. So what goes on is
proven: a damaged batch ends where its length says, if another one that is intact begins there; or, if its length is
damaged, where its CRC holds. Where neither is so, the bytes don't tell (`client.damaged_batches` asks the log).

A batch lies about its offsets where they overlap those of its neighbours. Of two that overlap, the second one lies if
the first follows on what was read before. Else both may lie, unless the first one, which leaves a gap, has just as many
offsets as there are between what was read before and the second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from millrace.errors import CorruptRecordError, RecordError
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    check_crc,
    is_transactional,
    read_header,
)
from millrace.records.checksum import crc32c
from millrace.records.control import decode_marker
from millrace.records.intervals import Interval
from millrace.records.message_set import ENTRY, decode_message_set, first_offset


class Rules(NamedTuple):
    """The checks that batches have to pass besides their CRC; each raises RecordError where one fails.

    `decode` is called with the bytes of a batch, `check_gap` with the offsets that are missing between two batches.
    """

    decode: Callable[[memoryview], object]
    check_gap: Callable[[Interval], None]


class Entry(NamedTuple):
    """An intact batch, or message of v0 or v1: its size, and the offsets from `base_offset` below `next_offset`."""

    size_bytes: int
    base_offset: int
    next_offset: int


class Intact(NamedTuple):
    """How far a fetch's bytes can be read: to a position, its offset, and the error there (None: the bytes just end).

    `is_gap` says that `check_gap` refused the missing offsets before the batch at that position; `is_settled` is False
    where the batch before may be wrong instead of the one at the position.
    """

    end: int
    next_offset: int
    error: RecordError | None = None
    is_gap: bool = False
    is_settled: bool = True


def intact(records: bytes, asked_offset: int, rules: Rules, *, goes_on: bool = False) -> Intact:
    """Returns how far the bytes of a fetch from `asked_offset` can be read.

    `goes_on` says that a batch that was read before ends exactly at `asked_offset`.
    """
    view, position, expected, least = memoryview(records), 0, asked_offset, asked_offset if goes_on else 0
    is_gap = False
    try:
        while (entry := _entry(view, position, rules)) is not None:
            if entry.base_offset < least or entry.next_offset <= expected:
                is_settled = position > 0 or not goes_on or _fits_before(view, entry, expected, rules)
                return Intact(position, expected, _overlaps(entry, expected), is_settled=is_settled)
            if entry.base_offset > expected:
                _check_neighbour(view, position, entry, expected, rules)
                is_gap = True
                rules.check_gap(Interval(expected, entry.base_offset))
                is_gap = False
            position, least = position + entry.size_bytes, entry.next_offset
            expected = least
    except RecordError as error:
        return Intact(position, expected, error, is_gap=is_gap)
    return Intact(position, expected)


def resumed(records: bytes, from_offset: int, rules: Rules) -> tuple[int, int] | None:
    """Returns (position, base offset) of the next intact batch in bytes that begin with a damaged one.

    Returns None where no position is certain. Several batches may be damaged before it; the base offset is above
    `from_offset`.
    """
    view = memoryview(records)
    first = _readable(view, 0, rules)
    for end in _proven_ends(view):
        following = _readable(view, end, rules)
        if following is not None and _leads_on(first, following, from_offset):
            return end, following.base_offset
    return None


def has_transactional(records: bytes) -> bool:
    """Returns whether any batch in these bytes is transactional."""
    view = memoryview(records)
    return any(is_transactional(view[at:]) for at in chain((0,), _ends_by_length(view, 0)))


def has_unread_end(records: bytes, max_bytes: int) -> bool:
    """Returns whether a fetch's bytes end within a batch, though there are fewer of them than `max_bytes`."""
    view, position = memoryview(records), 0
    while len(view) - position >= LOG_OVERHEAD_BYTES:
        size_bytes = _size(view, position)
        if not LOG_OVERHEAD_BYTES < size_bytes <= len(view) - position:
            break
        position += size_bytes
    return position < len(view) < max_bytes


def _size(view: memoryview, position: int) -> int:
    return LOG_OVERHEAD_BYTES + int(ENTRY.unpack_from(view, position)[1])


def _entry(view: memoryview, position: int, rules: Rules) -> Entry | None:
    """Returns the intact batch or message at a position; None for an incomplete one or none; raises RecordError."""
    left = len(view) - position
    if left <= MAGIC_POSITION or (view[position + MAGIC_POSITION] == MAGIC_V2 and left < HEADER_BYTES):
        return None
    if view[position + MAGIC_POSITION] < MAGIC_V2:
        return _message(view, position)
    header = read_header(view, position)
    if header.size_bytes > left:
        return None
    batch = view[position : position + header.size_bytes]
    check_crc(batch, 0, header)
    if header.is_control:
        decode_marker(header, batch)
    rules.decode(batch)
    return Entry(header.size_bytes, header.base_offset, header.next_offset)


def _message(view: memoryview, position: int) -> Entry | None:
    size_bytes = _size(view, position)
    if size_bytes > len(view) - position:
        return None
    message = view[position : position + max(size_bytes, 0)]
    records = list(decode_message_set(message))
    if not records:
        raise CorruptRecordError(f"no message at position {position}")
    return Entry(size_bytes, records[0].offset, first_offset(message) + 1)


def _readable(view: memoryview, position: int, rules: Rules) -> Entry | None:
    try:
        return _entry(view, position, rules)
    except RecordError:
        return None


def _overlaps(entry: Entry, expected: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"a batch says that it has the offsets {entry.base_offset}-{entry.next_offset - 1}, "
        f"where {expected} or later ones are expected"
    )


def _fits_before(view: memoryview, entry: Entry, expected: int, rules: Rules) -> bool:
    """Returns whether the first batch has exactly as many offsets as from `expected` to before the second batch."""
    following = _readable(view, entry.size_bytes, rules)
    return following is not None and following.base_offset - expected == entry.next_offset - entry.base_offset


def _leads_on(first: Entry | None, following: Entry, from_offset: int) -> bool:
    """Returns whether `following` can come after the damaged batch `first`, which is None if it can't be read."""
    if first is not None and following.base_offset < first.next_offset:
        return following.base_offset - from_offset == first.next_offset - first.base_offset
    return following.base_offset > from_offset


def _check_neighbour(view: memoryview, position: int, entry: Entry, expected: int, rules: Rules) -> None:
    """Raises CorruptRecordError if the batch behind `entry` begins from `expected` on, but before the entry's end."""
    following = _readable(view, position + entry.size_bytes, rules)
    if following is not None and expected <= following.base_offset < entry.next_offset:
        raise _overlaps(following, entry.next_offset)


def _proven_ends(view: memoryview) -> Iterator[int]:
    """Yields positions at which the first batch, or a damaged one behind it, may end: by length fields or CRCs."""
    last = 0
    for last in _ends_by_length(view, 0):
        yield last
    for start in dict.fromkeys((0, last)):
        for end in _ends_by_crc(view, start):
            yield end
            yield from _ends_by_length(view, end)


def _ends_by_length(view: memoryview, position: int) -> Iterator[int]:
    """Yields the positions where batches end by their length fields, as long as those are possible."""
    while len(view) - position > MAGIC_POSITION:
        size_bytes = _size(view, position)
        if not MAGIC_POSITION < size_bytes < len(view) - position:
            return
        position += size_bytes
        yield position


def _ends_by_crc(view: memoryview, start: int) -> Iterator[int]:
    """Yields positions up to which the CRC of the batch at `start` matches, and at which a batch may begin."""
    if len(view) - start < HEADER_BYTES:
        return
    data, crc, done = bytes(view), 0, start + ATTRIBUTES_POSITION
    wanted, magic = BatchHeader._make(HEADER.unpack_from(view, start)).crc, bytes([MAGIC_V2])
    at = data.find(magic, start + HEADER_BYTES + MAGIC_POSITION)
    while at >= 0:
        crc, done = crc32c(view[done : at - MAGIC_POSITION], crc), at - MAGIC_POSITION
        if crc == wanted:
            yield done
        at = data.find(magic, at + 1)
