"""Keeps requests in order that have to wait before they are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

Outcome = TypeVar("Outcome")


class InOrder(Generic[Outcome]):
    """Work that goes on one piece at a time for each key, in the order in which it came."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Task[Outcome]] = {}

    def is_busy(self, key: Hashable) -> bool:
        """Returns whether work of this key goes on or waits, so that what comes now has to wait too."""
        return key in self._last

    async def until_idle(self, key: Hashable) -> None:
        """Waits until no work of this key goes on or waits."""
        while (last := self._last.get(key)) is not None:
            await asyncio.wait((last,))

    def put(self, key: Hashable, work: Callable[[], Coroutine[object, object, Outcome]]) -> asyncio.Task[Outcome]:
        """Begins the work once all earlier work of the key has ended, in whatever way."""
        task = asyncio.create_task(_after(self._last.get(key), work))
        self._last[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))
        return task

    def _ended(self, key: Hashable, task: asyncio.Task[Outcome]) -> None:
        if self._last.get(key) is task:
            del self._last[key]


async def _after(
    before: asyncio.Task[Outcome] | None, work: Callable[[], Coroutine[object, object, Outcome]]
) -> Outcome:
    if before is not None:
        await asyncio.wait((before,))
    return await work()
