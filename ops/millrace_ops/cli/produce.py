"""`millrace produce`: every line of a stream as one record.

    input ──lines_of──► lines that are there ──records_of──► records ──► by partition ──batches_of──► SyncProducer

Lines are sent as soon as the input pauses, and at the latest when a chunk of them is read; memory holds one chunk.
A keyed record goes where Kafka's default partitioner sends it; those without a key change partitions with each chunk.
"""

from __future__ import annotations

import os
import select
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace.config import MAX_LONG
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from millrace_ops.cli.output import print_json

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.records.record import Header, NewRecord

CHUNK_BYTES = 1 << 20
BATCH_BYTES = 512 << 10
RECORD_OVERHEAD_BYTES = 32
MAX_LINE_BYTES = 64 << 20

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go; created if the broker may.")],
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read lines from here, not from stdin.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Each line is KEY, this, VALUE; without it there are no keys.")
    ] = None,
    codec: Annotated[CodecName, typer.Option(help="How batches are compressed.")] = "none",
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every record.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="The partition of every record.")] = None,
    timestamp_ms: Annotated[
        int | None, typer.Option(min=0, max=MAX_LONG, help="The time of every record, not that of now.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Produce each line of stdin or of a file as a record.

    Ends when the broker has acknowledged all of them, and says how many that were.
    """
    from millrace.client import Cluster
    from millrace.clock import SystemClock
    from millrace.config import parse_assignments
    from millrace.errors import SetupError

    given = [pair for one in header or () for pair in parse_assignments([one]).items()]  # a name may come again
    headers = tuple((name, os.fsencode(value)) for name, value in given)
    separator = None if key_separator is None else os.fsencode(key_separator)
    if separator == b"":
        raise typer.BadParameter("a separator has at least one byte", param_hint="--key-separator")
    if file is None and sys.stdin is None:
        raise SetupError("stdin is closed")
    with Cluster(bootstrap) as cluster, nullcontext(sys.stdin) if file is None else file.open("rb") as source:
        sender = _Sender(cluster, topic, partition, codec)
        try:
            for lines in lines_of(source.fileno()):
                now_ms = SystemClock().now_ms() if timestamp_ms is None else timestamp_ms
                sender.send(records_of(lines, separator, now_ms, headers))
        finally:
            _report(topic, sender.acknowledged, as_json)


def lines_of(fd: int) -> Iterator[list[bytes]]:
    """Whole lines without their ends, as many as are there, at most a chunk; RecordTooLargeError for an endless one."""
    from millrace.errors import RecordTooLargeError

    rest = b""
    while chunk := _read_chunk(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise RecordTooLargeError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        yield lines
    if rest:
        yield [rest]


def records_of(
    lines: Iterable[bytes], separator: bytes | None, timestamp_ms: int, headers: tuple[Header, ...]
) -> Iterator[NewRecord]:
    """A record for each line; InvalidRecordError for one that should have a key and has none."""
    from millrace.errors import InvalidRecordError
    from millrace.records.record import NewRecord

    for line in lines:
        if separator is None:
            yield NewRecord(line, None, timestamp_ms, headers)
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise InvalidRecordError(f"no key separator {os.fsdecode(separator)!r} in line {line[:80]!r}")
        yield NewRecord(value, key, timestamp_ms, headers)


def batches_of(records: Iterable[NewRecord], max_bytes: int = BATCH_BYTES) -> Iterator[list[NewRecord]]:
    """The records cut into batches of about `max_bytes`; a larger record makes a batch of its own."""
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


class _Sender:
    """Spreads records over a topic's partitions and counts what the broker has acknowledged."""

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

    def send(self, records: Iterable[NewRecord]) -> None:
        """Send all and wait for the acknowledgements."""
        for partition, chosen in self._by_partition(records).items():
            for batch in batches_of(chosen):
                self._producer.send(self._topic, partition, batch, codec=self._codec)
                self.acknowledged += len(batch)

    def _by_partition(self, records: Iterable[NewRecord]) -> dict[int, Sequence[NewRecord]]:
        if self._partition is not None:
            return {self._partition: list(records)}
        from millrace.client.partitioner import partition_for_key

        self._keyless_partition = (self._keyless_partition + 1) % self._partition_count
        chosen: dict[int, list[NewRecord]] = defaultdict(list)
        for record in records:
            key = record.key
            partition = self._keyless_partition if key is None else partition_for_key(key, self._partition_count)
            chosen[partition].append(record)
        return dict(chosen)


def _read_chunk(fd: int) -> bytes:
    """What can be read without waiting, up to a chunk; waits only for the first byte. Empty at the end."""
    chunk = os.read(fd, CHUNK_BYTES)
    parts, size_bytes = [chunk], len(chunk)
    while chunk and size_bytes < CHUNK_BYTES and select.select([fd], [], [], 0)[0]:
        chunk = os.read(fd, CHUNK_BYTES - size_bytes)
        parts.append(chunk)
        size_bytes += len(chunk)
    return b"".join(parts)


def _size_bytes(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers + RECORD_OVERHEAD_BYTES


def _report(topic: str, acknowledged: int, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "acknowledged": acknowledged})
    else:
        print(f"{acknowledged} record(s) acknowledged by {topic}")
