"""Reads records of a topic for a page: from a position on, up to a limit, and only those that match a search.

    newest                  the last records: each partition is read from so many offsets before its end
    oldest, offset, time    from there on

Records of several partitions are put in the order of their times. A read ends with the last record that is shown, or
after SCANNED_RECORDS, SCANNED_BYTES or SCANNED_S, which partitions share. The result has the next offset of each one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.client import Cluster, FetchedData, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.records.record import Record

FETCH_BYTES = 1 << 20
SCANNED_RECORDS = 50_000
SCANNED_BYTES = 32 << 20
SCANNED_S = 3.0
MAX_PARTITIONS = 64  # that are read together
NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
POSITIONS = (NEWEST, OLDEST, OFFSET, TIME)

Matches = Callable[[Record], bool]


class Wanted(NamedTuple):
    """What is to be read; `value` is the offset, or the time in ms."""

    topic: str
    partitions: Sequence[int]
    position: str = NEWEST
    value: int = 0
    limit: int = 50
    committed: bool = False

    @property
    def isolation(self) -> IsolationLevel:
        """Which records of transactions are read."""
        return IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED


class Found(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record


class Span(NamedTuple):
    """Offsets of a partition, `end` not included."""

    start: int
    end: int


class Scanned(NamedTuple):
    """Records in the order of offsets, or of times; the next offset of each partition; how many were looked at."""

    records: Sequence[Found]
    next_offsets: Mapping[int, int]
    looked_at: int


class Read(NamedTuple):
    """What was found; where each partition starts and ends, and from where on it was read."""

    found: Scanned
    logs: Mapping[int, LogOffsets]
    starts: Mapping[int, int]


@dataclass(slots=True)
class Budget:
    """How many records, bytes and seconds a read may still use."""

    records: int
    bytes: int
    until_s: float
    clock: Clock

    @classmethod
    def new(cls, clock: Clock, partitions: int) -> Budget:
        """Returns the budget of one partition, where `partitions` of them share the bounds of a read."""
        share = max(1, partitions)
        return cls(SCANNED_RECORDS // share, SCANNED_BYTES // share, clock.monotonic_s() + SCANNED_S / share, clock)

    @property
    def is_spent(self) -> bool:
        """Returns whether no further record may be looked at: records or time are used up."""
        return self.records <= 0 or self.clock.monotonic_s() >= self.until_s

    @property
    def is_left(self) -> bool:
        """Returns whether another fetch may be sent: neither bytes, records nor time are used up."""
        return self.bytes > 0 and not self.is_spent


def read_records(cluster: Cluster, wanted: Wanted, matches: Matches | None, clock: Clock) -> Read:
    """Returns the records that match; raises the error of a partition that can't be read."""
    logs = read_logs(cluster, wanted)
    consumer = SimpleConsumer(cluster)
    looks_back = matches is not None
    starts = {one: _start(consumer, wanted, one, log, looks_back=looks_back) for one, log in logs.items()}
    spans = {one: Span(starts[one], log.end_offset) for one, log in logs.items()}
    found = scan_all(cluster, wanted, spans, matches, clock)
    records = found.records[-wanted.limit :] if wanted.position == NEWEST else found.records[: wanted.limit]
    return Read(found._replace(records=records), logs, starts)


def scan_all(
    cluster: Cluster, wanted: Wanted, spans: Mapping[int, Span], matches: Matches | None, clock: Clock
) -> Scanned:
    """Returns the records that match in these spans of partitions, of each at most as many as are wanted."""
    consumer = SimpleConsumer(cluster)
    found: list[Found] = []
    next_offsets: dict[int, int] = {}
    looked_at = 0
    for partition, span in spans.items():

        def fetch(offset: int, partition: int = partition) -> FetchedData:
            return consumer.fetch(wanted.topic, partition, offset, max_bytes=FETCH_BYTES, isolation=wanted.isolation)

        budget = Budget.new(clock, len(spans))
        before = budget.records
        records, next_offsets[partition] = scan(fetch, wanted, span, budget, matches)
        looked_at += before - budget.records
        found += [Found(partition, one) for one in records]
    if len(spans) > 1:
        found.sort(key=lambda one: (one.record.timestamp_ms, one.partition, one.record.offset))
    return Scanned(found, next_offsets, looked_at)


def scan(
    fetch: Callable[[int], FetchedData], wanted: Wanted, span: Span, budget: Budget, matches: Matches | None
) -> tuple[Iterable[Record], int]:
    """Returns what is found in a span of a partition, and the offset after what was looked at."""
    is_newest = wanted.position == NEWEST
    found: deque[Record] = deque(maxlen=wanted.limit if is_newest else None)
    offset, end = span
    while offset < end and budget.is_left:
        fetched = fetch(offset)
        if not fetched.records:
            break
        budget.bytes -= len(fetched.records)
        for batch in fetched.batches():
            for record in batch.records():
                if not offset <= record.offset < end:
                    continue
                budget.records -= 1
                if matches is None or matches(record):
                    found.append(record)
                is_full = len(found) == wanted.limit and not is_newest
                if is_full or budget.is_spent:
                    return found, record.offset + 1
            offset = batch.header.next_offset
    return found, min(offset, end)


def read_logs(cluster: Cluster, wanted: Wanted) -> dict[int, LogOffsets]:
    """Returns the start and end offsets of the partitions; raises the error of one for which they are not known."""
    partitions = [(wanted.topic, one) for one in wanted.partitions]
    logs: dict[int, LogOffsets] = {}
    for (_, partition), log in read_log_offsets(cluster, partitions, wanted.isolation).items():
        if isinstance(log, MillraceError):
            raise log
        logs[partition] = log
    return logs


def _start(consumer: SimpleConsumer, wanted: Wanted, partition: int, log: LogOffsets, *, looks_back: bool) -> int:
    """Returns the offset from which a partition is read; a search among the newest records begins further back."""
    start = log.start_offset
    if wanted.position == NEWEST:
        start = log.end_offset - (SCANNED_RECORDS // len(wanted.partitions) if looks_back else wanted.limit)
    elif wanted.position == OFFSET:
        start = wanted.value
    elif wanted.position == TIME:
        at_time = consumer.offset_for_time(wanted.topic, partition, wanted.value)
        start = log.end_offset if at_time is None else at_time
    return max(log.start_offset, min(start, log.end_offset))
