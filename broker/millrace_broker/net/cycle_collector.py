"""Keeps the interpreter's collector of cycles from making the event loop wait.

The collector looks at all old objects at once whenever they have become a quarter more, which takes 0.1 s for a million
of them. So what it has looked at is frozen: it is out of the collector's sight from then on.

    generations 0 to 2     some 70,000 objects at most, at which the collector looks as ever, for 10 ms
    frozen                 all older ones; it looks at them once a day, and after CONNECTIONS have ended

Objects without cycles end as ever, when nothing refers to them any more. What is frozen and becomes a cycle then stays
for a while: of a connection the transport, 1.5 KB, and what belongs to a deleted topic.

This concerns the whole process, so only a broker that has one of its own does so (`frozen`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

DAY_S = 86_400
CONNECTIONS = 50_000
OLDEST = 2


class CycleCollector:
    """Controls the garbage collector of this process, so that it does not stop the event loop for long."""

    def __init__(self) -> None:
        self._at_work = 0  # long requests that have a turn, or wait for one
        self._freezes = False
        self._ended = 0  # connections, since all objects were looked at

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Exempts all objects, and later ones that get old, from collection (`gc.freeze`) while the context lasts."""
        gc.freeze()
        gc.callbacks.append(_freeze_old)
        self._freezes = True
        looking = asyncio.get_running_loop().create_task(self._look_daily())
        try:
            yield
        finally:
            looking.cancel()
            self._freezes = False
            gc.callbacks.remove(_freeze_old)
            gc.unfreeze()

    def pause(self) -> None:
        """Turns the collector off until `go_on`, as a long request makes hundreds of thousands of objects."""
        self._at_work += 1
        gc.disable()

    def go_on(self) -> None:
        """Ends one `pause`: freezes or collects the new objects, and turns the collector on after the last one."""
        self._at_work -= 1
        if self._freezes:
            gc.freeze()
        else:
            gc.collect(0)
        if not self._at_work:
            gc.enable()

    def connection_ended(self) -> None:
        """Counts a connection that has ended; after `CONNECTIONS` of them collects all objects, also frozen ones."""
        self._ended += 1
        if self._freezes and self._ended >= CONNECTIONS:
            self._look_at_all()

    async def _look_daily(self) -> None:
        while True:
            await asyncio.sleep(DAY_S)
            self._look_at_all()

    def _look_at_all(self) -> None:
        self._ended = 0
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _freeze_old(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()
