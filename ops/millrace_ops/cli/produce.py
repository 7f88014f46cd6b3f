"""`millrace produce`: makes a record of every line of a stream, and sends these in batches by partition.

    input ──lines_of──► lines that are there ──records of lines, or of JSON──► records ──Sender──► partitions

Lines are sent as soon as the input pauses. An error names the number of its line. The lines of earlier chunks are in
the topic then, and the count of acknowledged records says how many these are.

A record goes to the partition that it names, or else where Kafka's default partitioner puts its key. Records with
neither change the partition with each chunk.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace.config import MAX_LONG, parse_assignments
from millrace.errors import BrokerError, ErrorCode, InvalidRecordError, RecordTooLargeError, SetupError
from millrace_ops.cli.options import CLOCK, ClusterAccess, Json
from millrace_ops.cli.output import print_json
from millrace_ops.cli.produce_lines import Line, LineFormat, Placed, lines_of, records_of_json, records_of_lines

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.records.record import NewRecord

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
