"""`millrace consume`: a topic's records on stdout.

Partitions are read in turn, each in the order of its offsets. To the end means: to where each partition ended
when the command began. Output is flushed after each fetch; a reader that goes away ends the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from millrace_ops.cli.output import json_bytes

if TYPE_CHECKING:
    from millrace.client import Cluster, SimpleConsumer
    from millrace.records.record import Record

FOLLOW_WAIT_MS = 500
NULL = b"null"


class Format(NamedTuple):
    """How a record is written."""

    as_json: bool
    print_key: bool
    print_headers: bool


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    start: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest|OFFSET|TIME", help="Where to begin; TIME is ISO 8601, or UTC."),
    ] = "earliest",
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this one; repeatable.")] = None,
    max_messages: Annotated[int | None, typer.Option(min=0, help="Stop after so many.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--until-end", help="Wait for more, or stop where the topic ends now.")
    ] = False,
    as_json: Json = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="Key and a tab before the value.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="Headers and a tab before that.")] = False,
) -> None:
    """Print a topic's records.

    Values are written as they are, one a line; with --json a record is one JSON object a line.
    """
    from millrace.client import Cluster

    shape = Format(as_json, print_key, print_headers)
    try:
        with Cluster(bootstrap) as cluster:
            chunks = _chunks(cluster, topic, start, partition, follow)
            _print_records(topic, chunks, max_messages, shape)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if not follow:
            raise


def parse_start(text: str, option: str = "--from") -> str | int | datetime:
    """`earliest`, `latest`, an offset, or a time (UTC unless it says otherwise); InvalidConfigError for the rest."""
    from millrace.config import MAX_LONG, whole_number
    from millrace.errors import InvalidConfigError

    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdecimal():
        if (offset := whole_number(text, MAX_LONG)) is None:
            raise InvalidConfigError(f"{option} {text}: an offset is at most {MAX_LONG}")
        return offset
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidConfigError(f"{option} {text}: expected earliest, latest, an offset or an ISO 8601 time") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def format_record(topic: str, partition: int, record: Record, shape: Format) -> bytes:
    """One record as it goes to stdout, its line end included."""
    if shape.as_json:
        return _json_line(topic, partition, record)
    parts: list[bytes] = []
    if shape.print_headers:
        parts.append(b",".join(name.encode() + b"=" + _shown(value) for name, value in record.headers))
    if shape.print_key:
        parts.append(_shown(record.key))
    return b"\t".join((*parts, _shown(record.value))) + b"\n"


def _chunks(
    cluster: Cluster, topic: str, start: str, partitions: list[int] | None, follow: bool
) -> Iterator[list[tuple[int, Record]]]:
    from millrace.client import SimpleConsumer

    consumer = SimpleConsumer(cluster)
    chosen = partitions or list(cluster.metadata([topic]).topic(topic).partitions)
    begin = parse_start(start)
    ends = None if follow else {one: consumer.latest(topic, one) for one in chosen}
    offsets = {one: first_offset(consumer, topic, one, begin) for one in chosen}
    return read_chunks(consumer, topic, offsets, ends)


def read_chunks(
    consumer: SimpleConsumer, topic: str, offsets: Mapping[int, int], ends: Mapping[int, int] | None
) -> Iterator[list[tuple[int, Record]]]:
    """Yield the records of each fetch with their partition, up to `ends`, or for ever where there are none."""
    from millrace.records.batch import walk
    from millrace.records.record import decode_records

    positions = {one: offset for one, offset in offsets.items() if ends is None or offset != ends[one]}
    wait_ms = 0
    while positions:
        found = False
        for partition, offset in list(positions.items()):
            data = consumer.fetch(topic, partition, offset, max_wait_ms=wait_ms)
            limit = sys.maxsize if ends is None else ends[partition]
            chunk = [(partition, one) for one in decode_records(data.records) if offset <= one.offset < limit]
            positions[partition] = max((header.next_offset for _, header in walk(data.records)), default=offset)
            found = found or positions[partition] > offset
            if positions[partition] >= limit:
                del positions[partition]
            yield chunk
        wait_ms = 0 if found else FOLLOW_WAIT_MS // max(len(positions), 1)


def first_offset(consumer: SimpleConsumer, topic: str, partition: int, begin: str | int | datetime) -> int:
    """The offset that a start means in a partition."""
    if isinstance(begin, int):
        return begin
    if isinstance(begin, datetime):
        found = consumer.offset_for_time(topic, partition, int(begin.timestamp() * 1000))
        return consumer.latest(topic, partition) if found is None else found
    return consumer.earliest(topic, partition) if begin == "earliest" else consumer.latest(topic, partition)


def _print_records(
    topic: str, chunks: Iterator[list[tuple[int, Record]]], max_messages: int | None, shape: Format
) -> None:
    remaining = sys.maxsize if max_messages is None else max_messages
    out = sys.stdout.buffer
    while remaining and (chunk := next(chunks, None)) is not None:
        for partition, record in islice(chunk, remaining):
            out.write(format_record(topic, partition, record, shape))
        out.flush()
        remaining -= min(len(chunk), remaining)


def _json_line(topic: str, partition: int, record: Record) -> bytes:
    import json

    fields = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _shown(value: bytes | None) -> bytes:
    return NULL if value is None else value
