"""What an instance tells people: a sentence once, and once more when it is over.

An error that may pass, such as that of a leader that moves, is told only once it has lasted for a while. One that needs
somebody to change rights, credentials or settings is told at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace_pipelines.mirror.rights import is_lasting

PATIENCE_S = 5.0

Tell = Callable[[str], None]
"""Shows a line to people."""


@dataclass(slots=True)
class _Trouble:
    since_s: float
    is_told: bool = False


class Troubles:
    """Tells of each thing's trouble, and of its end, once; any thread may use it."""

    def __init__(self, tell: Tell, clock: Clock) -> None:
        self._tell = tell
        self._now_s = clock.monotonic_s
        self._lock = threading.Lock()
        self._troubles: dict[str, _Trouble] = {}

    def fails(self, about: str, error: MillraceError) -> None:
        """Takes an error of something that is tried again."""
        with self._lock:
            one = self._troubles.setdefault(about, _Trouble(self._now_s()))
            is_young = self._now_s() - one.since_s < PATIENCE_S and not is_lasting(error)
            if one.is_told or is_young:
                return
            one.is_told = True
        said = str(error) if str(error).startswith(about) else f"{about}: {error}"
        self._tell(f"{said}; it is tried again until it succeeds")

    def works(self, about: str) -> None:
        """Takes a success."""
        if about not in self._troubles:
            return
        with self._lock:
            one = self._troubles.pop(about, None)
        if one is not None and one.is_told:
            self._tell(f"{about}: it works again")
