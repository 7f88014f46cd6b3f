"""Counts how often each claimed offset is there, and compares that with what is expected, in bounded memory.

The intervals are cut into windows. One pass over the row groups that can have their offsets counts windows of
WINDOW_OFFSETS offsets together, a byte for each offset; a table of up to that many offsets takes one pass. A larger
table whose files keep their offsets together is read little more than once. Tasks read the row groups, and answer with
the set of offsets of each, as compressed intervals. What is expected is decided for SLICE_OFFSETS at a time.

What is claimed is decided from the lineage of a table's commits and its ledgers alone:

    claim       a range of one load, or one that was lost, and how many of its offsets are rows or dead letters
    interval    the claims of one partition that overlap. They overlap where the table went on with another ledger whose
                offsets are the same numbers: an offset may then be there once for each

    ledger 1    ├── claim ──┼── claim ──┤
    ledger 2                      ├── claim ──┤
    intervals   ├───────────┼─────────────────┤

What differs becomes lines of an audit: which rows are there and should not be, which are not there, and how the topic
differs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from millrace.errors import UnknownTopicError
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource, check_ends, describe_topic, log_offsets
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.contents import Contents, Integers, Reader, RowGroup, shown, way_on
from millrace_pipelines.warehouse.completeness.expected import DAMAGED, KNOWN, Expectation, Expected
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.load.history import Claim, History, loads_of
from millrace_pipelines.warehouse.table.lineage import OffsetPage, offsets_in, pages_of
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.open import mode_of

Kind: TypeAlias = Literal["rows", "dead_letters", "control", "aborted", "compacted", "missing", "absent"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # the last in older tables
WINDOW_OFFSETS = 64 << 20
SLICE_OFFSETS = 1 << 20
SHOWN = 5
MOST = 255

Outlines: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""By partition, ranges of offsets (from, until) that rise and do not touch."""


class ClaimedInterval(NamedTuple):
    """The offsets that a load claims to have read, or that several do whose ranges of one partition overlap."""

    partition: int
    claims: tuple[Claim, ...]

    @property
    def from_offset(self) -> int:
        """Returns the first offset of the interval."""
        return self.claims[0].from_offset

    @property
    def until_offset(self) -> int:
        """Returns the offset after the last one of the interval."""
        return max(claim.until_offset for claim in self.claims)

    @property
    def records(self) -> int:
        """Returns the number of rows and dead letters that the interval should have, by its claims."""
        return sum(claim.records for claim in self.claims)


def intervals_of_claims(claims: Iterable[Claim]) -> list[ClaimedInterval]:
    """Returns the claims of all ledgers as intervals; claims that overlap become one interval."""
    intervals: list[list[Claim]] = []
    end = -1
    for claim in sorted(claims, key=lambda claim: (claim.partition, claim.from_offset)):
        if intervals and intervals[-1][0].partition == claim.partition and claim.from_offset < end:
            intervals[-1].append(claim)
            end = max(end, claim.until_offset)
        elif claim.from_offset < claim.until_offset:
            intervals.append([claim])
            end = claim.until_offset
    return [ClaimedInterval(claims[0].partition, tuple(claims)) for claims in intervals]


def absent_since(*histories: History) -> dict[int, int]:
    """Returns, by partition, how many claimed records later commits, such as erasures and reloads, have removed."""
    absent: dict[int, int] = {}
    for commit in (commit for history in histories for commit in history):
        for change in commit.get("absent", ()):
            absent[change["partition"]] = absent.get(change["partition"], 0) + change["offsets"]
    return absent


def rows_by_key(lineage: History) -> int:
    """Returns how many rows a table of newest records should have: inserted keys less deleted and erased ones."""
    merged = [commit["upsert"] for commit in lineage if commit.get("upsert")]
    taken_out = sum(absent_since(lineage).values())
    inserted, deleted = (sum(int(counts[what]) for counts in merged) for what in ("inserted", "deleted"))
    return inserted - deleted - taken_out


