"""Compares by content what was mirrored since a former comparison: a bounded number of offsets of each partition.

    source   |────── compared before ──────[·· left out ··[──── compared, at most LIMIT offsets ────)── to come ──|

It compares as the whole audit does. A copied partition begins and ends at the target where its offset map says, and
what the map says of the records between is compared, too. What is compacted and copied is read as a whole, since its
records are compared by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from millrace.client import Cluster
from millrace.client.damaged_batches import is_compacted
from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError
from millrace_pipelines.mirror.audit import MirrorAudit, MirroredTopic, Offsets, PartitionAudit
from millrace_pipelines.mirror.audited_logs import AuditedLog, Progress, read_offset_map
from millrace_pipelines.mirror.comparison.by_sequence import compare_by_sequence
from millrace_pipelines.mirror.comparison.difference import Difference, Kind
from millrace_pipelines.mirror.comparison.log_reader import LogReader
from millrace_pipelines.mirror.offset_map import OffsetMap, Run

LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestAudit:
    """Compares the newest part of topics that one mirror brings from a source to a target.

    Attributes:
        source: The source cluster.
        target: The target cluster.
        mirror: The source's name.
        limit: How many offsets of a partition are compared at most: the newest ones.
    """

    source: Cluster
    target: Cluster
    mirror: str
    limit: int = LIMIT

    def audit(self, topic: MirroredTopic, since: Mapping[int, int]) -> Iterator[PartitionAudit]:
        """Yields what is found of each partition; `since` has the source offsets up to which they were compared.

        Raises BrokerUnreachableError or another ClientError where a cluster does not answer.
        """
        if not topic.follows and (is_compacted(self.source, topic.source) or is_compacted(self.target, topic.target)):
            yield from MirrorAudit(self.source, self.target, self.mirror).audit([topic])
            return
        starts = {
            partition: self._start(topic, partition, since.get(partition, 0))
            for partition in range(self.source.partition_count(topic.source))
        }
        if topic.follows:
            yield from MirrorAudit(self.source, self.target, self.mirror).audit([replace(topic, starts=starts)])
            return
        there = self.target.partition_count(topic.target)
        for partition, start in starts.items():
            yield self._copied(topic, partition, start) if partition < there else _lacking(topic, partition, there)

    def _start(self, topic: MirroredTopic, partition: int, since: int) -> int:
        """Returns the source offset from which a partition is compared."""
        if topic.follows:
            mirrored = self._log(self.target, topic.target, partition).offsets().end_offset
        else:
            mirrored = self._progress(topic, partition)
        return max(since, topic.starts.get(partition, 0), mirrored - self.limit)

    def _copied(self, topic: MirroredTopic, partition: int, start: int) -> PartitionAudit:
        report = PartitionAudit(topic=topic, partition=partition)
        try:
            self._compare(report, start)
        except MillraceError as error:
            report.add(Difference(kind=Kind.UNREADABLE, detail=str(error)))
        report.differences = [replace(one, source=None, target=None) for one in report.differences]
        return report

    def _compare(self, report: PartitionAudit, start: int) -> None:
        topic, partition = report.topic, report.partition
        source = self._log(self.source, topic.source, partition)
        target = self._log(self.target, topic.target, partition)
        end = self._progress(topic, partition)
        mapped = read_offset_map(self.target, self.mirror, topic.source, partition)
        there, here = source.offsets(), target.offsets()
        report.to_come = max(there.end_offset - end, 0)
        report.source = report.target = Offsets(end, end)
        if mapped is None:  # the target has no record of it, or none any more
            return
        kept = mapped.to_source(here.start_offset) or 0  # what the target has deleted is left out
        begin = min(max(start, there.start_offset, kept), end)
        own_begin, own_end = (max(behind(mapped, offset), here.start_offset) for offset in (begin, end))
        report.source, report.target = Offsets(begin, end), Offsets(own_begin, own_end)

        def take(source_offset: int, target_offset: int, count: int) -> None:
            report.records += count
            for step in {0, count - 1}:
                said = mapped.to_target(source_offset + step)
                if said != target_offset + step:
                    report.add(
                        Difference(
                            kind=Kind.OFFSET_MAP,
                            source_offset=source_offset + step,
                            target_offset=target_offset + step,
                            detail=f"at {said}",
                        )
                    )

        ours, theirs = LogReader(source.read(end), begin, end), LogReader(target.read(own_end), own_begin, own_end)
        for one in compare_by_sequence(ours, theirs, take):
            report.add(one)

    def _progress(self, topic: MirroredTopic, partition: int) -> int:
        return Progress.of(self.target, self.mirror, topic.target, partition).offset or 0

    def _log(self, cluster: Cluster, topic: str, partition: int) -> AuditedLog:
        return AuditedLog(cluster, topic, partition, IsolationLevel.READ_COMMITTED)


def behind(mapped: OffsetMap, offset: int) -> int:
    """Returns the target offset behind the last mirrored record below a source offset; 0 where there is none.

    So records that nobody mirrored, and that stand before the next mirrored one, are compared with it.
    """
    last: Run | None = None
    for run in mapped:
        if run.source >= offset:
            break
        last = run
    return 0 if last is None else last.target + min(last.length, offset - last.source)


def _lacking(topic: MirroredTopic, partition: int, there: int) -> PartitionAudit:
    lacking = Difference(kind=Kind.MISSING, detail=f"the target has {there} partitions")
    return PartitionAudit(topic=topic, partition=partition, differences=[lacking])
