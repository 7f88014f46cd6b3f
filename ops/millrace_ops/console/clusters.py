"""Lends connections to the cluster to the threads that make pages: a `Cluster` belongs to one thread at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue

from millrace.client import Cluster


class Clusters:
    """Clusters that are made as they are needed, and kept for the next page."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        self._connect = connect
        self._idle: LifoQueue[Cluster] = LifoQueue()

    @contextmanager
    def lent(self) -> Iterator[Cluster]:
        """Yields a cluster that nobody else has meanwhile; after an error it is closed."""
        try:
            cluster = self._idle.get_nowait()
        except Empty:
            cluster = self._connect()
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        self._idle.put(cluster)
