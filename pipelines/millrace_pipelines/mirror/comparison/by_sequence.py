"""Compares a copied log with its source, of which neither is compacted: the same records in the same order.

Offsets differ, so records are matched by their content and order:

    source   a b c d e f g …        batches of the same bytes are passed over without a look at their records;
    target   a b   d x f g …        else record by record; from a difference on by windows (`alignment.matches`)

A difference is settled up to the last match of its window, and reading in step goes on behind it. Where a window has no
match, the logs are searched for where they go on together: a little way first, at last to their ends.

Either log may have lost its beginning to retention. So the logs are put beside one another first, by content too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from millrace.client.fetched import FetchedBatch
from millrace.records.batch import HEADER_BYTES
from millrace.records.record import Record
from millrace_pipelines.mirror.comparison.alignment import find_run, matches
from millrace_pipelines.mirror.comparison.difference import Content, Difference, Kind, altered, content, extra, missing
from millrace_pipelines.mirror.comparison.log_reader import LogReader, OnPair

WINDOW = 256  # records, of which half may differ in any way
SEARCHED = 4096  # records of which some must be found again
RUN = 8  # records that must be the same for two logs to go on there
REACHES = (SEARCHED, 64 * SEARCHED, None)  # how many records are searched: a few first, at last all


class Cut(NamedTuple):
    """Whether retention has cut off the beginning of a log."""

    source: bool = False
    target: bool = False


UNCUT = Cut()


def compare_by_sequence(
    source: LogReader, target: LogReader, on_pair: OnPair, cut: Cut = UNCUT
) -> Iterator[Difference]:
    """Yields the differences of two logs, in order; also records that one of them has after the other's end."""
    if any(cut):
        _put_beside(source, target, cut)
    while True:
        if _pass_over_batch(source, target, on_pair):
            continue
        one, other = source.peek(), target.peek()
        if one is None and other is None:
            return
        if one is not None and other is not None and content(one) == content(other):
            on_pair(one.offset, other.offset, 1)
            source.take()
            target.take()
        else:
            yield from _settled(source, target, on_pair)


def _pass_over_batch(source: LogReader, target: LogReader, on_pair: OnPair) -> bool:
    """Passes over a batch on both sides if their records are the same bytes; returns whether it has done so."""
    one, other = source.whole_batch(), target.whole_batch()
    if one is None or other is None:
        return False
    if one.is_passed_over:
        source.drop_batch()
        return True
    if other.is_passed_over:
        target.drop_batch()
        return True
    if not _has_same_records(one, other):
        return False
    on_pair(one.header.base_offset, other.header.base_offset, one.header.record_count)
    source.drop_batch()
    target.drop_batch()
    return True


def _has_same_records(one: FetchedBatch, other: FetchedBatch) -> bool:
    """Returns whether two batches have the same records, one for each of their offsets, by their bytes."""
    a, b = one.header, other.header
    return (
        (a.codec_id, a.is_log_append_time, a.last_offset_delta, a.base_timestamp, a.max_timestamp, a.record_count)
        == (b.codec_id, b.is_log_append_time, b.last_offset_delta, b.base_timestamp, b.max_timestamp, b.record_count)
        and a.record_count == a.last_offset_delta + 1
        and one.data[HEADER_BYTES:] == other.data[HEADER_BYTES:]
    )


def _settled(source: LogReader, target: LogReader, on_pair: OnPair) -> Iterator[Difference]:
    """Yields the differences up to the last match of a window, and goes on behind it."""
    ours, theirs = source.window(WINDOW), target.window(WINDOW)
    pairs = matches([content(one) for one in ours], [content(one) for one in theirs])
    is_all = len(ours) < WINDOW and len(theirs) < WINDOW
    if not pairs and not is_all:
        yield from _searched(source, target)
        return
    end = (len(ours), len(theirs)) if is_all else (pairs[-1][0] + 1, pairs[-1][1] + 1)
    for i, j in pairs:
        on_pair(ours[i].offset, theirs[j].offset, 1)
    yield from _named(ours[: end[0]], theirs[: end[1]], pairs)
    source.take(end[0])
    target.take(end[1])


