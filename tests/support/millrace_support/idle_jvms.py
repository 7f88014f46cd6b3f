"""JVMs that have run a program and wait for the next one, so that it need not start a JVM of its own."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Jvm = TypeVar("Jvm")


class IdleJvms(Generic[Jvm]):
    """JVMs by what they may run; for any thread.

    Args:
        maximum: How many are kept. Each holds up to a quarter of a gigabyte.
        end: Ends one.
    """

    def __init__(self, maximum: int, end: Callable[[Jvm], object]) -> None:
        self._maximum, self._end = maximum, end
        self._lock = Lock()
        self._idle: list[tuple[Hashable, Jvm]] = []

    def take(self, key: Hashable) -> Jvm | None:
        """Removes a JVM that was kept with this key from the idle ones, and returns it; None if there is none."""
        with self._lock:
            found = next((one for one in self._idle if one[0] == key), None)
            if found is None:
                return None
            self._idle.remove(found)
            return found[1]

    def keep(self, key: Hashable, jvm: Jvm) -> None:
        """Keeps a JVM; ends the one that has been idle for the longest where too many are."""
        with self._lock:
            self._idle.append((key, jvm))
            surplus = self._idle.pop(0)[1] if len(self._idle) > self._maximum else None
        if surplus is not None:
            self._end(surplus)

    def close(self) -> None:
        """Ends the idle JVMs."""
        with self._lock:
            while self._idle:
                self._end(self._idle.pop()[1])