def chain_findings(entries: Mapping[int, LedgerEntry], claims: Sequence[Claim]) -> Iterator[str]:
    """Yields lines where a ledger's claims don't lead from a partition's start to its next offset without a gap."""
    by_partition = {partition: list(group) for partition, group in groupby(claims, attrgetter("partition"))}
    for partition, entry in entries.items():
        yield from _chain(partition, entry, by_partition.pop(partition, []))
    for partition, unknown in by_partition.items():
        if any(claim.from_offset < claim.until_offset for claim in unknown):
            yield f"partition {partition}: loads say that they loaded it, but the ledger doesn't know it"


def sum_findings(lineage: History, ledger: str) -> Iterator[str]:
    """Yields lines where a load's counts of rows, dead letters and others don't add up to the offsets of a range."""
    for load in loads_of(lineage, ledger):
        for span in load.get("ranges", ()):
            offsets = span["until_offset"] - span["from_offset"]
            accounted = sum(span.get(kind, 0) for kind in KINDS)
            if accounted != offsets:
                yield (
                    f"partition {span['partition']}, offsets {span['from_offset']}-{span['until_offset'] - 1}: "
                    f"the load accounts for {accounted} of {offsets} offsets"
                )


def _chain(partition: int, entry: LedgerEntry, claims: Iterable[Claim]) -> Iterator[str]:
    position = entry.start_offset
    for claim in claims:
        if claim.from_offset != position:
            yield f"partition {partition}: a load began at {claim.from_offset}, the one before ended at {position}"
        position = max(position, claim.until_offset)
    if position != entry.next_offset:
        yield f"partition {partition}: the loads end at offset {position}, the ledger at {entry.next_offset}"


@dataclass(slots=True)
class WrongOffsets:
    """Counts offsets that were found to be wrong, and keeps the first few of them, and the last."""

    count: int = 0
    first: list[int] = field(default_factory=list)
    last: int = -1

    def add(self, offsets: Integers) -> None:
        """Counts offsets as wrong; they must be above those that were added before."""
        if len(offsets):
            self.count += len(offsets)
            self.first.extend(int(offset) for offset in offsets[: SHOWN + 1 - len(self.first)])
            self.last = int(offsets[-1])


@dataclass(slots=True)
class Coverage:
    """The result of counting the offsets of one interval.

    Attributes:
        interval: The interval.
        records: How many rows and dead letters it has.
        missing: Offsets that are there less often than expected.
        unexpected: Offsets that are there, though none is expected.
        doubled: Offsets that are there more often than expected.
        uncertain: Offsets that are there less often than claimed, where the history says no more.
        damaged: Offsets of which nothing is known, because the commit's record of them is damaged.
        is_known: Whether the history says of each offset how often it should be there.
    """

    interval: ClaimedInterval
    records: int = 0
    missing: WrongOffsets = field(default_factory=WrongOffsets)
    unexpected: WrongOffsets = field(default_factory=WrongOffsets)
    doubled: WrongOffsets = field(default_factory=WrongOffsets)
    uncertain: WrongOffsets = field(default_factory=WrongOffsets)
    damaged: WrongOffsets = field(default_factory=WrongOffsets)
    is_known: bool = True

    def compare(self, expectation: Expectation, counts: np.typing.NDArray[np.uint8]) -> None:
        """Compares how often each offset was found (`counts`) with `expectation`, and adds those that are wrong."""
        is_known, start = expectation.state == KNOWN, expectation.from_offset
        times = np.where(is_known, expectation.times, expectation.claims)
        is_fewer, is_more, is_none = counts < times, counts > times, is_known & (times == 0)
        self.records += int(counts.sum(dtype=np.int64))
        self.missing.add(np.flatnonzero(is_fewer & is_known) + start)
        self.uncertain.add(np.flatnonzero(is_fewer & ~is_known) + start)
        self.unexpected.add(np.flatnonzero(is_more & is_none) + start)
        self.doubled.add(np.flatnonzero(is_more & ~is_none) + start)
        self.damaged.add(np.flatnonzero(expectation.state == DAMAGED) + start)
        self.is_known &= bool(is_known.all())


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an interval, and how often a row or dead letter has each of its offsets."""

    coverage: Coverage
    from_offset: int
    until_offset: int
    counts: np.typing.NDArray[np.uint8]

    def note(self, offsets: Integers) -> None:
        """Adds one to the count of each of these offsets, which must lie in the window and rise."""
        found = offsets - self.from_offset
        counts = self.counts[found]
        self.counts[found] = np.where(counts < MOST, counts + 1, MOST)

    def close(self, expected: Expected) -> None:
        """Compares the counts with what is expected, and adds wrong offsets to the interval's coverage."""
        for low in range(self.from_offset, self.until_offset, SLICE_OFFSETS):
            high = min(low + SLICE_OFFSETS, self.until_offset)
            counts = self.counts[low - self.from_offset : high - self.from_offset]
            self.coverage.compare(expected.of(self.coverage.interval.partition, low, high), counts)


