"""Lines of an audit: which rows are there and should not be, which are not there, and how the topic differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from millrace.errors import UnknownTopicError
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource, check_ends, describe_topic, log_offsets
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.contents import Contents, Integers, RowGroup, shown, way_on
from millrace_pipelines.warehouse.completeness.tally import SHOWN, ClaimedInterval, Coverage, WrongOffsets, strays
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.tables.open import mode_of


def stray_findings(intervals: Sequence[ClaimedInterval], rows: Contents, ledger: Ledger) -> Iterator[str]:
    """Yields lines on rows whose offsets no load claims; dead letters are left out, as a load commits them first."""
    counts: Counter[str] = Counter()
    first: dict[str, list[int]] = {}
    for partition, offsets in strays(intervals, rows):
        for where, some in _located(partition, offsets, ledger):
            counts[where] += len(some)
            first.setdefault(where, []).extend(int(offset) for offset in some[:SHOWN])
    for where, count in counts.items():
        yield f"{where}: {count} rows: {shown(first[where])}"


def _located(partition: int, offsets: Integers, ledger: Ledger) -> Iterator[tuple[str, Integers]]:
    entry = ledger.partitions.get(partition)
    if entry is None:
        yield f"partition {partition}, which the ledger doesn't know", offsets
        return
    inside = (offsets >= entry.start_offset) & (offsets < entry.next_offset)
    outside = f"partition {partition}, outside the ledger's offsets {entry.start_offset}-{entry.next_offset - 1}"
    for where, some in ((outside, offsets[~inside]), (f"partition {partition}, of no load", offsets[inside])):
        if len(some):
            yield where, some


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
        may_have = [group for group in table.row_groups if any(group.may_have(partition, n, n + 1) for n in offsets)]
        for path, groups in groupby(may_have, attrgetter("path")):
            if any(_has(table, group, partition, offsets) for group in groups):
                yield path


def _has(table: Contents, group: RowGroup, partition: int, offsets: Sequence[int]) -> bool:
    partitions, there = table.read(group)
    return bool(np.isin(there[partitions == partition], offsets).any())


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
