"""The offset map of one partition: which offsets of the source became which offsets of the target. It is pure.

A run is a number of mirrored records whose offsets follow one another on both sides. Between two runs at least one
side has a gap: offsets of markers, of aborted records, and of what compaction has removed.

    source  100 101 102  .  .  105 106  .  .          100 -> 40  102 -> 42  103 -> 43  105 -> 43  107 -> 46
    target   40  41  42        43  44  45(marker)      40 -> 100  43 -> 105  45 -> 107

The offset that a group has committed is that of the next record to read. On the other side it becomes the offset of the
first mirrored record that is not below it, or the end behind the last one: whoever goes on there reads each record that
was not read yet, and none that was.

The runs of one transaction are the value of a record (`encode_runs`), as varints (zig-zag, as in records):

    version = 1 (one byte)   next source offset   number of runs   ( source gap   target gap   length )*

A gap is counted from the end of the run before, and the first one's from 0. The next source offset is that up to which
the source is mirrored once the transaction is committed; what lies between it and the last run are no records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.records.varint import decode_varint, encode_varint

VERSION = 1
RUN_BYTES = 3  # at least: three varints


class OffsetMapError(RecordError):
    """Runs or records of an offset map that can't be right; nothing is translated by them."""


class Run(NamedTuple):
    """Records that follow one another from these offsets on, on both sides."""

    source: int
    target: int
    length: int

    @property
    def source_end(self) -> int:
        """The source's offset behind the last record."""
        return self.source + self.length

    @property
    def target_end(self) -> int:
        """The target's offset behind the last record."""
        return self.target + self.length

    def is_continued_by(self, run: Run) -> bool:
        """Returns whether a run follows this one without a gap on either side."""
        return run.source == self.source_end and run.target == self.target_end


class MappedRuns(NamedTuple):
    """The runs of one transaction in a partition, and the source offset up to which it is mirrored with them."""

    next_source: int
    runs: Sequence[Run]


class OffsetMap:
    """The runs of one partition in their order, 24 bytes each.

    Attributes:
        next_source: The source offset up to which the source is mirrored; 0 as long as nothing is.
    """

    def __init__(self) -> None:
        self.next_source = 0
        self._sources = array("q")
        self._targets = array("q")
        self._counts = array("q")

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Run]:
        return starmap(Run, zip(self._sources, self._targets, self._counts, strict=True))

    @property
    def last(self) -> Run | None:
        """The last run; None in an empty map."""
        return Run(self._sources[-1], self._targets[-1], self._counts[-1]) if self._counts else None

    def add(self, run: Run) -> None:
        """Appends a run, as a part of the last one where it continues that; raises OffsetMapError if it lies below."""
        last = self.last
        if last is not None:
            _check_order(last, run)
        if last is not None and last.is_continued_by(run):
            self._counts[-1] += run.length
        else:
            self._sources.append(run.source)
            self._targets.append(run.target)
            self._counts.append(run.length)
        self.next_source = max(self.next_source, run.source_end)

    def go_on(self, mapped: MappedRuns) -> None:
        """Adds what one transaction has mirrored.

        Where it begins below the end of the map, the source was cut or made once more, and its runs replace those at
        and above their first offsets.
        """
        if mapped.runs:
            self._cut(mapped.runs[0])
        for run in mapped.runs:
            self.add(run)
        self.next_source = mapped.next_source

    def to_target(self, offset: int) -> int | None:
        """Returns where at the target one goes on who has read the source up to `offset`; None in an empty map."""
        return self._across(self._sources, self._targets, offset, None)

    def to_source(self, offset: int) -> int | None:
        """Returns where at the source one goes on who has read the target up to `offset`; None in an empty map."""
        return self._across(self._targets, self._sources, offset, self.next_source)

    def _across(self, here: array[int], there: array[int], offset: int, end: int | None) -> int | None:
        if not here:
            return None
        at = bisect_right(here, offset) - 1
        if at >= 0 and offset < here[at] + self._counts[at]:
            return there[at] + offset - here[at]
        if at + 1 < len(here):
            return there[at + 1]
        return there[-1] + self._counts[-1] if end is None else end

    def _cut(self, first: Run) -> None:
        """Removes what lies at or above the offsets of a run, on either side."""
        while (last := self.last) is not None and (last.source_end > first.source or last.target_end > first.target):
            kept = min(first.source - last.source, first.target - last.target)
            if kept > 0:
                self._counts[-1] = kept
                return
            for column in (self._sources, self._targets, self._counts):
                column.pop()


def encode_runs(mapped: MappedRuns) -> bytes:
    """Returns the runs of a transaction as the value of a record; raises OffsetMapError if they are out of order."""
    _check(mapped)
    parts = [bytes((VERSION,)), encode_varint(mapped.next_source), encode_varint(len(mapped.runs))]
    source = target = 0
    for run in mapped.runs:
        parts += map(encode_varint, (run.source - source, run.target - target, run.length))
        source, target = run.source_end, run.target_end
    return b"".join(parts)


def decode_runs(value: bytes) -> MappedRuns:
    """Returns the runs of such a value; raises RecordError for anything that `encode_runs` does not make."""
    if value[:1] != bytes((VERSION,)):
        raise OffsetMapError(f"version {value[0] if value else 'none'} of an offset map is unknown: {VERSION} is known")
    next_source, position = decode_varint(value, 1)
    count, position = decode_varint(value, position)
    if not 0 <= count <= (len(value) - position) // RUN_BYTES:
        raise OffsetMapError(f"{count} runs are announced, for which {len(value) - position} bytes are too few")
    runs: list[Run] = []
    source = target = 0
    for _ in range(count):
        source_gap, position = decode_varint(value, position)
        target_gap, position = decode_varint(value, position)
        length, position = decode_varint(value, position)
        runs.append(Run(source + source_gap, target + target_gap, length))
        source, target = runs[-1].source_end, runs[-1].target_end
    if position != len(value):
        raise OffsetMapError(f"{len(value) - position} bytes are left behind the last run")
    mapped = MappedRuns(next_source, runs)
    _check(mapped)
    return mapped


def joined(runs: Iterable[Run]) -> list[Run]:
    """Returns these runs with those as one that continue each other."""
    found = OffsetMap()
    for run in runs:
        found.add(run)
    return list(found)


def _check(mapped: MappedRuns) -> None:
    for run in mapped.runs:
        if min(run.source, run.target) < 0 or run.length < 1 or max(run.source_end, run.target_end) > MAX_LONG:
            raise OffsetMapError(f"{run}: a log has no such offsets")
    for before, run in pairwise(mapped.runs):
        _check_order(before, run)
    end = mapped.runs[-1].source_end if mapped.runs else 0
    if not end <= mapped.next_source <= MAX_LONG:
        raise OffsetMapError(f"the next source offset is {mapped.next_source}, and the last run ends at {end}")


def _check_order(before: Run, run: Run) -> None:
    if run.source < before.source_end or run.target < before.target_end:
        raise OffsetMapError(f"{run} begins below the end of {before}")
