"""Holds the fetchers for each broker at which partitions are followed; one that has no partitions ends.

A broker is asked by at most `num.replica.fetchers` of them at a time. The partitions of a topic are spread evenly over
these, and a partition is always fetched by the same one.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple
from zlib import crc32

from millrace.leader_states import NO_LEADER
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker, ReplicaFetcher

logger = logging.getLogger(__name__)


class _Running(NamedTuple):
    fetcher: ReplicaFetcher
    task: asyncio.Task[None]


class ReplicaFetchers:
    """The fetchers of one broker; `fetchers_per_source` is how many ask the same broker at most."""

    def __init__(self, settings: FetchSettings, broker: FollowingBroker, fetchers_per_source: int = 1) -> None:
        self._settings = settings
        self._broker = broker
        self._fetchers_per_source = fetchers_per_source
        self._running: dict[tuple[int, int], _Running] = {}  # by the broker that is asked, and the number
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def sources(self) -> list[int]:
        """The ids of the brokers from which something is fetched."""
        return sorted({source for source, _ in self._running})

    def follow(self, followed: FollowedPartition) -> None:
        """Fetches a partition from its leader from now on, unless it has none or the broker stops."""
        if followed.leader == NO_LEADER or self._is_closed:
            return
        key = self._key(followed)
        running = self._running.get(key)
        if running is None:
            fetcher = ReplicaFetcher(*key, self._settings, self._broker)
            running = _Running(fetcher, asyncio.get_running_loop().create_task(fetcher.run()))
            running.task.add_done_callback(self._ended)
            self._running[key] = running
        running.fetcher.follow(followed)

    def unfollow(self, followed: FollowedPartition) -> None:
        """Fetches a partition no longer."""
        key = self._key(followed)
        running = self._running.get(key)
        if running is None:
            return
        running.fetcher.unfollow(followed)
        if not len(running.fetcher):
            del self._running[key]
            self._end(running.task)

    def resize(self, fetchers_per_source: int) -> None:
        """Spreads all partitions over another number of fetchers."""
        if fetchers_per_source == self._fetchers_per_source:
            return
        all_followed = [followed for running in self._running.values() for followed in running.fetcher.partitions]
        for followed in all_followed:
            self.unfollow(followed)
        self._fetchers_per_source = fetchers_per_source
        for followed in all_followed:
            self.follow(followed)

    def _key(self, followed: FollowedPartition) -> tuple[int, int]:
        topic, index = followed.topic_partition
        return followed.leader, (crc32(topic.encode()) + index) % self._fetchers_per_source

    async def close(self) -> None:
        """Ends all fetchers, starts no more, and returns when none is at work."""
        self._is_closed = True
        for running in self._running.values():
            self._end(running.task)
        self._running.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a replica fetcher has ended", exc_info=task.exception())
