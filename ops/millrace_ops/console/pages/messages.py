"""The message browser: records of a topic by offset or time, searched and decoded, and the live tail.

    newest                  the last records: each partition is read from so many offsets before its end
    oldest, offset, time    from there on
    positions               from the offset of each partition that was pasted (`positions`)

Records of several partitions are put in the order of their times. A read ends with the last record that is shown, or
after SCANNED_RECORDS, SCANNED_BYTES or SCANNED_S, which partitions share. The result has the next offset of each one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from millrace.client import Cluster, FetchedData, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.clock import Clock
from millrace.config import MAX_INT, MAX_LONG, whole_number
from millrace.errors import InvalidRequestError, MillraceError, OffsetOutOfRangeError
from millrace.records.intervals import Interval
from millrace.records.record import Record
from millrace_ops.console.console import Console
from millrace_ops.console.pages.field_search import all_hold, parse_conditions
from millrace_ops.console.pages.positions import parse_positions
from millrace_ops.console.request import Asked, Page, time_ms
from millrace_ops.record_values.shown import Decoder, Shown, decoded, plain_text, shown

FETCH_BYTES = 1 << 20
SCANNED_RECORDS = 50_000
SCANNED_BYTES = 32 << 20
SCANNED_S = 3.0
MAX_PARTITIONS = 64  # that are read together
NEWEST, OLDEST, OFFSET, TIME, PASTED = "newest", "oldest", "offset", "time", "positions"
POSITIONS = (NEWEST, OLDEST, OFFSET, TIME, PASTED)

Matches = Callable[[Record], bool]


class RecordQuery(NamedTuple):
    """The records that a page asks for; `value` is the offset or the time in ms at which `position` begins.

    `pasted` has the offset of each partition where positions were pasted.
    """

    topic: str
    partitions: Sequence[int]
    position: str = NEWEST
    value: int = 0
    limit: int = 50
    committed: bool = False
    pasted: Mapping[int, int] = {}

    @property
    def isolation(self) -> IsolationLevel:
        """Returns the isolation level that the query asks for."""
        return IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED


class FoundRecord(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record


class Scanned(NamedTuple):
    """Records found, by offset or time; each partition's next offset to read; how many records were looked at."""

    records: Sequence[FoundRecord]
    next_offsets: Mapping[int, int]
    looked_at: int


class Read(NamedTuple):
    """The records found, the bounds of each partition's log, and the offset from which each was read."""

    found: Scanned
    logs: Mapping[int, LogOffsets]
    starts: Mapping[int, int]