def _named(ours: Sequence[Record], theirs: Sequence[Record], pairs: Sequence[tuple[int, int]]) -> Iterator[Difference]:
    """Yields what the records between pairs of the same content are: others, missing, or at the target only."""
    lone = Counter(content(one) for one in _without(ours, {i for i, _ in pairs}))
    moved = lone & Counter(content(one) for one in _without(theirs, {j for _, j in pairs}))
    from_i, from_j = 0, 0
    for i, j in (*pairs, (len(ours), len(theirs))):
        yield from _gap(ours[from_i:i], theirs[from_j:j], moved)
        from_i, from_j = i + 1, j + 1


def _without(records: Sequence[Record], indexes: set[int]) -> list[Record]:
    return [one for index, one in enumerate(records) if index not in indexes]


def _gap(ours: Sequence[Record], theirs: Sequence[Record], moved: Counter[Content]) -> Iterator[Difference]:
    """Yields the differences of records between two matches: those that share something are taken for the same one."""
    left = list(theirs)
    for one in ours:
        fits = (i for i, other in enumerate(left) if content(other) not in moved and _share(one, other))
        at = None if content(one) in moved else next(fits, None)
        if at is None:
            yield missing(one)
        else:
            yield from map(extra, left[:at])
            yield altered(one, left[at])
            del left[: at + 1]
    yield from map(extra, left)


def _share(one: Record, other: Record) -> bool:
    """Returns whether two records look like one that was changed: they have a timestamp, a key or a value in common."""
    return (
        one.timestamp_ms == other.timestamp_ms
        or (one.key is not None and one.key == other.key)
        or (one.value is not None and one.value == other.value)
    )


def _searched(source: LogReader, target: LogReader) -> Iterator[Difference]:
    """Yields what lies before the place where two logs go on together, and goes on there; else all of two windows."""
    place = _next_common(source, target)
    if place is None:
        place = Place(len(source.window(SEARCHED)), len(target.window(SEARCHED)))
    yield from _spans(source, place.source, Kind.MISSING)
    yield from _spans(target, place.target, Kind.EXTRA)


class Place(NamedTuple):
    """Where two logs go on together: how many records of each lie before that."""

    source: int
    target: int


def _next_common(source: LogReader, target: LogReader) -> Place | None:
    """Returns where two logs go on together, the nearest place within each reach; None if they never do."""
    ours = [content(one) for one in source.window(SEARCHED)]
    theirs = [content(one) for one in target.window(SEARCHED)]
    for reach in REACHES:
        if found := find_run(theirs, map(content, islice(source.fork(), reach)), RUN):
            return Place(found.place, found.short_place)
        if found := find_run(ours, map(content, islice(target.fork(), reach)), RUN):
            return Place(found.short_place, found.place)
    return None


def _spans(log: LogReader, count: int, kind: Kind) -> Iterator[Difference]:
    """Yields so many records of one log as a difference, and goes on behind them."""
    first, left = log.peek(), count
    while left:
        left -= len(log.take(min(left, SEARCHED)))
    if count and first is not None:
        one = missing(first) if kind is Kind.MISSING else extra(first)
        yield replace(one, count=count, source=None, target=None) if count > 1 else one


def _put_beside(source: LogReader, target: LogReader, cut: Cut) -> None:
    """Passes over records that one log has before the other's beginning, where retention has cut off that."""
    if cut.target and target.peek() is None:
        source.seek(source.end)
    elif cut.source and source.peek() is None:
        target.seek(target.end)
    elif (place := _next_common(source, target)) is not None:
        in_source = _beginning(source, target, place.source, place.target) if cut.target else None
        in_target = _beginning(target, source, place.target, place.source) if cut.source else None
        if in_source is not None:
            source.seek(in_source)
        elif in_target is not None:
            target.seek(in_target)


def _beginning(longer: LogReader, shorter: LogReader, index: int, short_index: int) -> int | None:
    """Returns the offset in the longer log where the shorter one begins; None if it has that before, or not at all.

    They go on together from the two indexes on, and records may be missing before that. So the place is that of the
    shorter log's first record, where the longer one has it shortly before; else as many records before as the shorter
    log has.
    """
    near = deque(islice(longer.fork(), index + 1), maxlen=SEARCHED)
    first = shorter.peek()
    same = [one.offset for one in near if first is not None and content(one) == content(first)]
    if same:
        return same[-1]
    return near[-1 - short_index].offset if index > short_index else None
