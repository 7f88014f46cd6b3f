"""The topic `__mirror_offsets` on the target cluster, which keeps the offset maps of all mirrors that copy into it.

A record has the runs of one transaction in one partition (`offset_map`), and is written in that transaction. Its key:

    version = 1   bytes of the mirror's name, of the topic's   partition   first target offset   both names
    u8            u16                         u16              i32         i64                   UTF-8

All records of a partition are in one partition of this topic, by the hash of both names and the partition. The topic is
compacted. The header `progress` has what the group has committed with the runs, so that it can be made again where the
group loses it. Records whose runs the target has deleted are removed by tombstones, but for the newest of each
partition: it tells where the map ends. Since target offsets never return, no tombstone meets a newer record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from struct import Struct, error
from typing import NamedTuple

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.fetched import IsolationLevel
from millrace.client.metadata import Partition
from millrace.client.producer.plugins import partition_for_key
from millrace.errors import ClientError, RecordError, TopicExistsError
from millrace.records.record import NewRecord, Record
from millrace_pipelines.mirror.offset_map import (
    MappedRuns,
    OffsetMap,
    OffsetMapError,
    Run,
    decode_runs,
    encode_runs,
    joined,
)

OFFSET_MAP_TOPIC = "__mirror_offsets"
PARTITIONS = 16
CONFIG = {"cleanup.policy": "compact"}
RUNS_PER_RECORD = 20_000  # of 30 bytes at most: below the size of a batch that every cluster takes
TOMBSTONES_PER_BATCH = 1000
MAX_TOMBSTONES = 100_000  # of one partition of the topic at a time
VERSION = 1
PROGRESS = "progress"  # the header
WAY_ON = "remove it from there with a tombstone, once it is known who has written it"

_HEAD = Struct(">BHHiq")


class MapKey(NamedTuple):
    """Whose runs a record has: a mirror's, of a partition of the source, from a target offset on."""

    mirror: str
    topic: str
    partition: int
    first_target: int


class MapRecord(NamedTuple):
    """A record for the topic, to be sent in the transaction of what it maps; without a value it is a tombstone."""

    partition: int
    key: bytes
    value: bytes | None


class LastMapped(NamedTuple):
    """The newest record of a partition: up to where the source is mirrored with it, and where its runs end here."""

    next_source: int
    target_end: int
    progress: bytes | None


class OpenMapError(ClientError):
    """A transaction is open in the topic of offset maps, so that the newest records can't be told."""

    retriable = True


def create_offset_map_topic(cluster: Cluster, *, replication_factor: int = -1) -> None:
    """Creates the topic where it is missing; raises OffsetMapError for one with another number of partitions."""
    with suppress(TopicExistsError):
        Admin(cluster).create_topic(OFFSET_MAP_TOPIC, PARTITIONS, replication_factor, CONFIG)
    _check_partitions(cluster)


def map_partition(mirror: str, topic: str, partition: int) -> int:
    """Returns the partition of the topic in which the map of a source's partition is."""
    return partition_for_key(encode_key(MapKey(mirror, topic, partition, 0)), PARTITIONS)


def encode_key(key: MapKey) -> bytes:
    """Returns the key of a record."""
    mirror, topic = key.mirror.encode(), key.topic.encode()
    return _HEAD.pack(VERSION, len(mirror), len(topic), key.partition, key.first_target) + mirror + topic


def decode_key(key: bytes | None) -> MapKey:
    """Returns what a key says; raises OffsetMapError for one that `encode_key` does not make."""
    try:
        version, mirror_bytes, topic_bytes, partition, first_target = _HEAD.unpack_from(key or b"")
        names = (key or b"")[_HEAD.size :]
        mirror, topic = names[:mirror_bytes].decode(), names[mirror_bytes:].decode()
    except (error, UnicodeDecodeError) as wrong:
        raise OffsetMapError(f"its key {key!r} is not that of an offset map: {wrong}") from None
    is_whole = len(names) == mirror_bytes + topic_bytes
    if version != VERSION or not is_whole or not mirror or not topic or min(partition, first_target) < 0:
        raise OffsetMapError(f"its key {key!r} is not that of an offset map")
    return MapKey(mirror, topic, partition, first_target)


def map_records(mirror: str, topic: str, partition: int, mapped: MappedRuns) -> list[MapRecord]:
    """Returns the records for what one transaction mirrors of a source's partition; none without runs."""
    found: list[MapRecord] = []
    runs = joined(mapped.runs)
    for at in range(0, len(runs), RUNS_PER_RECORD):
        some = runs[at : at + RUNS_PER_RECORD]
        next_source = mapped.next_source if some[-1] is runs[-1] else some[-1].source_end
        key = encode_key(MapKey(mirror, topic, partition, some[0].target))
        value = encode_runs(MappedRuns(next_source, some))
        found.append(MapRecord(map_partition(mirror, topic, partition), key, value))
    return found