def tally(
    intervals: Sequence[ClaimedInterval],
    tables: Iterable[Contents],
    expected: Expected,
    window_offsets: int = WINDOW_OFFSETS,
) -> list[Coverage]:
    """Counts the offsets of each interval in the files of all tables, and compares them with what is expected."""
    coverages = [Coverage(interval) for interval in intervals]
    contents = list(tables)
    for windows in _passes(coverages, window_offsets):
        finder = _Finder(windows)
        found = partial(_found_pages, finder.outlines)
        for table in contents:
            for pages in table.look(found, filter(finder.wants, table.row_groups)):
                for page in pages:
                    finder.note(page)
        for window in windows:
            window.close(expected)
    return coverages


def _found_pages(outlines: Outlines, reader: Reader, group: RowGroup) -> list[OffsetPage]:
    """Returns the offsets of a row group that lie in the outlines; an offset that it has twice is on two pages."""
    partitions, offsets = reader.read(group)
    is_wanted = np.zeros(len(offsets), np.bool_)
    for partition in np.unique(partitions):
        mine = partitions == partition
        is_wanted[mine] = _inside(offsets[mine], outlines.get(int(partition), ()))
    return list(pages_of(partitions[is_wanted], offsets[is_wanted]))


class Stray(NamedTuple):
    """Rows of a row group and a partition that no load claims: how many, and the first few of their offsets.

    `is_inside` says whether their offsets are the ledger's; None where it doesn't know the partition.
    """

    partition: int
    is_inside: bool | None
    rows: int
    first: tuple[int, ...]


def strays(intervals: Sequence[ClaimedInterval], table: Contents, ledger: Ledger) -> Iterator[Stray]:
    """Yields rows that no load claims; only row groups that can have such rows are read."""
    outlines = _outlines(intervals)
    known = {partition: (entry.start_offset, entry.next_offset) for partition, entry in ledger.partitions.items()}
    groups = (group for group in table.row_groups if not _is_inside(group, outlines))
    for found in table.look(partial(_strays_in, outlines, known), groups):
        yield from found


def _strays_in(
    outlines: Outlines, known: Mapping[int, tuple[int, int]], reader: Reader, group: RowGroup
) -> list[Stray]:
    partitions, offsets = reader.read(group)
    found: list[Stray] = []
    for partition in np.unique(partitions).tolist():
        mine = offsets[partitions == partition]
        outside = mine[~_inside(mine, outlines.get(partition, ()))]
        if partition not in known:
            found.append(_stray(partition, None, outside))
            continue
        low, high = known[partition]
        is_inside = (outside >= low) & (outside < high)
        found += [_stray(partition, False, outside[~is_inside]), _stray(partition, True, outside[is_inside])]
    return [one for one in found if one.rows]


def _stray(partition: int, is_inside: bool | None, offsets: Integers) -> Stray:
    return Stray(partition, is_inside, len(offsets), tuple(offsets[: SHOWN + 1].tolist()))


