"""`millrace import-legacy`: copies the log of a Kafka 0.7 topic into a topic, partition by partition.

    DIR ──find_partitions──► partitions ──read_partition──► payloads ──batches_of──► SyncProducer
                                                  └► damage: the import stops there, or counts it and goes on

The order of each partition is kept. Everything before a damage is sent before the import stops at it. Memory holds a
batch, a chunk of a file, one message with what it holds decompressed, and an entry of the map for each batch.

An import that was stopped goes on by its map (`import_map`) when it runs again. Of the last batch of a partition the
end of the topic's log says whether it arrived, and its records are then compared with those of the 0.7 log. For that
nobody else may write to the topic; where somebody does, or that batch arrives only later, the next batch has another
offset than it should, and the import stops.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import CorruptRecordError, InvalidPartitionsError, LogError
from millrace_ops.cli.options import FS, ClusterAccess, Json
from millrace_ops.cli.output import bars_of_bytes, print_json
from millrace_ops.cli.produce import CodecName, batches_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from millrace.client import Cluster
    from millrace.fs import FileSystem
    from millrace.records.record import NewRecord
    from millrace_ops.migration.import_map import Batch, ImportMap
    from millrace_ops.migration.legacy_log import LegacyPartition


def import_legacy(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A 0.7 log directory with TOPIC_N in it, or one partition's directory.")
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic for the messages; created if it is missing.")
    ],
    *,
    access: ClusterAccess,
    source_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="The topic's name in DIR, where that differs.")
    ] = None,
    map_file: Annotated[
        str | None,
        typer.Option(
            "--map", metavar="FILE", help="Where positions and offsets are noted.", show_default="TOPIC.offsets.jsonl"
        ),
    ] = None,
    codec: Annotated[CodecName, typer.Option(help="How batches are compressed.")] = "none",
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Count damaged messages and go on, instead of stopping.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move the log of a Kafka 0.7 topic into a topic.

    Order and partitions are kept; each message becomes a record without a key, with the time of the import. At a
    damaged message the import stops, says the file and the position, and has exit status 1. An import that was stopped
    goes on with the same map file; by it `offsets from-legacy` takes a group's offsets along.
    """
    from millrace_ops.cli.dump import ReadOnlyFileSystem
    from millrace_ops.migration.import_map import ImportMap, Subject
    from millrace_ops.migration.legacy_log import find_partitions

    fs = ReadOnlyFileSystem()
    partitions = find_partitions(fs, directory, source_topic or topic)
    with access.open() as cluster:
        _ensure_partitions(cluster, topic, partitions[-1].partition + 1)
        topic_id = cluster.metadata([topic]).topic(topic).topic_id
        source = (os.path.abspath(directory), source_topic or topic)
        subject = Subject(topic, None if topic_id is None else str(topic_id), *source)
        with ImportMap(FS, map_file or f"{topic}.offsets.jsonl", subject) as noted:
            importer = _Importer(fs, cluster, topic, noted, codec=codec, skip_corrupt=skip_corrupt)
            try:
                with bars_of_bytes() as bars:
                    total_bytes = sum(file.size_bytes for one in partitions for file in one.files)
                    importer.run(partitions, _Listener(bars, total_bytes))
            finally:
                _report(importer.done, as_json)


OTHERS_WRITE = "others write to the topic, which an import needs for itself; delete it and its map, and begin again"


@dataclass(slots=True)
class Imported:
    """The progress of an import; `messages` counts those that the broker has acknowledged."""

    topic: str
    partitions: int = 0
    files: int = 0
    messages: int = 0
    damaged: int = 0
    damaged_bytes: int = 0


