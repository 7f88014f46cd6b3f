"""Lets work that takes long go on in turns, from wherever in it, so that one thread's event loop serves others between.

    pause()            ends the turn if its time is over; the work goes on in its next one
    each(entries)      yields entries, and pauses before each
    beside(work)       does what reads and changes nothing that others see, beside the event loop
    undivided()        a block within which no turn ends
    later(coroutine)   goes on with a coroutine in a task, which has turns where its maker has them
    later_too()        returns what does so, too, when its maker has ended

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
    """Divides long work on an event loop into turns (short slices of time), between which other work runs."""

    def pause(self) -> None:
        """Waits for the next turn if the time of this one is over."""

    def beside(self, work: Callable[[], Result]) -> Result:
        """Runs `work` on another thread, so that the event loop serves other work; returns its result."""

    def later(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """Starts a coroutine as a task that has turns of its own, and returns its future."""


class Later(Protocol):
    """A function that starts a coroutine as a task, as `later` does."""

    def __call__(self, work: Coroutine[Any, Any, Result], /) -> asyncio.Future[Result]:
        """Starts the coroutine as a task, and returns its future."""


class _Thread(threading.local):
    turns: Turns | None = None


_thread = _Thread()


@contextmanager
def taking(turns: Turns) -> Iterator[None]:
    """Has `pause` and the other functions, in this thread, use `turns` until the context ends."""
    _thread.turns = turns
    try:
        yield
    finally:
        _thread.turns = None


def pause() -> None:
    """Lets other work run if this turn (slice of time on the event loop) is over; does nothing in undivided work."""
    turns = _thread.turns
    if turns is not None:
        turns.pause()


def has_turns() -> bool:
    """Returns whether this thread's work is divided into turns, between which the event loop serves others."""
    return _thread.turns is not None


@contextmanager
def undivided() -> Iterator[None]:
    """Has `pause` do nothing within the block, so that no other work runs before the block ends."""
    turns, _thread.turns = _thread.turns, None
    try:
        yield
    finally:
        _thread.turns = turns


def each(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Returns an iterable of the entries, for one reading, that calls `pause` before each; they must not change."""
    turns = _thread.turns
    return entries if turns is None else _each(turns, entries)


def _each(turns: Turns, entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        turns.pause()
        yield entry


def beside(work: Callable[[], Result]) -> Result:
    """Returns what `work` returns; runs it on another thread if this thread's work is divided into turns."""
    turns = _thread.turns
    return work() if turns is None else turns.beside(work)


def later(work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """Starts a coroutine as a task, divided into turns if this thread's work is, and returns its future."""
    return later_too()(work)


def later_too() -> Later:
    """Returns a function like `later`, which can be called when this thread's work has ended."""
    turns = _thread.turns
    return asyncio.ensure_future if turns is None else turns.later
