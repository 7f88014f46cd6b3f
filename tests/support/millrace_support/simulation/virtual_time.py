"""An event loop whose time does not pass: when nothing is ready, the time jumps to the next timer.

    loop = VirtualTimeLoop(Random(seed))
    loop.run_until_complete(...)         hours of timers in milliseconds
    clock = VirtualClock(loop)           the same time as a `millrace.clock.Clock`

What is given to other threads runs in this one, a moment later, so that the order of all that happens is decided by
timers and by the chance that is handed in. The loop knows no sockets: `connect` makes its connections.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, TypeVar

from millrace.addresses import Address

START_MS = 1_700_000_000_000
MOST_SECONDS_IN_A_THREAD = 0.003
MOST_TURNS_AT_A_TIME = 100_000

T = TypeVar("T")
Connect = Callable[[Address, Callable[[], asyncio.BaseProtocol]], Awaitable[asyncio.BaseTransport]]


class NothingToWaitForError(Exception):
    """Every task waits for another one, and no timer is set: in real time, the program would hang."""


class BusyForEverError(Exception):
    """The loop has turned very often without a moment passing: in real time, the program would use up a core."""


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """The loop. `chance` decides when work of other threads is done. Timers of the same time fire in their order."""

    _ready: deque[Handle]
    _stopping: bool

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._now_s = 0.0
        self._turns_left = MOST_TURNS_AT_A_TIME
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._count = count()
        self._chance = chance
        self.connect: Connect = _no_network

    def time(self) -> float:
        """Returns the virtual seconds since the loop was made."""
        return self._now_s

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> TimerHandle:  # type: ignore[override]
        """Calls the function at a virtual time."""
        timer = TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._count), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        """Calls the function after those that are ready."""
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """Calls all that is ready; if nothing is, the time jumps to the next timer."""
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise NothingToWaitForError
            if timers[0][0] > self._now_s:
                self._now_s, self._turns_left = timers[0][0], MOST_TURNS_AT_A_TIME
        self._turns_left -= 1
        if not self._turns_left:
            self._turns_left = MOST_TURNS_AT_A_TIME
            raise BusyForEverError
        while timers and timers[0][0] <= self._now_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001  a loop runs its handles

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # noqa: ARG002
        """Calls the function in this thread, a moment later."""
        outcome: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if outcome.done():
                return
            try:
                outcome.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  as a thread hands on whatever its function raises
                outcome.set_exception(error)

        self.call_later(self._chance.uniform(0, MOST_SECONDS_IN_A_THREAD), call)
        return outcome

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, ssl: None = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects through the network that is handed in as `connect`."""
        assert ssl is None  # simulated brokers speak plainly
        protocol = protocol_factory()
        transport = await self.connect(Address(host, port), lambda: protocol)
        return transport, protocol

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        """Does what `call_soon` does, as there is only one thread."""
        return self.call_soon(callback, *args, context=context)


class VirtualClock:
    """A `millrace.clock.Clock` that shows a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time

    def now_ms(self) -> int:
        """Returns the milliseconds since the epoch."""
        return START_MS + self.monotonic_ms()

    def now_ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        return self.now_ms() * 1_000_000

    def monotonic_ms(self) -> int:
        """Returns the whole milliseconds since the loop was made."""
        return round(self._time() * 1000)

    def monotonic_s(self) -> float:
        """Returns the seconds since the loop was made."""
        return self._time()


class SetClock(VirtualClock):
    """The clock of one machine, whose time of day is `ahead_ms` ahead of the others', or behind if it is negative."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """Returns the milliseconds since the epoch, as this machine has them."""
        return super().now_ms() + self.ahead_ms


async def _no_network(address: Address, _: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseTransport:
    raise ConnectionRefusedError(f"nothing listens at {address}")
