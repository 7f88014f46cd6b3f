"""Holds requests that wait for something to happen to a partition, as a long-polling fetch waits for records.

    hold(operation, keys)  →  check(key): is_ready(key)?  →  released  →  complete()
                           →  the deadline has passed     →  released  →  expire()

An operation is held under the keys that it waits for. `check(key)` asks each operation under that key whether it is
ready, and tells it the key, so that an operation that waits for thousands of keys need not look at all of them.

What completes an operation may append records, and so check again. Therefore an operation is released before it ends,
so each ends exactly once, and operations end one after the other in the order in which they became ready: an end that
makes others ready is over before theirs begin. An operation that fails is logged and stops no other one.

No turn ends (`millrace.turns`) while operations are asked whether they are ready: others could be held, or end.

Timers are set by `call_later`, as an event loop has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from millrace.turns import undivided

logger = logging.getLogger(__name__)

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
WaitedFor_contra = TypeVar("WaitedFor_contra", contravariant=True)


class Cancellable(Protocol):
    """A timer that has been set."""

    def cancel(self) -> None:
        """Stops the timer from firing."""
        ...


CallLater = Callable[[float, Callable[[], None]], Cancellable]
CallSoon = Callable[[Callable[[], None]], object]


class DelayedOperation(Protocol[WaitedFor_contra]):
    """A request that waits in the purgatory for keys, such as partitions or groups, to change."""

    def is_ready(self, key: WaitedFor_contra) -> bool:
        """Returns whether the operation can complete now that `key` has changed; has no other effect."""
        ...

    def complete(self) -> None:
        """Answers the request; called once `is_ready` has returned true."""
        ...

    def expire(self) -> None:
        """Answers the request with what there is so far; called once its deadline has passed."""
        ...


class _Held(NamedTuple, Generic[Key]):
    """A waiting operation, the keys that it waits for, and the timer of its deadline."""

    operation: DelayedOperation[Key]
    keys: tuple[Key, ...]
    timer: Cancellable


class Purgatory(Generic[Key]):
    """Keeps operations (requests that wait), by the keys that they wait for, until they complete or expire."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._watchers: dict[Key, dict[int, DelayedOperation[Key]]] = {}
        self._held: dict[int, _Held[Key]] = {}
        self._ends: deque[Callable[[], None]] = deque()
        self._is_ending = False

    def __len__(self) -> int:
        return len(self._held)

    def complete_or_hold(self, operation: DelayedOperation[Key], key: Key, wait_ms: int) -> None:
        """Completes an operation if it is ready, after those that were ready before; else holds it for `key`."""
        with undivided():
            is_ready = self._is_ready(operation, key)
        if is_ready:
            self._end(operation.complete)
        else:
            self.hold(operation, (key,), wait_ms)

    def hold(self, operation: DelayedOperation[Key], keys: Iterable[Key], wait_ms: int) -> None:
        """Keeps an operation until `check` finds it ready or `wait_ms` have passed."""
        identity = id(operation)
        distinct = tuple(dict.fromkeys(keys))
        for key in distinct:
            self._watchers.setdefault(key, {})[identity] = operation
        timer = self._call_later(wait_ms / 1000, lambda: self._expire(operation))
        self._held[identity] = _Held(operation, distinct, timer)

    def check(self, key: Key) -> None:
        """Completes the operations that wait for `key` and are ready."""
        watchers = self._watchers.get(key)
        if not watchers:
            return
        with undivided():
            ready = [each for each in watchers.values() if self._is_ready(each, key)]
        for operation in ready:
            self.release(operation)
            self._ends.append(operation.complete)
        self._end_in_order()

    def release(self, operation: DelayedOperation[Key]) -> None:
        """Removes an operation, if it is held, unanswered: its client has gone, or it is about to be answered."""
        held = self._held.pop(id(operation), None)
        if held is None:
            return
        held.timer.cancel()
        for key in held.keys:
            watchers = self._watchers[key]
            del watchers[id(operation)]
            if not watchers:
                del self._watchers[key]

    def expire_all(self) -> None:
        """Expires all operations, as the broker is about to stop."""
        for held in tuple(self._held.values()):
            self._expire(held.operation)

    def _expire(self, operation: DelayedOperation[Key]) -> None:
        if id(operation) in self._held:
            self.release(operation)
            self._end(operation.expire)

    def _end(self, end: Callable[[], None]) -> None:
        self._ends.append(end)
        self._end_in_order()

    def _end_in_order(self) -> None:
        """Answers the operations that are due; one that becomes due meanwhile is answered after those."""
        if self._is_ending:
            return
        self._is_ending = True
        try:
            while self._ends:
                _attempt(self._ends.popleft())
        finally:
            self._is_ending = False

    def _is_ready(self, operation: DelayedOperation[Key], key: Key) -> bool:
        """Returns whether an operation is ready; false if that raises: the operation then waits for its deadline."""
        try:
            return operation.is_ready(key)
        except Exception:
            logger.exception("A waiting %s can't say whether it is ready", type(operation).__name__)
            return False


def _attempt(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:
        logger.exception("%s has failed", getattr(end, "__qualname__", end))


def settle(reply: asyncio.Future[T], make: Callable[[], T | asyncio.Future[T]]) -> None:
    """Sets `reply`, unless it is done, to what `make` returns or raises; a future that it returns is awaited first."""
    if reply.done():
        return
    try:
        result = make()
    except Exception as error:  # noqa: BLE001  whoever waits for the reply is told
        reply.set_exception(error)
        return
    if isinstance(result, asyncio.Future):
        result.add_done_callback(partial(_hand_on, reply))
    else:
        reply.set_result(result)


def _hand_on(reply: asyncio.Future[T], made: asyncio.Future[T]) -> None:
    if not made.cancelled():
        settle(reply, made.result)
