"""`millrace produce`: makes a record of every line of a stream.

    input ──lines_of──► lines that are there ──records of lines, or of JSON──► records ──Sender──► partitions

Lines are sent as soon as the input pauses. An error names the number of its line. The lines of earlier chunks are in
the topic then, and the count of acknowledged records says how many these are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.config import MAX_LONG
from millrace_ops.cli.options import CLOCK, ClusterAccess, Json
from millrace_ops.cli.output import print_json
from millrace_ops.cli.produce_lines import Line, LineFormat, Placed, lines_of, records_of_json, records_of_lines
from millrace_ops.cli.produce_send import CodecName, Sender

ReadRecords = Callable[[Iterable[Line]], Iterable[Placed]]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go; created if the broker may.")],
    *,
    access: ClusterAccess,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read lines from here, not from stdin.")
    ] = None,
    input_format: Annotated[
        Literal["lines", "json"],
        typer.Option("--input", help="Each line is a value, or a record in JSON as `consume --json` prints it."),
    ] = "lines",
    key_separator: Annotated[
        str | None, typer.Option(help="Each line is KEY, this, VALUE; without it there are no keys.")
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A key, value or header equal to this is null; a null value is a tombstone."),
    ] = None,
    codec: Annotated[CodecName, typer.Option(help="How batches are compressed.")] = "none",
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every record.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="The partition of every record.")] = None,
    timestamp_ms: Annotated[
        int | None, typer.Option(min=0, max=MAX_LONG, help="The time of every record, instead of the current one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Produce each line of stdin or of a file as a record.

    Ends when the broker has acknowledged all of them, and says how many that were.
    """
    from millrace.errors import SetupError

    form = _line_format(key_separator, null_marker, header)
    read = _reader(form, timestamp_ms, is_json=input_format == "json")
    if file is None and sys.stdin is None:
        raise SetupError("stdin is closed")
    with (
        access.open() as cluster,
        nullcontext(sys.stdin) if file is None else file.open("rb") as source,
    ):
        sender = Sender(cluster, topic, partition, codec)
        try:
            for lines in lines_of(source.fileno()):
                sender.send(read(lines))
        finally:
            if as_json:
                print_json({"topic": topic, "acknowledged": sender.acknowledged})
            else:
                print(f"{sender.acknowledged} record(s) acknowledged by {topic}")


def _line_format(key_separator: str | None, null_marker: str | None, header: list[str] | None) -> LineFormat:
    """Returns the format of a line that the options describe."""
    from millrace.config import parse_assignments

    given = [pair for one in header or () for pair in parse_assignments([one]).items()]  # a name may come again
    if key_separator == "":
        raise typer.BadParameter("a separator has at least one byte", param_hint="--key-separator")
    return LineFormat(
        None if key_separator is None else os.fsencode(key_separator),
        None if null_marker is None else os.fsencode(null_marker),
        tuple((name, os.fsencode(value)) for name, value in given),
    )


def _reader(form: LineFormat, timestamp_ms: int | None, *, is_json: bool) -> ReadRecords:
    if not is_json:
        return lambda lines: records_of_lines(lines, form, CLOCK.now_ms() if timestamp_ms is None else timestamp_ms)
    for option, given in (("--key-separator", form.separator), ("--null-marker", form.null_marker)):
        if given is not None:
            raise typer.BadParameter("records in JSON say themselves what is key or null", param_hint=option)
    keeps_times = timestamp_ms is None
    return lambda lines: records_of_json(
        lines, CLOCK.now_ms() if timestamp_ms is None else timestamp_ms, form.headers, keeps_times=keeps_times
    )
