"""Holds requests that wait for something to happen to a partition, as a long-polling fetch waits for records.

An operation is held under the keys that it waits for. `check(key)` asks each operation under that key whether it can
complete now, and tells it the key, so that an operation that waits for thousands of keys need not look at all of them.
An operation that does not complete expires at its deadline. It leaves all its keys as soon as it completes or expires,
so each ends exactly once. Timers are set by `call_later`, as an event loop has it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

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
    """An operation that waits."""

    def try_complete(self, key: WaitedFor_contra) -> bool:
        """Completes the operation if what it waits for has happened to this key, and returns whether it did."""
        ...

    def expire(self) -> None:
        """Completes the operation with what there is."""
        ...


class Purgatory(Generic[Key]):
    """Holds operations by key until they complete or expire."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._watchers: dict[Key, dict[int, DelayedOperation[Key]]] = {}
        self._held: dict[int, tuple[tuple[Key, ...], Cancellable]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, operation: DelayedOperation[Key], keys: Iterable[Key], wait_ms: int) -> None:
        """Holds an operation until a check completes it or `wait_ms` have passed."""
        identity = id(operation)
        distinct = tuple(dict.fromkeys(keys))
        for key in distinct:
            self._watchers.setdefault(key, {})[identity] = operation
        timer = self._call_later(wait_ms / 1000, lambda: self._expire(operation))
        self._held[identity] = (distinct, timer)

    def check(self, key: Key) -> None:
        """Completes the operations that waited for what has happened to `key`."""
        watchers = self._watchers.get(key)
        if not watchers:
            return
        for operation in tuple(watchers.values()):
            if id(operation) in self._held and operation.try_complete(key):
                self._release(operation)

    def release(self, operation: DelayedOperation[Key]) -> None:
        """Forgets an operation whose client has gone."""
        if id(operation) in self._held:
            self._release(operation)

    def expire_all(self) -> None:
        """Completes all operations with what there is, as the broker is about to stop."""
        for keys, _ in tuple(self._held.values()):
            for operation in tuple(self._watchers.get(keys[0], {}).values()):
                self._expire(operation)

    def _expire(self, operation: DelayedOperation[Key]) -> None:
        if id(operation) in self._held:
            self._release(operation)
            operation.expire()

    def _release(self, operation: DelayedOperation[Key]) -> None:
        keys, timer = self._held.pop(id(operation))
        timer.cancel()
        for key in keys:
            watchers = self._watchers[key]
            del watchers[id(operation)]
            if not watchers:
                del self._watchers[key]