class _Finder:
    """Finds, among the windows that are counted in one pass over the files, those to which given offsets belong."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows: dict[int, list[Window]] = {}
        for window in windows:
            self._windows.setdefault(window.coverage.interval.partition, []).append(window)

    @property
    def outlines(self) -> Outlines:
        """Returns the offsets of all windows by partition, as ranges that do not touch."""
        return {
            partition: _touching((window.from_offset, window.until_offset) for window in windows)
            for partition, windows in self._windows.items()
        }

    def wants(self, group: RowGroup) -> bool:
        return any(
            group.may_have(partition, windows[0].from_offset, windows[-1].until_offset)
            for partition, windows in self._windows.items()
        )

    def note(self, page: OffsetPage) -> None:
        """Counts the offsets of a page, all of which lie in windows."""
        windows, offsets = self._windows[page.partition], offsets_in(page.intervals())
        first = max(0, bisect_right([window.from_offset for window in windows], int(offsets[0])) - 1)
        for window in windows[first:]:
            low, high = np.searchsorted(offsets, [window.from_offset, window.until_offset])
            if low < high:
                window.note(offsets[low:high])
            if high == len(offsets):
                return


def _passes(coverages: Sequence[Coverage], window_offsets: int) -> Iterator[list[Window]]:
    windows: list[Window] = []
    room = window_offsets
    for coverage in coverages:
        position = coverage.interval.from_offset
        while position < coverage.interval.until_offset:
            until = min(coverage.interval.until_offset, position + room)
            windows.append(Window(coverage, position, until, np.zeros(until - position, np.uint8)))
            room -= until - position
            position = until
            if room == 0:
                yield windows
                windows, room = [], window_offsets
    if windows:
        yield windows


def _outlines(intervals: Sequence[ClaimedInterval]) -> Outlines:
    """Returns the claimed offsets by partition, as ranges that do not touch."""
    by_partition = groupby(intervals, attrgetter("partition"))
    return {
        partition: _touching((interval.from_offset, interval.until_offset) for interval in mine)
        for partition, mine in by_partition
    }


def _touching(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns rising ranges, those that touch as one."""
    ranges: list[tuple[int, int]] = []
    for low, high in spans:
        if ranges and ranges[-1][1] == low:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    return ranges


def _is_inside(group: RowGroup, outlines: Outlines) -> bool:
    """Returns whether, by its bounds, all rows of a row group have claimed offsets (`outlines`, by partition)."""
    if group.partitions is None or group.offsets is None or group.partitions[0] != group.partitions[1]:
        return False
    first, last = group.offsets
    return any(low <= first and last < high for low, high in outlines.get(group.partitions[0], ()))


def _inside(offsets: Integers, ranges: Sequence[tuple[int, int]]) -> np.typing.NDArray[np.bool_]:
    inside = np.zeros(len(offsets), np.bool_)
    for low, high in ranges:
        inside |= (offsets >= low) & (offsets < high)
    return inside


def stray_findings(intervals: Sequence[ClaimedInterval], rows: Contents, ledger: Ledger) -> Iterator[str]:
    """Yields lines on rows whose offsets no load claims; dead letters are left out, as a load commits them first."""
    counts: Counter[str] = Counter()
    first: dict[str, list[int]] = {}
    for stray in strays(intervals, rows, ledger):
        where = _place(stray, ledger)
        counts[where] += stray.rows
        first.setdefault(where, []).extend(stray.first)
    for where, count in counts.items():
        yield f"{where}: {count} rows: {shown(first[where])}"


def _place(stray: Stray, ledger: Ledger) -> str:
    if stray.is_inside is None:
        return f"partition {stray.partition}, which the ledger doesn't know"
    entry = ledger.partitions[stray.partition]
    if stray.is_inside:
        return f"partition {stray.partition}, of no load"
    return f"partition {stray.partition}, outside the ledger's offsets {entry.start_offset}-{entry.next_offset - 1}"