@dataclass(slots=True)
class Budget:
    """The numbers of records, bytes and seconds that a search may still use."""

    records: int
    bytes: int
    until_s: float
    clock: Clock

    @classmethod
    def new(cls, clock: Clock, partitions: int, seconds: float = SCANNED_S) -> Budget:
        """Returns one partition's budget, where `partitions` of them share what a search may use."""
        share = max(1, partitions)
        return cls(SCANNED_RECORDS // share, SCANNED_BYTES // share, clock.monotonic_s() + seconds / share, clock)

    @property
    def is_spent(self) -> bool:
        """Returns whether no further record may be looked at: records or time are used up."""
        return self.records <= 0 or self.clock.monotonic_s() >= self.until_s

    @property
    def is_left(self) -> bool:
        """Returns whether another fetch may be sent: neither bytes, records nor time are used up."""
        return self.bytes > 0 and not self.is_spent


class Spans(NamedTuple):
    """The bounds of each partition's log, and the offsets that a query reads of it."""

    logs: Mapping[int, LogOffsets]
    spans: Mapping[int, Interval]


def read_spans(cluster: Cluster, wanted: RecordQuery, *, looks_back: bool) -> Spans:
    """Returns which offsets a query reads; with `looks_back` the newest records begin further back."""
    logs = read_logs(cluster, wanted)
    consumer = SimpleConsumer(cluster)
    starts = {one: _start(consumer, wanted, one, log, looks_back=looks_back) for one, log in logs.items()}
    return Spans(logs, {one: Interval(starts[one], log.end_offset) for one, log in logs.items()})


def read_records(cluster: Cluster, wanted: RecordQuery, matches: Matches | None, clock: Clock) -> Read:
    """Returns the records that a query finds; raises the error of a partition that can't be read."""
    logs, spans = read_spans(cluster, wanted, looks_back=matches is not None)
    found = scan_all(cluster, wanted, spans, matches, clock)
    records = found.records[-wanted.limit :] if wanted.position == NEWEST else found.records[: wanted.limit]
    return Read(found._replace(records=records), logs, {one: span.from_offset for one, span in spans.items()})


def scan_all(
    cluster: Cluster, wanted: RecordQuery, spans: Mapping[int, Interval], matches: Matches | None, clock: Clock
) -> Scanned:
    """Returns the matching records in these offset ranges, at most as many of each partition as are wanted."""
    consumer = SimpleConsumer(cluster)
    found: list[FoundRecord] = []
    next_offsets: dict[int, int] = {}
    looked_at = 0
    for partition, span in spans.items():

        def fetch(offset: int, partition: int = partition) -> FetchedData:
            return consumer.fetch(wanted.topic, partition, offset, max_bytes=FETCH_BYTES, isolation=wanted.isolation)

        budget = Budget.new(clock, len(spans))
        before = budget.records
        records, next_offsets[partition] = scan(fetch, wanted, span, budget, matches)
        looked_at += before - budget.records
        found += [FoundRecord(partition, one) for one in records]
    if len(spans) > 1:
        found.sort(key=lambda one: (one.record.timestamp_ms, one.partition, one.record.offset))
    return Scanned(found, next_offsets, looked_at)


def scan(
    fetch: Callable[[int], FetchedData], wanted: RecordQuery, span: Interval, budget: Budget, matches: Matches | None
) -> tuple[Iterable[Record], int]:
    """Returns the matching records in the range `span` of one partition, and the offset after the last one read."""
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


def read_logs(cluster: Cluster, wanted: RecordQuery) -> dict[int, LogOffsets]:
    """Returns start and end offsets of the partitions; raises the error of one whose leader does not tell them."""
    partitions = [(wanted.topic, one) for one in wanted.partitions]
    logs: dict[int, LogOffsets] = {}
    for (_, partition), log in read_log_offsets(cluster, partitions, wanted.isolation).items():
        if isinstance(log, MillraceError):
            raise log
        logs[partition] = log
    return logs


def _start(consumer: SimpleConsumer, wanted: RecordQuery, partition: int, log: LogOffsets, *, looks_back: bool) -> int:
    start = log.start_offset
    if wanted.position == NEWEST:
        start = log.end_offset - (SCANNED_RECORDS // len(wanted.partitions) if looks_back else wanted.limit)
    elif wanted.position == OFFSET:
        start = wanted.value
    elif wanted.position == PASTED:
        start = wanted.pasted[partition]
    elif wanted.position == TIME:
        at_time = consumer.offset_for_time(wanted.topic, partition, wanted.value)
        start = log.end_offset if at_time is None else at_time
    return max(log.start_offset, min(start, log.end_offset))


LIMITS = (20, 50, 100)
KEY_LENGTH, VALUE_LENGTH, WHOLE_LENGTH, HEADER_LENGTH = 200, 1_000, 200_000, 200
MAX_HEADERS = 20


class RecordRow(NamedTuple):
    """A record with its key, value and first headers as a page shows them, and the number of further headers."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]
    more_headers: int


def show_messages(console: Console, asked: Asked) -> Page:
    """Returns the page of a topic's records."""
    topic = asked.need("topic")
    with console.clusters.lent() as cluster:
        partitions = list(cluster.metadata([topic]).topic(topic).partitions)
        wanted = wanted_records(asked, topic, partitions)
        read = read_records(cluster, wanted, search_of(asked, console.decoder), console.clock)
    found = read.found.records  # the oldest first
    values = {
        "topic": topic,
        "partitions": partitions,
        "wanted": wanted,
        "read": read,
        "rows": [_row(one, console.decoder, VALUE_LENGTH) for one in found[:: -1 if wanted.position == NEWEST else 1]],
        "query": asked.query,
        "limits": LIMITS,
        "links": _links(asked, wanted, read),
        "has_conditions": parse_conditions(asked.query.get("search", "")) is not None,
        "bounds": {"records": SCANNED_RECORDS, "bytes": SCANNED_BYTES},
        "left_out": len(partitions) - len(wanted.partitions),
        "position_token": _positions_text({one: log.end_offset for one, log in read.logs.items()}),
    }
    return Page("messages.html", values)


def show_record(console: Console, asked: Asked) -> Page:
    """Returns the page of one record, its value as a whole up to WHOLE_LENGTH."""
    topic, partition = asked.need("topic"), _number(asked, "partition", MAX_INT)
    offset = _number(asked, "offset", MAX_LONG)
    wanted = RecordQuery(topic, [partition], OFFSET, offset, limit=1)
    with console.clusters.lent() as cluster:
        read = read_records(cluster, wanted, None, console.clock)
    found = [one for one in read.found.records if one.record.offset == offset]
    if not found:
        raise OffsetOutOfRangeError(f"{topic}-{partition} has no record at offset {offset}")
    return Page("record.html", {"topic": topic, "row": _row(found[0], console.decoder, WHOLE_LENGTH, is_indented=True)})


def show_tail(console: Console, asked: Asked) -> Page:
    """Returns, as a fragment of a page, the records after the offsets that the browser sends."""
    topic = asked.need("topic")
    positions = _positions(asked.need("from"))
    share = max(1, LIMITS[-1] // len(positions))  # what is left of a partition comes with the next request
    wanted = RecordQuery(topic, list(positions), OFFSET, limit=share, committed=bool(asked.query.get("committed")))
    with console.clusters.lent() as cluster:
        logs = read_logs(cluster, wanted)
        spans = {one: Interval(max(logs[one].start_offset, at), logs[one].end_offset) for one, at in positions.items()}
        found = scan_all(cluster, wanted, spans, search_of(asked, console.decoder), console.clock)
    rows = [_row(one, console.decoder, VALUE_LENGTH) for one in found.records]
    return Page("tail.html", {"topic": topic, "rows": rows, "position_token": _positions_text(found.next_offsets)})


def wanted_records(asked: Asked, topic: str, partitions: list[int]) -> RecordQuery:
    """Returns the records that a request asks for; raises InvalidRequestError where its fields make no sense.

    Pasted positions say from where on, whatever else is chosen.
    """
    query = asked.query
    position = query.get("position", NEWEST)
    if position not in POSITIONS:
        raise InvalidRequestError(f"position={position}: expected one of {', '.join(POSITIONS)}")
    limit = whole_number(query.get("limit", ""), MAX_INT)
    limit, committed = limit if limit in LIMITS else LIMITS[0], bool(query.get("committed"))
    if (pasted := parse_positions(query.get("value", ""), topic)) is not None:
        return RecordQuery(topic, list(pasted), PASTED, 0, limit, committed, pasted)
    if position == PASTED:
        raise InvalidRequestError(f"{query.get('value', '')!r}: expected positions such as {topic}-0@1234")
    value = 0
    if position == OFFSET:
        value = _number(asked, "value", MAX_LONG)
    elif position == TIME:
        value = time_ms(query.get("value", ""))
    chosen = partitions[:MAX_PARTITIONS]
    if query.get("partition"):
        chosen = [_number(asked, "partition", MAX_INT)]
    return RecordQuery(topic, chosen, position, value, limit, committed)


def _number(asked: Asked, name: str, largest: int) -> int:
    number = whole_number(asked.query.get(name, "").strip(), largest)
    if number is None:
        raise InvalidRequestError(f"{name}={asked.query.get(name, '')}: expected a number up to {largest}")
    return number


def search_of(asked: Asked, decoder: Decoder | None) -> Matches | None:
    """Returns a test for the search text in key, headers and value, also as decoded; None without a text.

    A text that consists of conditions on fields is also found where these hold.
    """
    wanted = asked.query.get("search", "").strip().lower()
    if not wanted:
        return None
    conditions = parse_conditions(asked.query["search"])

    def matches(record: Record) -> bool:
        if conditions is not None and all_hold(conditions, decoded(record.value, decoder)):
            return True
        plain = (record.key, record.value, *(value for _, value in record.headers))
        if any(wanted in plain_text(one).lower() for one in plain):
            return True
        if any(wanted in name.lower() for name, _ in record.headers):
            return True
        return decoder is not None and wanted in shown(record.value, WHOLE_LENGTH, decoder).text.lower()

    return matches


def _row(found: FoundRecord, decoder: Decoder | None, length: int, *, is_indented: bool = False) -> RecordRow:
    record = found.record
    headers = [(name[:HEADER_LENGTH], shown(value, HEADER_LENGTH)) for name, value in record.headers[:MAX_HEADERS]]
    return RecordRow(
        found.partition,
        record.offset,
        record.timestamp_ms,
        shown(record.key, KEY_LENGTH, decoder),
        shown(record.value, length, decoder, is_indented=is_indented),
        headers,
        max(0, len(record.headers) - MAX_HEADERS),
    )


def _links(asked: Asked, wanted: RecordQuery, read: Read) -> Mapping[str, str]:
    """Returns links to the records before and after these, where one partition alone is shown."""
    if len(wanted.partitions) != 1:
        return {"older": "", "newer": ""}
    [partition] = wanted.partitions
    log, start = read.logs[partition], read.starts[partition]
    after = read.found.next_offsets[partition]
    step = SCANNED_RECORDS if asked.query.get("search") else wanted.limit
    return {
        "older": _at(asked, partition, max(log.start_offset, start - step)) if start > log.start_offset else "",
        "newer": _at(asked, partition, after) if after < log.end_offset else "",
    }


def _at(asked: Asked, partition: int, offset: int) -> str:
    return "?" + urlencode({**asked.query, "partition": str(partition), "position": OFFSET, "value": str(offset)})


def _positions_text(positions: Mapping[int, int]) -> str:
    return json.dumps(sorted(positions.items()), separators=(",", ":"))


def _positions(text: str) -> dict[int, int]:
    try:
        found = dict(_pairs(json.loads(text)))
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequestError("from=…: no positions of partitions") from None
    if not 0 < len(found) <= MAX_PARTITIONS:
        raise InvalidRequestError(f"from=…: positions of 1 to {MAX_PARTITIONS} partitions are expected")
    return found


def _pairs(rows: Iterable[object]) -> Iterable[tuple[int, int]]:
    for row in rows:
        match row:
            case [int(partition), int(offset)] if 0 <= partition <= MAX_INT and 0 <= offset <= MAX_LONG:
                yield partition, offset
            case _:
                raise ValueError
