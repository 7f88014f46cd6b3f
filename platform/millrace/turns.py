"""Lets work that takes long go on in turns, from wherever in it, so that one thread's event loop serves others between.

    pause()            ends the turn if its time is over; the work goes on in its next one
    each(entries)      yields entries, and pauses before each
    beside(work)       does what reads and changes nothing that others see, beside the event loop
    undivided()        a block within which no turn ends
    later(coroutine)   goes on with a coroutine in the same turns; without turns, in a task

Whatever others may see or change is whole where a turn ends. Work that nobody has given turns, as nearly all, goes on
without a pause, and pays a look at its thread for each call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Entry = TypeVar("Entry")
Result = TypeVar("Result")


class Turns(Protocol):
    """The turns that a piece of work is given."""

    def pause(self) -> None:
        """Waits for the next turn if the time of this one is over."""
        ...

    def leave(self) -> None:
        """Gives this turn back."""
        ...

    def come_back(self) -> None:
        """Waits for the next turn."""
        ...

    def wait_for(self, future: asyncio.Future[Any] | None) -> None:
        """Waits for the turn after a future is done; for the next one where there is none."""
        ...


class _Thread(threading.local):
    turns: Turns | None = None


_thread = _Thread()


def take_turns(turns: Turns) -> None:
    """Has all work of this thread go on in these turns from now on."""
    _thread.turns = turns


def pause() -> None:
    """Ends the turn of this thread's work if its time is over."""
    turns = _thread.turns
    if turns is not None:
        turns.pause()


def has_turns() -> bool:
    """Returns whether this thread's work goes on in turns."""
    return _thread.turns is not None


@contextmanager
def undivided() -> Iterator[None]:
    """Ends no turn until the block ends."""
    turns, _thread.turns = _thread.turns, None
    try:
        yield
    finally:
        _thread.turns = turns


def each(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yields the entries, and pauses before each. They must not change meanwhile."""
    turns = _thread.turns
    if turns is None:
        yield from entries
        return
    for entry in entries:
        turns.pause()
        yield entry


def beside(work: Callable[[], Result]) -> Result:
    """Returns what the work comes to; others have their turns while it goes on."""
    turns = _thread.turns
    if turns is None:
        return work()
    turns.leave()
    try:
        return work()
    finally:
        turns.come_back()


def later(work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """Returns what the coroutine comes to. It may not wait by what asks for the task that waits (`asyncio.timeout`)."""
    turns = _thread.turns
    if turns is None:
        return asyncio.ensure_future(work)
    outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as end:
            outcome.set_result(end.value)
            return outcome
        if awaited is not None:
            awaited._asyncio_future_blocking = False  # noqa: SLF001 -- as every task does that waits for a future
        turns.wait_for(awaited)
