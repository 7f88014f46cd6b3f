"""`millrace import-legacy`: copies the log of a Kafka 0.7 topic into a topic, partition by partition.

    DIR ──find_partitions──► partitions ──read_partition──► payloads ──batches_of──► SyncProducer
                                                  └► damage: the import stops there, or counts it and goes on

The order of each partition is kept. Everything before a damage is sent before the import stops at it. Memory holds a
batch, a chunk of a file, and one message with what it holds decompressed. An import that was stopped starts from the
beginning when it runs again, so the topic should then be created again too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import CorruptRecordError, InvalidPartitionsError
from millrace_ops.cli.options import ClusterAccess, Json
from millrace_ops.cli.output import bars_of_bytes, print_json
from millrace_ops.cli.produce import CodecName, batches_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from millrace.client import Cluster
    from millrace.fs import FileSystem
    from millrace.records.record import NewRecord
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
    codec: Annotated[CodecName, typer.Option(help="How batches are compressed.")] = "none",
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Count damaged messages and go on, instead of stopping.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move the log of a Kafka 0.7 topic into a topic.

    Order and partitions are kept; each message becomes a record without a key, with the time of the import. At a
    damaged message the import stops, says the file and the position, and has exit status 1.
    """
    from millrace_ops.cli.dump import ReadOnlyFileSystem
    from millrace_ops.migration.legacy_log import find_partitions

    fs = ReadOnlyFileSystem()
    partitions = find_partitions(fs, directory, source_topic or topic)
    with access.open() as cluster:
        _ensure_partitions(cluster, topic, partitions[-1].partition + 1)
        importer = _Importer(fs, cluster, topic, codec=codec, skip_corrupt=skip_corrupt)
        try:
            with bars_of_bytes() as bars:
                total_bytes = sum(file.size_bytes for one in partitions for file in one.files)
                importer.run(partitions, _Listener(bars, total_bytes))
        finally:
            _report(importer.done, as_json)


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
        *,
        codec: CodecName,
        skip_corrupt: bool,
    ) -> None:
        from millrace.client import SyncProducer
        from millrace.records.compression import Codec

        self.done = Imported(topic)
        self._fs = fs
        self._producer = SyncProducer(cluster)
        self._codec = Codec[codec.upper()]
        self._skip_corrupt = skip_corrupt
        self._read_bytes = 0
        self._stopped_at: str | None = None

    def run(self, partitions: list[LegacyPartition], listener: _Listener) -> None:
        """Imports all partitions; raises CorruptRecordError at a damage that is not to be skipped."""
        for partition in partitions:
            self.done.partitions += 1
            for batch in batches_of(self._records(partition, listener)):
                self._producer.send(self.done.topic, partition.partition, batch, codec=self._codec)
                self.done.messages += len(batch)
                listener.read(self._read_bytes, self.done.messages)
            if self._stopped_at is not None:
                raise CorruptRecordError(self._stopped_at)

    def _records(self, partition: LegacyPartition, listener: _Listener) -> Iterator[NewRecord]:
        """Yields a partition's messages as records, up to the first damage that is not to be skipped."""
        from millrace.records.record import NewRecord
        from millrace_ops.migration.legacy_log import Damage, read_partition

        path = None
        for file, item in read_partition(self._fs, partition):
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
                yield from map(NewRecord, item.payloads)
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
