"""`millrace produce`: makes a record of every line of a stream, and sends these in batches by partition.

    input ──lines_of──► lines that are there ──records of lines, or of JSON──► records ──Sender──► partitions

Lines are sent as soon as the input pauses, and at the latest when a chunk is read; memory holds one chunk. An error
names the number of its line. The lines of earlier chunks are in the topic then, and the count of acknowledged records
says how many these are.

A record goes to the partition that it names, or else where Kafka's default partitioner puts its key. Records with
neither change the partition with each chunk.

A line of JSON is what `millrace consume --json` prints, so that records can be replayed:

    {"partition": 0, "timestamp_ms": 1700000000000, "key": "k", "value": {"base64": "dv8="}, "headers": [["h", null]]}

A key, a value or a header is a text (UTF-8), null, or `{"base64": …}`. Only the value is required. `topic` and `offset`
are ignored, because the records go into another topic or to other offsets.
"""

from __future__ import annotations

import base64
import json
import os
import select
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from millrace.config import MAX_INT, MAX_LONG, parse_assignments
from millrace.errors import BrokerError, ErrorCode, InvalidRecordError, RecordTooLargeError, SetupError
from millrace.suggestions import did_you_mean
from millrace_ops.cli.options import CLOCK, ClusterAccess, Json, complete_topic
from millrace_ops.cli.output import print_json

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.records.record import Header, NewRecord

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
SHOWN_BYTES = 80


class Line(NamedTuple):
    """A line of the input without its line end; the first line has the number 1."""

    number: int
    text: bytes


class Placed(NamedTuple):
    """A record, the number of its line, and its partition; with None the key decides."""

    line: int
    record: NewRecord
    partition: int | None = None


class LineFormat(NamedTuple):
    """The form of a line: KEY, separator, VALUE, or only VALUE if there is no separator.

    A key, a value or a header's value that equals `null_marker` is null.
    """

    separator: bytes | None = None
    null_marker: bytes | None = None
    headers: tuple[Header, ...] = ()