class _Importer:
    """Reads the partitions of a Kafka 0.7 log one after the other, and sends their messages to the topic."""

    def __init__(
        self,
        fs: FileSystem,
        cluster: Cluster,
        topic: str,
        noted: ImportMap,
        *,
        codec: CodecName,
        skip_corrupt: bool,
    ) -> None:
        from millrace.client import SimpleConsumer, SyncProducer
        from millrace.records.compression import Codec

        self.done = Imported(topic)
        self._fs = fs
        self._map = noted
        self._consumer = SimpleConsumer(cluster)
        self._producer = SyncProducer(cluster)
        self._codec = Codec[codec.upper()]
        self._skip_corrupt = skip_corrupt
        self._read_bytes = 0
        self._places: deque[tuple[int, int]] = deque()  # of the records that are read: position, number in the message
        self._stopped_at: str | None = None

    def run(self, partitions: list[LegacyPartition], listener: _Listener) -> None:
        """Imports all partitions; raises CorruptRecordError at a damage that is not to be skipped."""
        for partition in partitions:
            self.done.partitions += 1
            self._places.clear()
            last = self._map.last(partition.partition)
            records = self._records(partition, listener, 0 if last is None else last.position)
            if last is None:
                offset = self._consumer.latest(self.done.topic, partition.partition)
            else:
                offset = self._go_on(last, records)
            for batch in batches_of(records):
                self._send(partition.partition, offset, batch)
                offset += len(batch)
                self.done.messages += len(batch)
                listener.read(self._read_bytes, self.done.messages)
            if self._stopped_at is not None:
                raise CorruptRecordError(self._stopped_at)

    def _send(self, partition: int, offset: int, batch: list[NewRecord]) -> None:
        from millrace_ops.migration.import_map import Batch

        self._map.add(Batch(partition, *self._places[0], offset, len(batch)))
        for _ in batch:
            self._places.popleft()
        found = self._producer.send(self.done.topic, partition, batch, codec=self._codec)
        if found != offset:
            raise LogError(f"{self.done.topic}-{partition} went on at offset {found}, not {offset}: {OTHERS_WRITE}")

    def _go_on(self, last: Batch, records: Iterator[NewRecord]) -> int:
        """Passes over the records that were imported before; returns the offset at which the import goes on.

        Raises LogError where the topic does not end at the last batch, or has other records there.
        """
        topic, partition = self.done.topic, last.partition
        end = self._consumer.latest(topic, partition)
        if end not in (last.offset, last.next_offset):
            between = f"{last.offset} or {last.next_offset}, where the import stopped"
            raise LogError(f"{topic}-{partition} ends at offset {end}, not at {between}: {OTHERS_WRITE}")
        passed = [one.value for one in islice(records, last.payload + end - last.offset)][last.payload :]
        for _ in range(last.payload + len(passed)):
            self._places.popleft()
        stored = self._consumer.messages(topic, partition, last.offset, until_offset=end)
        if passed != [one.value for one in stored]:
            raise LogError(f"{topic}-{partition} has other records from offset {last.offset} on: {OTHERS_WRITE}")
        return end

    def _records(self, partition: LegacyPartition, listener: _Listener, position: int) -> Iterator[NewRecord]:
        """Yields a partition's messages as records from a position on, up to a damage that is not to be skipped."""
        from millrace.records.record import NewRecord
        from millrace_ops.migration.legacy_log import Damage, read_partition

        path = None
        for file, item in read_partition(self._fs, partition, position):
            self.done.files += file.path != path
            path = file.path
            if isinstance(item, Damage):
                damage = f"{file.path}: position {item.position}: {item.reason}"
                if not self._skip_corrupt:
                    self._stopped_at = damage
                    return
                self.done.damaged += 1
                self.done.damaged_bytes += item.size_bytes
                listener.damaged(f"{damage}; {item.size_bytes} bytes skipped")
            else:
                for number, payload in enumerate(item.payloads):
                    self._places.append((file.first_position + item.position, number))
                    yield NewRecord(payload)
            self._read_bytes += item.size_bytes


class _Listener:
    """Shows each damage as a line on stderr, and on a terminal a bar of the bytes read below these lines."""

    def __init__(self, bars: Progress, total_bytes: int) -> None:
        self._bars = bars
        self._bar = bars.add_task("starting", total=total_bytes)

    def read(self, size_bytes: int, messages: int) -> None:
        """Moves the progress bar to the bytes read, and shows how many messages are acknowledged."""
        self._bars.update(self._bar, completed=size_bytes, description=f"{messages:,} messages")

    def damaged(self, damage: str) -> None:
        """Writes the sentence on the damage, on a terminal above the bar."""
        if self._bars.console.is_terminal:
            self._bars.console.print(damage, soft_wrap=True)
        else:
            print(damage, file=sys.stderr, flush=True)


def _ensure_partitions(cluster: Cluster, topic: str, partitions: int) -> None:
    from millrace.client import Admin

    admin = Admin(cluster)
    found = admin.topics().get(topic)
    if found is None:
        admin.create_topic(topic, partitions, -1)
    elif len(found.partitions) < partitions:
        raise InvalidPartitionsError(f"topic {topic} has {len(found.partitions)} partition(s), {partitions} are needed")


def _report(done: Imported, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
        return
    damaged = f"; {done.damaged} damaged place(s), {done.damaged_bytes} bytes, skipped" if done.damaged else ""
    print(
        f"{done.messages} message(s) from {done.files} file(s) of {done.partitions} partition(s) "
        f"acknowledged by {done.topic}{damaged}"
    )
