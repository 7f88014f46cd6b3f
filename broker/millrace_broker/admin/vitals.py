"""Gathers the facts by which `health` judges a broker, from its start to its stop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millrace.clock import Clock
from millrace_broker.admin.health import Facts, Folder
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.metadata_publisher import MetadataPublisher
from millrace_broker.replication.shards import LedShards
from millrace_broker.storage import DirHealth

REFUSAL_LASTS_MS = 30_000  # by then producers have tried again


class Vitals:
    """Gathers the facts by which `health` judges; the broker sets the attributes as it starts and stops.

    `shards` are the coordinators' partitions. A disk that refuses an append counts as full for REFUSAL_LASTS_MS,
    because only the next append shows whether it has room again.
    """

    def __init__(self, store: MetadataStore, clock: Clock, largest_batch_bytes: Callable[[], int]) -> None:
        self.folders: Sequence[DirHealth] = ()
        self.shards: Sequence[LedShards[Any]] = ()
        self.publisher: MetadataPublisher | None = None
        self.uncompacted: Callable[[], tuple[str, ...]] = tuple
        self.damage: Callable[[], Mapping[str, tuple[str, ...]]] = dict
        self.is_starting = True
        self.is_stopping = False
        self._store = store
        self._clock = clock
        self._largest_batch_bytes = largest_batch_bytes
        self._refusals: dict[str, tuple[int, int]] = {}  # by folder: the number seen, and until when the last counts

    def facts(self) -> Facts:
        """Returns the current facts; blocks while the operating system waits for a disk."""
        return Facts(
            folders=tuple(self._folder(one) for one in self.folders),
            largest_batch_bytes=self._largest_batch_bytes(),
            zookeeper_trouble=self._store.trouble(),
            unheeded_changes=() if self.publisher is None else self.publisher.troubles,
            failed_changes={} if self.publisher is None else self.publisher.failures,
            uncompacted=self.uncompacted(),
            damage=self.damage(),
            is_starting=self.is_starting,
            loading_partitions=sum(len(led.all()) - len(led.loaded()) for led in self.shards),
            is_stopping=self.is_stopping,
        )

    def _folder(self, health: DirHealth) -> Folder:
        free, total = _bytes_of_disk(health.path)
        return Folder(health.path, health.reason, free, self._refuses(health), total)

    def _refuses(self, health: DirHealth) -> bool:
        now_ms = self._clock.monotonic_ms()
        seen, until_ms = self._refusals.get(health.path, (0, 0))
        if health.refusals > seen:
            seen, until_ms = health.refusals, now_ms + REFUSAL_LASTS_MS
            self._refusals[health.path] = seen, until_ms
        return now_ms < until_ms


def _bytes_of_disk(path: str) -> tuple[int | None, int | None]:
    """Returns the free and the total bytes of the disk of `path`; (None, None) if the system does not tell."""
    try:
        usage = shutil.disk_usage(path if os.path.exists(path) else os.path.dirname(path))
    except OSError:
        return None, None
    return usage.free, usage.total
