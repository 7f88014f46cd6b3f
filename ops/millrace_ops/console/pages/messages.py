"""The message browser: records of a topic by offset or time, searched and decoded, and the live tail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from millrace.config import MAX_INT, MAX_LONG, whole_number
from millrace.errors import InvalidRequestError, OffsetOutOfRangeError
from millrace.records.record import Record
from millrace_ops.console.console import Console
from millrace_ops.console.records import (
    MAX_PARTITIONS,
    NEWEST,
    OFFSET,
    POSITIONS,
    SCANNED_RECORDS,
    TIME,
    Found,
    Matches,
    Read,
    Span,
    Wanted,
    read_logs,
    read_records,
    scan_all,
)
from millrace_ops.console.request import Asked, Page, time_ms
from millrace_ops.console.values import Decoder, Shown, plain_text, shown

LIMITS = (20, 50, 100)
KEY_LENGTH, VALUE_LENGTH, WHOLE_LENGTH, HEADER_LENGTH = 200, 1_000, 200_000, 200
MAX_HEADERS = 20


class RecordRow(NamedTuple):
    """A record as a page shows it."""

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
        wanted = _wanted(asked, topic, partitions)
        read = read_records(cluster, wanted, _matches(asked, console.decoder), console.clock)
    values = {
        "topic": topic,
        "partitions": partitions,
        "wanted": wanted,
        "read": read,
        "rows": [_row(one, console.decoder, VALUE_LENGTH) for one in _in_order(read, wanted)],
        "query": asked.query,
        "limits": LIMITS,
        "links": _links(asked, wanted, read),
        "left_out": len(partitions) - len(wanted.partitions),
        "position_token": _positions_text({one: log.end_offset for one, log in read.logs.items()}),
    }
    return Page("messages.html", values)


def show_record(console: Console, asked: Asked) -> Page:
    """Returns the page of one record, its value as a whole up to WHOLE_LENGTH."""
    topic, partition = asked.need("topic"), _number(asked, "partition", MAX_INT)
    offset = _number(asked, "offset", MAX_LONG)
    wanted = Wanted(topic, [partition], OFFSET, offset, limit=1)
    with console.clusters.lent() as cluster:
        read = read_records(cluster, wanted, None, console.clock)
    found = [one for one in read.found.records if one.record.offset == offset]
    if not found:
        raise OffsetOutOfRangeError(f"{topic}-{partition} has no record at offset {offset}")
    return Page("record.html", {"topic": topic, "row": _row(found[0], console.decoder, WHOLE_LENGTH, is_indented=True)})


def show_tail(console: Console, asked: Asked) -> Page:
    """Returns the records that have come since the positions that the browser has, as a fragment of a page."""
    topic = asked.need("topic")
    positions = _positions(asked.need("from"))
    share = max(1, LIMITS[-1] // len(positions))  # what is left of a partition comes with the next request
    wanted = Wanted(topic, list(positions), OFFSET, limit=share, committed=bool(asked.query.get("committed")))
    with console.clusters.lent() as cluster:
        logs = read_logs(cluster, wanted)
        spans = {one: Span(max(logs[one].start_offset, at), logs[one].end_offset) for one, at in positions.items()}
        found = scan_all(cluster, wanted, spans, _matches(asked, console.decoder), console.clock)
    rows = [_row(one, console.decoder, VALUE_LENGTH) for one in found.records]
    return Page("tail.html", {"topic": topic, "rows": rows, "position_token": _positions_text(found.next_offsets)})


def _in_order(read: Read, wanted: Wanted) -> Iterable[Found]:
    """Returns the records as they are shown: the newest first where the newest are asked for."""
    return reversed(read.found.records) if wanted.position == NEWEST else read.found.records


def _wanted(asked: Asked, topic: str, partitions: list[int]) -> Wanted:
    query = asked.query
    position = query.get("position", NEWEST)
    if position not in POSITIONS:
        raise InvalidRequestError(f"position={position}: expected one of {', '.join(POSITIONS)}")
    value = 0
    if position == OFFSET:
        value = _number(asked, "value", MAX_LONG)
    elif position == TIME:
        value = time_ms(query.get("value", ""))
    chosen = partitions[:MAX_PARTITIONS]
    if query.get("partition"):
        chosen = [_number(asked, "partition", MAX_INT)]
    limit = whole_number(query.get("limit", ""), MAX_INT)
    return Wanted(topic, chosen, position, value, limit if limit in LIMITS else LIMITS[0], bool(query.get("committed")))


def _number(asked: Asked, name: str, largest: int) -> int:
    number = whole_number(asked.query.get(name, "").strip(), largest)
    if number is None:
        raise InvalidRequestError(f"{name}={asked.query.get(name, '')}: expected a number up to {largest}")
    return number


def _matches(asked: Asked, decoder: Decoder | None) -> Matches | None:
    """Returns what looks for the text of a search in key, headers and value, decoded as it is shown."""
    wanted = asked.query.get("search", "").lower()
    if not wanted:
        return None

    def matches(record: Record) -> bool:
        plain = (record.key, record.value, *(value for _, value in record.headers))
        if any(wanted in plain_text(one).lower() for one in plain):
            return True
        if any(wanted in name.lower() for name, _ in record.headers):
            return True
        return decoder is not None and wanted in shown(record.value, WHOLE_LENGTH, decoder).text.lower()

    return matches


def _row(found: Found, decoder: Decoder | None, length: int, *, is_indented: bool = False) -> RecordRow:
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


def _links(asked: Asked, wanted: Wanted, read: Read) -> Mapping[str, str]:
    """Returns the addresses of the records before and after these; only of one partition, which has an order."""
    if len(wanted.partitions) != 1:
        return {"older": "", "newer": ""}
    [partition] = wanted.partitions
    log, start = read.logs[partition], read.starts[partition]
    after = read.found.next_offsets[partition]
    step = SCANNED_RECORDS if asked.query.get("search") else wanted.limit
    return {
        "older": _at(asked, max(log.start_offset, start - step)) if start > log.start_offset else "",
        "newer": _at(asked, after) if after < log.end_offset else "",
    }


def _at(asked: Asked, offset: int) -> str:
    return "?" + urlencode({**asked.query, "position": OFFSET, "value": str(offset)})


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
