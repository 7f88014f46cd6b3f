"""Handles requests that take long in turns of the event loop, so that nobody waits for more than one turn.

    connection → LongRequests.begin → a task, whose steps may end in the middle → the response

A handler is plain code that may pause anywhere (`millrace.turns`). So each step of its task runs in a greenlet: at the
first pause behind the end of its turn (`TURN_S`) it switches back to the task, which waits for its next turn and then
goes on there. The loop gives one turn in each of its rounds, and serves whoever else has something ready. What a
handler does `beside` the loop, as to decode its request and to encode its response, runs on a thread.

`MOST_AT_ONCE` handlers are at work; further requests wait in the order in which they came. Meanwhile the collector of
cycles is off (`cycle_collector`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import groupby, islice
from typing import Any, Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.turns import each, taking
from millrace.wire.encoder import Parts
from millrace_broker.handlers.api import Later, Reply, Response
from millrace_broker.net.cycle_collector import CycleCollector

logger = logging.getLogger(__name__)

TURN_S = 0.005
MOST_AT_ONCE = 2
GATHERED_PARTS = 1000

Result = TypeVar("Result")
Done = TypeVar("Done")
Step = Callable[[Any], Any]  # `send` or `throw` of a coroutine


class LongRequests:
    """Runs the long requests of one event loop a few milliseconds at a time, alternately with everything else.

    Such a slice of time is a turn; a request that has used its turn up waits for its next one at a `pause`.
    """

    def __init__(self, clock: Clock, cycles: CycleCollector | None = None) -> None:
        self.now_s = clock.monotonic_s
        self.cycles = cycles or CycleCollector()
        self.threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="long-request")
        self._handlers = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns: deque[asyncio.Future[None]] = deque()
        self._is_due = False  # the next turn

    def begin(self, handle: Callable[[], Reply], answered: Callable[[], None]) -> Later:
        """Returns the future response of `handle`, run in turns (a few ms each); calls `answered` when it is there."""
        response = asyncio.ensure_future(self._respond(handle))
        response.add_done_callback(lambda _: answered())
        return response

    def later(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """Returns the future result of a coroutine that runs a few ms at a time."""
        return asyncio.ensure_future(self._in_turns(work))

    def next_turn(self) -> asyncio.Future[None]:
        """Returns a future that is done when the caller may run for a few ms; callers are served in order."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._call_soon()
        return turn

    async def _respond(self, handle: Callable[[], Reply]) -> Response:
        await self._handlers.acquire()
        handling = self.later(_called(handle))
        handling.add_done_callback(lambda _: self._handlers.release())
        try:
            reply = await asyncio.shield(handling)
        except asyncio.CancelledError:  # the client has gone, and what it has begun is finished
            handling.add_done_callback(_forget)
            raise
        response = await reply if isinstance(reply, asyncio.Future) else reply
        has_many = isinstance(response, list) and len(response) > GATHERED_PARTS
        return await self.later(_gathered(cast("Parts", response))) if has_many else response

    async def _in_turns(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await _InTurns(self, work)

    def _call_soon(self) -> None:
        if self._turns and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._give_turn)

    def _give_turn(self) -> None:
        self._is_due = False
        turn = self._turns.popleft()
        if not turn.cancelled():
            turn.set_result(None)
        self._call_soon()


class _InTurns(Generic[Result]):
    """Awaits a coroutine in turns (slices of a few ms); its code waits for the next one at a `pause`. For one use."""

    def __init__(self, requests: LongRequests, work: Coroutine[Any, Any, Result]) -> None:
        self._requests = requests
        self._work = work
        self._ends_s = 0.0

    def __await__(self) -> Generator[Any, Any, Result]:
        """Runs the coroutine from one await to the next, each time after waiting for a turn; returns its result."""
        step, given = self._work.send, None
        while True:
            self._requests.cycles.pause()
            try:
                try:
                    yield from self._requests.next_turn().__await__()
                except BaseException as error:  # noqa: BLE001 -- it is the coroutine's
                    step, given = self._work.throw, error
                is_done, outcome = yield from self._step(step, given)
            finally:
                self._requests.cycles.go_on()
            if is_done:
                result: Result = outcome
                return result
            try:
                step, given = self._work.send, (yield outcome)
            except BaseException as error:  # noqa: BLE001 -- it is the coroutine's
                step, given = self._work.throw, error

    def _step(self, step: Step, given: Any) -> Generator[Any, Any, tuple[bool, Any]]:
        """Runs the coroutine up to its next await in an interruptible greenlet; returns the result of `_outcome`."""
        running = greenlet(partial(_outcome, step, given))
        running.gr_context = copy_context()
        switched = self._switch(running.switch)
        while not running.dead:
            try:
                yield from switched.__await__()
            except BaseException as error:  # noqa: BLE001 -- it is raised where the step waits
                switched = self._switch(partial(running.throw, error))
            else:
                switched = self._switch(running.switch)
        outcome: tuple[bool, Any] = switched
        return outcome

    def _switch(self, switch: Callable[[], Any]) -> Any:
        self._ends_s = self._requests.now_s() + TURN_S
        with taking(self):
            return switch()

    # In the greenlet.

    def pause(self) -> None:
        """Waits for the next turn if the few milliseconds of this one are over."""
        if self._requests.now_s() >= self._ends_s:
            _wait(self._requests.next_turn())

    def beside(self, work: Callable[[], Done]) -> Done:
        """Returns the result of `work`, run on a thread, while the event loop handles other requests."""
        done = asyncio.get_running_loop().run_in_executor(self._requests.threads, work)
        _wait(done)
        return done.result()

    def later(self, work: Coroutine[Any, Any, Done]) -> asyncio.Future[Done]:
        """Returns the future result of another coroutine, which runs a few ms at a time, too."""
        return self._requests.later(work)


async def _called(handle: Callable[[], Reply]) -> Reply:
    return handle()


async def _gathered(parts: Parts) -> Parts:
    """Returns the many parts of a response joined into few, interrupted, as the loop would send them all in one go."""
    gathered: Parts = []
    for are_bytes, group in groupby(each(parts), lambda part: isinstance(part, bytes | memoryview)):
        while few := list(islice(group, GATHERED_PARTS)):
            gathered += [b"".join(cast("list[bytes]", few))] if are_bytes else few
    return gathered


def _outcome(step: Step, given: Any) -> tuple[bool, Any]:
    """Calls `step`, a coroutine's `send` or `throw`; returns (False, what it awaits), at its end (True, its result)."""
    try:
        return False, step(given)
    except StopIteration as end:
        return True, end.value


def _wait(awaited: Awaitable[Any]) -> None:
    """Switches from the running greenlet to the event loop until `awaited` is done; raises the error it ends with."""
    getcurrent().parent.switch(awaited)


def _forget(handling: asyncio.Future[Reply]) -> None:
    """Cancels the reply that a handler has made for a client that is gone; logs an unexpected error of the handler."""
    error = handling.exception()
    if error is None:
        reply = handling.result()
        if isinstance(reply, asyncio.Future):
            reply.cancel()
    elif not isinstance(error, MillraceError):
        logger.error("a request whose client has gone failed", exc_info=error)