def coverage_findings(
    coverage: Coverage, tables: Sequence[Contents], rows: Table, damages: Sequence[str]
) -> Iterator[str]:
    """Yields a line for each kind of wrong offsets in an interval: not there, doubled, unexpected or unknown."""
    partition = coverage.interval.partition
    for found, what in (
        (coverage.unexpected, "are there, and gave no record or were erased"),
        (coverage.doubled, "are doubled"),
    ):
        if found.count:
            files = shown(list(_files_with(tables, partition, found.first)))
            yield f"partition {partition}: {_counted(found, what)}, in {files}{_way_on(rows, coverage, found)}"
    if coverage.missing.count and mode_of(rows) is not Mode.UPSERT:
        what = _counted(coverage.missing, "are not there")
        yield f"partition {partition}: {what}{_way_on(rows, coverage, coverage.missing)}"
    if coverage.damaged.count:
        what = _counted(coverage.damaged, "may have given a record or none")
        yield f"partition {partition}: {what}: {shown(damages)}{_way_on(rows, coverage, coverage.damaged)}"


def miscount(coverage: Coverage, rows: Table) -> Iterator[str]:
    """Yields a line where an interval's records and its loads' counts differ, if the history has only counts."""
    interval = coverage.interval
    if not coverage.is_known and coverage.records != interval.records:
        yield (
            f"partition {interval.partition}, offsets {interval.from_offset}-{interval.until_offset - 1}: "
            f"{coverage.records} rows and dead letters, the loads say {interval.records}{not_there([coverage])}"
            f"{way_on(rows, interval.partition, interval.from_offset, interval.until_offset - 1)}"
        )


def not_there(coverages: Sequence[Coverage]) -> str:
    """Returns the end of a finding's line, which names offsets that are not there; "" where there are none."""
    offsets = [
        offset for coverage in coverages for offset in sorted([*coverage.missing.first, *coverage.uncertain.first])
    ]
    return f"; not there: {shown(offsets)}" if offsets else ""


def _counted(found: WrongOffsets, what: str) -> str:
    return f"{found.count} offsets {what}: {shown(found.first)}"


def _way_on(rows: Table, coverage: Coverage, found: WrongOffsets) -> str:
    return way_on(rows, coverage.interval.partition, found.first[0], found.last)


def _files_with(tables: Sequence[Contents], partition: int, offsets: Sequence[int]) -> Iterator[str]:
    """Yields the paths of the files that have one of the given offsets of a partition."""
    for table in tables:
        may_have = (group for group in table.row_groups if any(group.may_have(partition, n, n + 1) for n in offsets))
        has = table.look(partial(_has, partition, offsets), may_have)
        yield from dict.fromkeys(path for path, is_there in has if is_there)


def _has(partition: int, offsets: Sequence[int], reader: Reader, group: RowGroup) -> tuple[str, bool]:
    partitions, there = reader.read(group)
    return group.path, bool(np.isin(there[partitions == partition], offsets).any())


def topic_findings(ledger: Ledger, bootstrap: str, client_config: str | None) -> Iterator[str]:
    """Yields lines on where the ledger and the topic contradict each other; raises ClientError without a broker."""
    source = TopicSource(bootstrap, ledger.topic, Isolation.READ_UNCOMMITTED, SecuritySource(client_config))
    try:
        description = describe_topic(source)
    except UnknownTopicError:
        yield f"topic {ledger.topic} does not exist"
        return
    if description.topic_id != ledger.topic_id:
        yield (
            f"topic {ledger.topic} was deleted and created again: its id is {description.topic_id}, "
            f"the table's {ledger.topic_id}"
        )
        return
    reached = {partition: entry.next_offset for partition, entry in ledger.partitions.items()}
    logs = check_ends(source, log_offsets(source, description.partitions), reached)
    for partition, entry in ledger.partitions.items():
        if partition not in logs:
            yield f"partition {partition}: in the table, but not in the topic"
        elif entry.next_offset > logs[partition].log_end:
            yield (
                f"partition {partition}: the table has offsets up to {entry.next_offset - 1}, "
                f"the topic's log ends at {logs[partition].log_end}"
            )
