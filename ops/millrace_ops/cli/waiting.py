"""Says that a command waits, once it has waited for the cluster for two seconds, so that nobody takes it for hung.

At a terminal a line counts the seconds, and vanishes with the answer. Elsewhere one line is written, once in a command.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.clock import Clock

PATIENCE_S = 2.0
LOOK_INTERVAL_S = 0.5
ERASE = "\r\x1b[2K"


class Waiting:
    """Makes the contexts in which a command waits for a cluster; of one within another, the outer one counts.

    A thread looks on from the first one to the end of the process.
    """

    def __init__(self, addresses: str, at_most_s: float, clock: Clock) -> None:
        self._words = f"millrace: still waiting for an answer of {addresses}, {at_most_s:.0f} s at most"
        self._now_s = clock.monotonic_s
        self._lock = threading.Lock()  # of all below
        self._began_s: float | None = None
        self._is_shown = False
        self._looks_on = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Makes the context of one wait."""
        if self._began_s is not None:
            yield
            return
        self._begin()
        try:
            yield
        finally:
            self._end()

    def _begin(self) -> None:
        with self._lock:
            self._began_s = self._now_s()
            if not self._looks_on:
                self._looks_on = True
                threading.Thread(target=self._look_on, name="waiting", daemon=True).start()

    def _end(self) -> None:
        with self._lock:
            self._began_s = None
            if self._is_shown and sys.stderr.isatty():
                self._is_shown = False
                print(ERASE, end="", file=sys.stderr, flush=True)

    def _look_on(self) -> None:
        pause = threading.Event()  # which nobody sets
        while not pause.wait(LOOK_INTERVAL_S):
            with self._lock:
                if self._began_s is not None and self._now_s() - self._began_s >= PATIENCE_S:
                    self._show(self._now_s() - self._began_s)

    def _show(self, waited_s: float) -> None:
        if sys.stderr.isatty():
            print(f"{ERASE}{self._words}; {waited_s:.0f} s", end="", file=sys.stderr, flush=True)
        elif not self._is_shown:
            print(self._words, file=sys.stderr, flush=True)
        self._is_shown = True
