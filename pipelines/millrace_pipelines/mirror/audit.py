"""Compares mirrored topics with their sources by content: every record of both sides is read, in step, and compared.

    followed                 the same offsets, byte for byte                         `comparison.by_offset`
    copied                   the same committed records in the same order            `comparison.by_sequence`
    copied, and compacted    the newest record of each key that both must have       `comparison.by_key`

No header, count or progress of the mirror is believed where records can be compared. Its progress only says what is
still to come, which is no difference. An offset map has to say what was found by content.

    source   |····[──────────── compared ────────────)── to come ──|
    target   |····[──────────────────────────────────)── its own, after a switch-over ──|
              └ retention: what either side has deleted is left out

Of a partition a fetch and a window of records of each side are held, so memory is bounded whatever its size. Records
may be deleted meanwhile; a partition in which that happens is compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millrace.client import Cluster
from millrace.client.damaged_batches import is_compacted
from millrace.client.fetched import IsolationLevel
from millrace.config import MAX_LONG
from millrace.errors import BrokerUnreachableError, MillraceError, OffsetOutOfRangeError
from millrace_pipelines.mirror.audited_logs import AuditedLog, OnRead, Progress, end_of_mirroring, read_offset_map
from millrace_pipelines.mirror.comparison.by_key import NewestRecords, Side, compare_by_key, may_lack
from millrace_pipelines.mirror.comparison.by_offset import compare_by_offset
from millrace_pipelines.mirror.comparison.by_sequence import Cut, compare_by_sequence
from millrace_pipelines.mirror.comparison.difference import Difference, Kind
from millrace_pipelines.mirror.comparison.log_reader import LogReader
from millrace_pipelines.mirror.comparison.naming import renamed
from millrace_pipelines.mirror.offset_map import OffsetMap

TRIES = 20  # while retention deletes what is being read, again and again on a busy machine
KEPT = 1000  # differences of a partition; further ones are counted
KEPT_BYTES = 32 << 20  # of their records


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A topic and its mirror.

    Attributes:
        source: The topic's name at the source.
        target: Its name at the target.
        follows: Whether the target has it at the same offsets.
        has_ended: Whether it was switched over: the target may have further records of its own.
        starts: The first mirrored offset of each partition that isn't mirrored from its beginning.
    """

    source: str
    target: str
    follows: bool = False
    has_ended: bool = False
    starts: Mapping[int, int] = field(default_factory=dict)


class Offsets(NamedTuple):
    """The offsets of a log that the audit has compared: from `begin` to before `end`."""

    begin: int = 0
    end: int = 0


NOTHING = Offsets()


@dataclass(slots=True, kw_only=True)
class PartitionAudit:
    """What is found of a partition.

    Attributes:
        records: How many records were found to belong together.
        to_come: How many offsets of the source are not mirrored yet.
        more: How many differences there are beside those that are named.
    """

    topic: MirroredTopic
    partition: int
    source: Offsets = NOTHING
    target: Offsets = NOTHING
    records: int = 0
    to_come: int = 0
    differences: list[Difference] = field(default_factory=list)
    more: int = 0
    _kept_bytes: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    @property
    def count(self) -> int:
        """How many differences there are."""
        return len(self.differences) + self.more

    def add(self, one: Difference) -> None:
        """Adds a difference, which is only counted if there are many."""
        if len(self.differences) >= KEPT:
            self.more += 1
            return
        self._kept_bytes += sum(len(each.value or b"") for each in (one.source, one.target) if each is not None)
        is_kept = self._kept_bytes <= KEPT_BYTES
        self.differences.append(one if is_kept else replace(one, source=None, target=None))


OnProgress = Callable[[MirroredTopic, int, int, Offsets], None]
"""Takes a topic, a partition, the source offset up to which it was read, and those that are to be compared."""


