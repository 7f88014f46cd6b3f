"""A topic of records with keys, which loads take into a table, and what is then in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step

FS = OsFileSystem()
names = (f"topic-{number}" for number in count())
Pair = tuple[bytes | None, bytes | None]


class Events:
    """A topic of two partitions, the records sent to it, and the newest value of each key."""

    def __init__(self, cluster: Cluster, bootstrap: str) -> None:
        self.topic, self._cluster, self._bootstrap = next(names), cluster, bootstrap
        self.sent: dict[int, list[Pair]] = {0: [], 1: []}
        self.newest: dict[bytes | None, bytes] = {}
        Admin(cluster).create_topic(self.topic, 2)

    def send(self, *pairs: Pair, timestamp_ms: int = 1_700_000_000_000) -> None:
        """Sends keys with their values, each to the partition of its key."""
        for partition in (0, 1):
            mine = [pair for pair in pairs if self.partition_of(pair[0]) == partition]
            records = [NewRecord(value, key=key, timestamp_ms=timestamp_ms) for key, value in mine]
            if records:
                SyncProducer(self._cluster).send(self.topic, partition, records)
            self.sent[partition] += mine
        self.newest = {key: value for key, value in {**self.newest, **dict(pairs)}.items() if value is not None}

    @staticmethod
    def partition_of(key: bytes | None) -> int:
        """Returns the partition that a key's records go to."""
        return 0 if key is None else key[-1] % 2

    def options(self, table: str | Path, **more: Any) -> LoadOptions:
        """Returns the options of a load into a table."""
        return LoadOptions(
            topic=self.topic, table=str(table), bootstrap=self._bootstrap, max_records_per_task=40, **more
        )

    def all_offsets(self, start: int = 0) -> dict[tuple[int, int], int]:
        """Returns each partition and offset from `start` on, once."""
        return {(partition, offset): 1 for partition in (0, 1) for offset in range(start, len(self.sent[partition]))}


class At(SilentListener):
    """Does something when the load is at a step."""

    def __init__(self, step: Step, action: Callable[[], object]) -> None:
        self.step, self.action = step, action

    def reached(self, step: Step) -> None:
        """Acts at the step."""
        if step is self.step:
            self.action()


def key(number: int) -> bytes:
    """Returns a key whose partition its number decides."""
    return b"key %d" % number


def stored(address: str | Path) -> list[dict[str, Any]]:
    """Returns the rows of a table."""
    files = load_table(str(address), FS).files()
    return ds.dataset(files).to_table().to_pylist() if files else []


def offsets(directory: str | Path) -> Counter[tuple[int, int]]:
    """Returns how often each partition and offset is in a table."""
    return Counter((row["partition"], row["offset"]) for row in stored(directory))


def by_key(directory: str | Path) -> dict[bytes, bytes]:
    """Returns the values of a table that has each key once."""
    rows = stored(directory)
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["value"] for row in rows}
