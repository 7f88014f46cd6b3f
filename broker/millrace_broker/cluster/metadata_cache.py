"""Holds the newest cluster view that this broker has acted upon; clients are told of no newer one.

Used on the event loop's thread. A view is put here only after its partitions are led, so a client that is told of a
partition can use it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from millrace_broker.cluster.view import ClusterView


class MetadataCache:
    """The current view, the names of its topics by id, and the requests that wait for another view."""

    def __init__(self, view: ClusterView) -> None:
        self._waiting: set[asyncio.Event] = set()
        self.update(view)

    def update(self, view: ClusterView) -> None:
        """Replaces the view by a newer one and wakes the requests that wait for it."""
        self.view = view
        self._names = {topic.topic_id: topic.name for topic in view.topics.values()}
        for event in self._waiting:
            event.set()

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of the topic with this id; None for an unknown one."""
        return self._names.get(topic_id)

    async def until(self, holds: Callable[[ClusterView], bool], timeout_s: float) -> None:
        """Waits for a view for which `holds` is true; TimeoutError after `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            while not holds(self.view):
                event = asyncio.Event()
                self._waiting.add(event)
                try:
                    await event.wait()
                finally:
                    self._waiting.discard(event)