class MirrorAudit:
    """Audits topics that one mirror brings from a source to a target.

    Args:
        source: The source cluster.
        target: The target cluster.
        mirror: The source's name, which the mirror's progress and offset maps have.
        on_progress: Is told how far the source was read.
    """

    def __init__(
        self, source: Cluster, target: Cluster, mirror: str, on_progress: OnProgress = lambda *_: None
    ) -> None:
        self._source, self._target, self._mirror = source, target, mirror
        self._on_progress = on_progress

    def audit(self, topics: Iterable[MirroredTopic]) -> Iterator[PartitionAudit]:
        """Yields what is found of each partition; raises BrokerUnreachableError if a cluster can't be reached."""
        for topic in topics:
            try:
                there = self._source.partition_count(topic.source)
                here = self._target.partition_count(topic.target)
                compacted = self._compacted(topic)
            except BrokerUnreachableError:
                raise
            except MillraceError as error:
                yield PartitionAudit(topic=topic, partition=0, differences=[_unreadable(error)])
                continue
            for partition in range(there):
                if partition < here:
                    yield self._audited(topic, partition, compacted)
                else:
                    lacking = Difference(kind=Kind.MISSING, detail=f"the target has {here} partitions of {there}")
                    yield PartitionAudit(topic=topic, partition=partition, differences=[lacking])

    def _compacted(self, topic: MirroredTopic) -> frozenset[Side]:
        names = ((Side.SOURCE, self._source, topic.source), (Side.TARGET, self._target, topic.target))
        return frozenset(side for side, cluster, name in names if is_compacted(cluster, name))

    def _audited(self, topic: MirroredTopic, partition: int, compacted: frozenset[Side]) -> PartitionAudit:
        compare = self._follow if topic.follows else self._copy
        for _ in range(TRIES):
            report = PartitionAudit(topic=topic, partition=partition)
            try:
                compare(report, compacted)
                break
            except BrokerUnreachableError:
                raise
            except OffsetOutOfRangeError as error:
                failure: MillraceError = error
            except MillraceError as error:
                report.add(_unreadable(error))
                break
        else:
            report.add(_unreadable(failure))
        report.differences = [replace(one, source=None, target=None) for one in report.differences]
        return report

    def _logs(self, report: PartitionAudit, isolation: IsolationLevel) -> tuple[AuditedLog, AuditedLog]:
        return (
            AuditedLog(self._source, report.topic.source, report.partition, isolation),
            AuditedLog(self._target, report.topic.target, report.partition, isolation),
        )

    def _follow(self, report: PartitionAudit, compacted: frozenset[Side]) -> None:
        """Compares a followed log: all of it, or of a compacted one what readers of committed records get."""
        isolation = IsolationLevel.READ_COMMITTED if compacted else IsolationLevel.READ_UNCOMMITTED
        source, target = self._logs(report, isolation)
        here, there = target.offsets(), source.offsets()  # the source's last: it has all that the target has
        begin = max(here.start_offset, there.start_offset, report.topic.starts.get(report.partition, 0))
        mirrored = here.end_offset
        if report.topic.has_ended:
            mirrored = end_of_mirroring(target, here.start_offset, mirrored)
        end = max(min(mirrored, there.end_offset), begin)
        report.source = report.target = Offsets(begin, end)
        report.to_come = max(there.end_offset - max(mirrored, there.start_offset), 0)
        ours = LogReader(source.read(end, self._told(report)), begin, end)
        theirs = LogReader(target.read(end), begin, end)
        found = compare_by_offset(ours, theirs, _Pairs(report, None).take, is_compacted=bool(compacted))
        with ExitStack() as stack:
            newest: NewestRecords | None = None
            for one in found:
                if compacted and one.kind in (Kind.MISSING, Kind.EXTRA):
                    newest = newest or stack.enter_context(self._newest(source, target, begin))
                    if may_lack(newest, one, compacted):
                        continue
                report.add(one)
        if mirrored > max(there.end_offset, begin):
            cut = f"offsets up to {mirrored - 1}; the source ends at {there.end_offset}"
            report.add(Difference(kind=Kind.EXTRA, target_offset=there.end_offset, detail=cut))

    def _newest(self, source: AuditedLog, target: AuditedLog, begin: int) -> NewestRecords:
        """Returns the newest records of both logs' keys, up to where they end now."""
        newest = NewestRecords()
        for side, log in ((Side.SOURCE, source), (Side.TARGET, target)):
            end = log.offsets().end_offset
            newest.take(side, LogReader(log.read(end), begin, end).rest(), MAX_LONG)
        return newest

    def _copy(self, report: PartitionAudit, compacted: frozenset[Side]) -> None:
        """Compares a copied log: its committed records."""
        topic, partition = report.topic, report.partition
        source, target = self._logs(report, IsolationLevel.READ_COMMITTED)
        before = self._progress(report)
        here = target.offsets()
        after, there = self._progress(report), source.offsets()
        mapped = read_offset_map(self._target, self._mirror, topic.source, partition)
        # The starts last, right before the logs are read: retention may delete much while a large map is read.
        here = here._replace(start_offset=target.offsets().start_offset)
        there = there._replace(start_offset=source.offsets().start_offset)
        start = topic.starts.get(partition, 0)
        begin = max(there.start_offset, start)
        end = max(there.end_offset if after is None else min(after, there.end_offset), begin)
        own = mapped.last.target_end if topic.has_ended and mapped and mapped.last else here.end_offset
        pairs = _Pairs(report, mapped)
        report.source, report.target = Offsets(begin, end), Offsets(here.start_offset, own)
        report.to_come = max(there.end_offset - end, 0)
        cut = Cut(source=there.start_offset > start, target=here.start_offset > 0)
        certain = end if before is None else before
        if compacted:
            with NewestRecords() as newest:
                whole = LogReader(source.read(there.end_offset, self._told(report)), begin, there.end_offset)
                newest.take(Side.SOURCE, whole.rest(), certain)
                mirror = LogReader(target.read(here.end_offset), here.start_offset, here.end_offset)
                newest.take(Side.TARGET, mirror.rest(), own)
                for one in compare_by_key(newest, pairs.take, cut):
                    report.add(one)
            return
        read = source.read(end, self._told(report))
        ours, theirs = LogReader(read, begin, end), LogReader(target.read(own), here.start_offset, own)
        at_end: list[Difference] = []  # of the target: its own, unless mirrored records follow
        for one in compare_by_sequence(ours, theirs, pairs.take, cut):
            if topic.has_ended and one.kind is Kind.EXTRA:
                at_end += [one] if len(at_end) < KEPT else []
            elif one.kind is not Kind.MISSING or (one.source_offset or 0) < certain:
                report.add(one)
        for one in at_end:
            if (one.target_offset or 0) < pairs.last_target:
                report.add(one)
        report.differences = renamed(report.differences, LogReader(read, begin, end).rest())

    def _progress(self, report: PartitionAudit) -> int | None:
        return Progress.of(self._target, self._mirror, report.topic.target, report.partition).offset

    def _told(self, report: PartitionAudit) -> OnRead:
        return lambda offset: self._on_progress(report.topic, report.partition, offset, report.source)


class _Pairs:
    """Counts the records that belong together, and checks that the offset map says so too."""

    def __init__(self, report: PartitionAudit, mapped: OffsetMap | None) -> None:
        self._report, self._map = report, mapped
        self._first = next(iter(mapped)).source if mapped else 0
        self.last_target = -1

    def take(self, source: int, target: int, count: int) -> None:
        """Takes records that belong together: their first offsets on both sides, and how many follow one another."""
        self._report.records += count
        self.last_target = target + count - 1
        for step in {0, count - 1} if self._map is not None and source >= self._first else ():
            said = self._map.to_target(source + step) if self._map is not None else None
            if said != target + step:
                self._report.add(
                    Difference(
                        kind=Kind.OFFSET_MAP,
                        source_offset=source + step,
                        target_offset=target + step,
                        detail=f"at {said}",
                    )
                )


def _unreadable(error: MillraceError) -> Difference:
    return Difference(kind=Kind.UNREADABLE, detail=str(error))