def lines_of(fd: int) -> Iterator[list[Line]]:
    """Yields the whole lines that can be read now, at most a chunk; raises RecordTooLargeError for an endless line."""
    rest, number = b"", 1
    while chunk := _read_chunk(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise RecordTooLargeError(f"line {number + len(lines)} is longer than {MAX_LINE_BYTES} bytes")
        yield [Line(*one) for one in enumerate(lines, number)]
        number += len(lines)
    if rest:
        yield [Line(number, rest)]


def records_of_lines(lines: Iterable[Line], form: LineFormat, timestamp_ms: int) -> Iterator[Placed]:
    """Yields a record for each line; raises InvalidRecordError for a line without the key that it should have."""
    from millrace.records.record import NewRecord

    headers = tuple((name, _nullable(value, form)) for name, value in form.headers)
    for number, line in lines:
        if form.separator is None:
            yield Placed(number, NewRecord(_nullable(line, form), None, timestamp_ms, headers))
            continue
        key, found, value = line.partition(form.separator)
        if not found:
            separator = os.fsdecode(form.separator)
            raise InvalidRecordError(f"line {number}: no key separator {separator!r} in {line[:SHOWN_BYTES]!r}")
        yield Placed(number, NewRecord(_nullable(value, form), _nullable(key, form), timestamp_ms, headers))


def _nullable(field: bytes | None, form: LineFormat) -> bytes | None:
    return None if field == form.null_marker else field


def _read_chunk(fd: int) -> bytes:
    """Returns what can be read at once, up to a chunk; waits only for the first byte. Empty means the input's end."""
    chunk = os.read(fd, CHUNK_BYTES)
    parts, size_bytes = [chunk], len(chunk)
    while chunk and size_bytes < CHUNK_BYTES and select.select([fd], [], [], 0)[0]:
        chunk = os.read(fd, CHUNK_BYTES - size_bytes)
        parts.append(chunk)
        size_bytes += len(chunk)
    return b"".join(parts)


FIELDS = frozenset({"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"})
MIN_TIMESTAMP_MS = -1  # a record without a time has this one
SHOWN_CHARACTERS = 80


def records_of_json(
    lines: Iterable[Line], timestamp_ms: int, headers: tuple[Header, ...], *, keeps_times: bool
) -> Iterator[Placed]:
    """Yields a record for each line that is not blank; raises InvalidRecordError, which names the line.

    Args:
        lines: One JSON object each.
        timestamp_ms: The time of records that have none, or of all records unless `keeps_times`.
        headers: Headers to add to each record's own.
        keeps_times: Whether the records' own times are kept.
    """
    from millrace.records.record import NewRecord

    for number, text in lines:
        if not text.strip():
            continue
        try:
            fields = _object(text)
            own_time_ms = _whole(fields, "timestamp_ms", MIN_TIMESTAMP_MS, MAX_LONG)
            time_ms = own_time_ms if keeps_times and own_time_ms is not None else timestamp_ms
            own = (_field(fields.get("key"), "key"), time_ms, _headers(fields.get("headers")) + headers)
            record = NewRecord(_field(fields["value"], "value"), *own)
            yield Placed(number, record, _whole(fields, "partition", 0, MAX_INT))
        except InvalidRecordError as error:
            raise InvalidRecordError(f"line {number}: {error}") from error


def _object(text: bytes) -> Mapping[str, object]:
    """Returns the fields of a line; raises InvalidRecordError if it is no object or has other fields than a record."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRecordError(f"no JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRecordError(f"{_shown(fields)} is no JSON object of a record")
    if unknown := fields.keys() - FIELDS:
        raise InvalidRecordError(
            f"unknown field {', '.join(sorted(unknown))}; a record has {', '.join(sorted(FIELDS))}"
        )
    if "value" not in fields:
        raise InvalidRecordError("the field value is missing; null makes a tombstone")
    return fields


def _field(value: object, name: str) -> bytes | None:
    """Returns the bytes of a text or `{"base64": …}`, None for null; raises InvalidRecordError for other forms."""
    match value:
        case None:
            return None
        case str(text):
            return _encoded(text, name)
        case {"base64": str(text), **more} if not more:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise InvalidRecordError(f"{name}: no base64: {error}") from None
    raise InvalidRecordError(f'{name} is {_shown(value)}, expected a text, null or {{"base64": TEXT}}')


def _headers(value: object) -> tuple[Header, ...]:
    """Returns a record's headers from JSON in their order; a name may come several times."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidRecordError(f"headers are {_shown(value)}, expected a list of [NAME, VALUE]")
    found: list[Header] = []
    for one in value:
        match one:
            case [str(name), content]:
                _encoded(name, "a header's name")
                found.append((name, _field(content, f"header {name}")))
            case _:
                raise InvalidRecordError(f"header {_shown(one)}, expected [NAME, VALUE]")
    return tuple(found)


def _whole(fields: Mapping[str, object], name: str, minimum: int, maximum: int) -> int | None:
    """Returns the whole number in a field of a JSON record, or None if the field is missing or null."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidRecordError(f"{name} is {_shown(value)}, expected a whole number of {minimum} to {maximum}")
    return value


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRecordError(f"{name} is {_shown(text)}, which is no text in UTF-8") from None


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


BATCH_BYTES = 512 << 10
RECORD_OVERHEAD_BYTES = 32

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def batches_of(records: Iterable[NewRecord], max_bytes: int = BATCH_BYTES) -> Iterator[list[NewRecord]]:
    """Yields the records in batches of about `max_bytes`; a larger record makes its own batch."""
    batch: list[NewRecord] = []
    size_bytes = 0
    for record in records:
        record_bytes = _size_bytes(record)
        if batch and size_bytes + record_bytes > max_bytes:
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += record_bytes
    if batch:
        yield batch


class Sender:
    """Spreads records over a topic's partitions and counts those that the broker has acknowledged.

    Args:
        cluster: The cluster that has the topic, or creates it.
        topic: The topic's name.
        partition: The partition of all records, whatever they name; None leaves the choice to each record.
        codec: The compression of batches.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int | None, codec: CodecName) -> None:
        from millrace.client import SyncProducer
        from millrace.records.compression import Codec

        self.acknowledged = 0
        self._producer = SyncProducer(cluster)
        self._topic = topic
        self._partition = partition
        self._codec = Codec[codec.upper()]
        self._partition_count = cluster.partition_count(topic, create_missing=True)
        self._keyless_partition = 0

    def send(self, records: Iterable[Placed]) -> None:
        """Sends the records and waits until the broker has acknowledged all of them.

        Raises:
            InvalidRecordError: A record names a partition that doesn't exist, and none of these records is sent; or the
                broker refuses a batch.
        """
        for partition, chosen in self._by_partition(records).items():
            sent = 0
            for batch in batches_of([one.record for one in chosen]):
                self._send_batch(partition, batch, chosen[sent].line, chosen[sent + len(batch) - 1].line)
                sent += len(batch)

    def _send_batch(self, partition: int, batch: Sequence[NewRecord], first_line: int, last_line: int) -> None:
        try:
            self._producer.send(self._topic, partition, batch, codec=self._codec)
        except (InvalidRecordError, RecordTooLargeError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.broker_code != ErrorCode.INVALID_TIMESTAMP:
                raise
            lines = f"a record of the lines {first_line} to {last_line}"
            place = f"line {first_line}" if first_line == last_line else lines
            raise InvalidRecordError(f"{place}: {error}") from error
        self.acknowledged += len(batch)

    def _by_partition(self, records: Iterable[Placed]) -> Mapping[int, Sequence[Placed]]:
        self._keyless_partition = (self._keyless_partition + 1) % self._partition_count
        chosen: dict[int, list[Placed]] = defaultdict(list)
        for one in records:
            chosen[self._partition_of(one)].append(one)
        return chosen

    def _partition_of(self, one: Placed) -> int:
        from millrace.client.producer.plugins import partition_for_key

        if self._partition is not None:
            return self._partition
        if one.partition is not None:
            if one.partition >= self._partition_count:
                last = self._partition_count - 1
                raise InvalidRecordError(
                    f"line {one.line}: {self._topic} has no partition {one.partition}, its last one is {last}"
                )
            return one.partition
        key = one.record.key
        return self._keyless_partition if key is None else partition_for_key(key, self._partition_count)


def _size_bytes(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers + RECORD_OVERHEAD_BYTES


ReadRecords = Callable[[Iterable[Line]], Iterable[Placed]]


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Where the records go; created if the broker may.", autocompletion=complete_topic
        ),
    ],
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
    form = _line_format(key_separator, null_marker, header)
    read = _reader(form, timestamp_ms, is_json=input_format == "json")
    if file is None and sys.stdin is None:
        raise SetupError("stdin is closed")
    with (
        access.open() as cluster,
        nullcontext(sys.stdin) if file is None else file.open("rb") as source,
    ):
        is_new = cluster.metadata([topic]).lacks([topic])
        sender = Sender(cluster, topic, partition, codec)
        if is_new:
            _say_created(cluster, topic)
        try:
            for lines in lines_of(source.fileno()):
                sender.send(read(lines))
        finally:
            if as_json:
                print_json({"topic": topic, "acknowledged": sender.acknowledged})
            else:
                print(f"{sender.acknowledged} record(s) acknowledged by {topic}")


def _say_created(cluster: Cluster, topic: str) -> None:
    """Says that the broker has created a topic whose name is like another one's, and may be misspelt."""
    from millrace.client import Admin

    if hint := did_you_mean(topic, Admin(cluster).topics().keys() - {topic}):
        print(f"millrace: created topic {topic}{hint}", file=sys.stderr)


def _line_format(key_separator: str | None, null_marker: str | None, header: list[str] | None) -> LineFormat:
    """Returns the form of input lines that the command's options give: separator, null marker and headers."""
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
