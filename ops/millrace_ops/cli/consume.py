"""`millrace consume`: a topic's records on stdout.

Partitions are read in turn, each in the order of its offsets (`consume_read`). Output is flushed after each fetch; a
reader that goes away ends the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from millrace_ops.cli.consume_read import TopicReader, parse_start
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from millrace_ops.cli.output import json_bytes

if TYPE_CHECKING:
    from millrace.records.record import Record

NULL = b"null"

IsolationName = Literal["read_committed", "read_uncommitted"]


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
    isolation_level: Annotated[
        IsolationName, typer.Option(help="Of transactions: records of committed ones, or of open and aborted ones too.")
    ] = "read_committed",
    as_json: Json = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="Key and a tab before the value.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="Headers and a tab before that.")] = False,
) -> None:
    """Print a topic's records.

    Values are written as they are, one a line; with --json a record is one JSON object a line.
    """
    from millrace.client import Cluster
    from millrace.client.simple_consumer import IsolationLevel

    begin = parse_start(start)
    shape = Format(as_json, print_key, print_headers)
    try:
        with Cluster(bootstrap) as cluster:
            reader = TopicReader(cluster, topic, IsolationLevel[isolation_level.upper()])
            chosen = partition or reader.partitions()
            ends = None if follow else {one: reader.end(one) for one in chosen}
            offsets = {one: reader.first_offset(one, begin) for one in chosen}
            _print_records(topic, reader.chunks(offsets, ends), max_messages, shape)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if not follow:
            raise


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