class OffsetMaps:
    """The maps of one mirror's partitions, as far as they were read: each `read` goes on from there.

    A map takes 24 bytes for each of its runs; what is read of other maps is not kept.
    """

    def __init__(self, cluster: Cluster, mirror: str) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._maps: dict[Partition, OffsetMap] = {}
        self._read_to: dict[Partition, int] = {}

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetMap]:
        """Returns the maps of these partitions of the source, with all transactions that are committed now.

        Raises OffsetMapError, which names the record, for one that no mirror has written, or that is damaged.
        """
        wanted: dict[int, list[Partition]] = {}
        for one in partitions:
            wanted.setdefault(map_partition(self._mirror, *one), []).append(one)
        if wanted:
            _check_partitions(self._cluster)
        return dict(chain.from_iterable(self._go_on(index, each).items() for index, each in wanted.items()))

    def _go_on(self, index: int, partitions: list[Partition]) -> dict[Partition, OffsetMap]:
        known = {one: self._read_to.get(one, 0) for one in partitions}
        found = {one: self._maps.get(one) or OffsetMap() for one in partitions}
        committed = _CommittedRecords(self._cluster, index)
        for offset, key, mapped, _ in committed.since(min(known.values())):
            one = (key.topic, key.partition)
            if key.mirror == self._mirror and mapped is not None and offset >= known.get(one, offset + 1):
                found[one].go_on(mapped)
        self._maps |= found
        self._read_to |= dict.fromkeys(found, committed.end)
        return found


def last_mapped(cluster: Cluster, mirror: str, partitions: Iterable[Partition]) -> dict[Partition, LastMapped]:
    """Returns the newest record of each of these partitions of the source that has any.

    Raises OpenMapError where it can't be told now, and OffsetMapError for a record that no mirror has written.
    """
    wanted: dict[int, set[Partition]] = {}
    for one in partitions:
        wanted.setdefault(map_partition(mirror, *one), set()).add(one)
    found: dict[Partition, LastMapped] = {}
    for index, places in wanted.items():
        committed = _CommittedRecords(cluster, index)
        if committed.has_open:
            raise OpenMapError(f"a transaction is open in {OFFSET_MAP_TOPIC}-{index}")
        for entry in committed.since(0):
            place = entry.key.topic, entry.key.partition
            if entry.key.mirror == mirror and place in places and entry.mapped is not None:
                end = entry.mapped.runs[-1].target_end
                found[place] = LastMapped(entry.mapped.next_source, end, entry.progress)
    return found


def remove_passed(cluster: Cluster, mirror: str, log_starts: Mapping[Partition, int]) -> int:
    """Writes tombstones for the records of a mirror whose runs the target has deleted; returns how many.

    Those for which there is no room in memory get theirs by the next call.

    Args:
        cluster: The target.
        mirror: The mirror's name.
        log_starts: By the source's topic and partition, the log start offset of its partition at the target.
    """
    _check_partitions(cluster)
    producer, count = SyncProducer(cluster), 0
    for index in sorted({map_partition(mirror, *one) for one in log_starts}):
        passed = _passed(_CommittedRecords(cluster, index).since(0), mirror, log_starts)
        for at in range(0, len(passed), TOMBSTONES_PER_BATCH):
            some = passed[at : at + TOMBSTONES_PER_BATCH]
            producer.send(OFFSET_MAP_TOPIC, index, [NewRecord(None, encode_key(key)) for key in some])
        count += len(passed)
    return count


class _Entry(NamedTuple):
    offset: int
    key: MapKey
    mapped: MappedRuns | None
    progress: bytes | None = None


class _CommittedRecords:
    """Reads one partition of the topic up to its end, a fetch at a time."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self._consumer = SimpleConsumer(cluster)
        self._index = index
        log_end = self._consumer.latest(OFFSET_MAP_TOPIC, index, IsolationLevel.READ_UNCOMMITTED)
        self.end = self._consumer.latest(OFFSET_MAP_TOPIC, index, IsolationLevel.READ_COMMITTED)
        self.has_open = self.end < log_end

    def since(self, offset: int) -> Iterator[_Entry]:
        """Yields what the records from an offset on say; raises OffsetMapError."""
        first = max(offset, self._consumer.earliest(OFFSET_MAP_TOPIC, self._index))
        for record in self._consumer.messages(
            OFFSET_MAP_TOPIC, self._index, first, until_offset=self.end, isolation=IsolationLevel.READ_COMMITTED
        ):
            try:
                yield _entry(record)
            except RecordError as wrong:
                where = f"record {record.offset} of {OFFSET_MAP_TOPIC}-{self._index}"
                raise OffsetMapError(f"{where} can't be read: {wrong}; {WAY_ON}") from wrong


def _entry(record: Record) -> _Entry:
    key = decode_key(record.key)
    if record.value is None:
        return _Entry(record.offset, key, None)
    mapped = decode_runs(record.value)
    if not mapped.runs or mapped.runs[0].target != key.first_target:
        raise OffsetMapError(f"its key says that it begins at target offset {key.first_target}, and its value does not")
    return _Entry(record.offset, key, mapped, dict(record.headers).get(PROGRESS))


def _passed(entries: Iterable[_Entry], mirror: str, log_starts: Mapping[Partition, int]) -> list[MapKey]:
    """Returns the keys of records that lie below the log start, are not the newest of theirs, and have no tombstone."""
    newest: dict[Partition, tuple[MapKey, Run]] = {}
    passed: dict[MapKey, None] = {}
    for _, key, mapped, _ in entries:
        one = (key.topic, key.partition)
        if key.mirror != mirror or one not in log_starts:
            continue
        passed.pop(key, None)
        if mapped is None:
            continue
        before, last = newest.get(one, (key, mapped.runs[-1]))
        if before != key and last.target_end <= log_starts[one] and len(passed) < MAX_TOMBSTONES:
            passed[before] = None
        newest[one] = key, mapped.runs[-1]
    return list(passed)


def _check_partitions(cluster: Cluster) -> None:
    count = cluster.partition_count(OFFSET_MAP_TOPIC)
    if count != PARTITIONS:
        raise OffsetMapError(
            f"{OFFSET_MAP_TOPIC} has {count} partitions, so that maps are not found where they are looked for: "
            f"it needs {PARTITIONS}, as a mirror creates it"
        )
