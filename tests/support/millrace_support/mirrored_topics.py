"""Mirrors topics from one cluster into another, as simply as it can be done."""

from __future__ import annotations

import struct

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.metadata import Partition
from millrace.client.mirrored_appends import MIRROR_SOURCE, MirroredAppend, MirroredLog, append_mirrored
from millrace.records.batch import BatchHeader, walk

MIRROR = "east"
MIRRORED = {MIRROR_SOURCE: MIRROR}


def batches(records: bytes) -> list[tuple[BatchHeader, bytes]]:
    """Returns each whole batch, without its leader epoch."""
    return [
        (header._replace(partition_leader_epoch=0), without_epoch(records[position : position + header.size_bytes]))
        for position, header in walk(records)
    ]


def without_epoch(batch: bytes) -> bytes:
    """Returns a batch with leader epoch 0."""
    return batch[:12] + struct.pack(">i", 0) + batch[16:]


def log_of(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """Returns the batches of a partition up to its high watermark, without their leader epochs."""
    found: list[bytes] = []
    with SimpleConsumer(bootstrap) as consumer:
        offset, end = consumer.earliest(topic, partition), consumer.latest(topic, partition)
        while offset < end:
            for header, batch in batches(bytes(consumer.fetch(topic, partition, offset).records)):
                found.append(batch)
                offset = header.next_offset
    return found


def create_mirrored(cluster: Cluster, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    """Creates a mirrored topic."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    Admin(cluster).create_topic(topic, partitions, replicas, {**named, **MIRRORED})


def append(cluster: Cluster, topic: str, end_offset: int, records: bytes, **more: int) -> MirroredLog:
    """Appends to partition 0."""
    return append_mirrored(cluster, [MirroredAppend(topic, 0, end_offset, records, **more)])[topic, 0]


class Mirror:
    """A mirror of one partition, which knows nothing but what the target answers."""

    def __init__(self, source: str, target: Cluster, topic: str, partition: int = 0, *, max_bytes: int = 4096) -> None:
        self._source = source
        self._target = target
        self._key: Partition = topic, partition
        self._max_bytes = max_bytes

    def run(self) -> MirroredLog:
        """Follows until the target has all that the source has; returns the last answer."""
        with SimpleConsumer(self._source) as source:
            while True:
                log = self.step(source)
                if log.end_offset >= source.latest(*self._key):
                    return log

    def step(self, source: SimpleConsumer) -> MirroredLog:
        """Asks where the target ends, and appends what the source has there."""
        start = source.earliest(*self._key)
        asked = MirroredAppend(*self._key, -2, b"")
        end_offset = append_mirrored(self._target, [asked])[self._key].end_offset
        if end_offset < 0:
            return MirroredLog(-1, -1, None)
        fetched = source.fetch(*self._key, max(start, end_offset), max_bytes=self._max_bytes)
        asked = MirroredAppend(*self._key, end_offset, bytes(fetched.records), start)
        return append_mirrored(self._target, [asked])[self._key]
