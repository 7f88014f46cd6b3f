"""Handles requests that take long in turns of the event loop, so that nobody waits for more than one turn.

    connection → LongRequests.begin → a thread, which runs only while the loop waits for it → the answer

A handler is plain code that may pause anywhere (`millrace.turns`). So it has a thread, but never runs at the same time
as the loop or another handler: the loop gives it a turn of `TURN_S` and waits until the thread gives the turn back, at
the first pause behind the turn's end. Between two turns the loop serves whoever else has something ready. Only what a
handler does `beside` the loop, as to decode its request and to encode its answer, really goes on beside it.

`MOST_AT_ONCE` requests have turns, one after the other; the rest wait in the order in which they came. Meanwhile the
collector of cycles is off: such a request makes hundreds of thousands of objects, and whenever there are a quarter more
the collector would look at all of them, for up to half a second.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from millrace.clock import Clock
from millrace.turns import take_turns
from millrace_broker.handlers.api import Answer, Later, Reply

TURN_S = 0.005
MOST_AT_ONCE = 2


class LongRequests:
    """The requests of one event loop that take long."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.monotonic_s
        self._waiting: deque[_LongRequest] = deque()
        self._ready: deque[_LongRequest] = deque()
        self._begun = 0
        self._is_due = False  # the next turn

    def begin(self, handle: Callable[[], Reply], answered: Callable[[], None]) -> Later:
        """Returns the answer that `handle` will give; `answered` is called when it is there."""
        request = _LongRequest(self, handle, self._now_s)
        self._waiting.append(request)
        self._begin_next()
        answer = asyncio.ensure_future(_answered(request.returned))
        answer.add_done_callback(lambda _: answered())
        return answer

    def waits(self) -> None:
        """Lets another request begin while one waits for somebody else."""
        self._begun -= 1
        self._collect()
        self._begin_next()

    def waits_no_longer(self, request: _LongRequest) -> None:
        """Lets that request have its next turn."""
        self._begun += 1
        gc.disable()
        self.is_ready(request)

    def is_ready(self, request: _LongRequest) -> None:
        """Lets a request that was left beside the loop have its next turn."""
        self._ready.append(request)
        self._call_soon()

    def _begin_next(self) -> None:
        while self._waiting and self._begun < MOST_AT_ONCE:
            request = self._waiting.popleft()
            if request.returned.cancelled():
                continue
            self._begun += 1
            gc.disable()
            request.start()
            self._ready.append(request)
            self._call_soon()

    def _call_soon(self) -> None:
        if self._ready and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._give_turn)

    def _give_turn(self) -> None:
        self._is_due = False
        request = self._ready.popleft()
        request.give_turn()
        if request.is_done:
            self._begun -= 1
            self._collect()
            request.settle()
            self._begin_next()
        elif not request.is_beside:
            self._ready.append(request)
        self._call_soon()

    def _collect(self) -> None:
        """Lets the collector look at what is young, as it would have by now."""
        gc.enable()
        gc.collect(0)
        if self._begun:
            gc.disable()


class _LongRequest:
    """One request, and the thread that handles it."""

    def __init__(self, requests: LongRequests, handle: Callable[[], Reply], now_s: Callable[[], float]) -> None:
        self._requests = requests
        self._handle = handle
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()
        self._given, self._given_back = threading.Semaphore(0), threading.Semaphore(0)
        self._ends_s = 0.0
        self._reply: Reply = None
        self._error: BaseException | None = None
        self.returned: asyncio.Future[Reply] = self._loop.create_future()
        self.is_done = False
        self.is_beside = False

    # On the thread of the loop.

    def start(self) -> None:
        """Makes the thread, which waits for its first turn; a broker that ends does not wait for it."""
        threading.Thread(target=self._run, name="long-request", daemon=True).start()

    def give_turn(self) -> None:
        """Returns when the turn has been given back."""
        self._ends_s = self._now_s() + TURN_S
        self._given.release()
        self._given_back.acquire()

    def settle(self) -> None:
        """Tells what the handler has returned or raised; nobody wants it where the connection has ended."""
        if self.returned.cancelled():
            if isinstance(self._reply, asyncio.Future):
                self._reply.cancel()
        elif self._error is not None:
            self.returned.set_exception(self._error)
        else:
            self.returned.set_result(self._reply)

    # On its own thread.

    def pause(self) -> None:
        """Waits for the next turn if the time of this one is over."""
        if self._now_s() >= self._ends_s:
            self._given_back.release()
            self._given.acquire()

    def leave(self) -> None:
        """Gives this turn back; the next one comes only after `come_back`."""
        self.is_beside = True
        self._given_back.release()

    def come_back(self) -> None:
        """Waits for the next turn."""
        self._loop.call_soon_threadsafe(self._come_back)
        self._given.acquire()

    def wait_for(self, future: asyncio.Future[Any] | None) -> None:
        """Waits for the turn after a future is done; for the next one where there is none."""
        self.is_beside = True
        if future is None:
            self._loop.call_soon(self._come_back)
        else:
            self._requests.waits()
            future.add_done_callback(self._waits_no_longer)
        self._given_back.release()
        self._given.acquire()

    def _waits_no_longer(self, _: asyncio.Future[Any]) -> None:
        self.is_beside = False
        self._requests.waits_no_longer(self)

    def _come_back(self) -> None:
        self.is_beside = False
        self._requests.is_ready(self)

    def _run(self) -> None:
        self._given.acquire()
        take_turns(self)
        asyncio._set_running_loop(self._loop)  # noqa: SLF001 -- the handler makes futures of the loop that waits for it
        try:
            self._reply = self._handle()
        except BaseException as error:  # noqa: BLE001 -- it is raised to who waits for the answer
            self._error = error
        self.is_done = True
        self._given_back.release()


async def _answered(returned: asyncio.Future[Reply]) -> Answer:
    reply = await returned
    return await reply if isinstance(reply, asyncio.Future) else reply
