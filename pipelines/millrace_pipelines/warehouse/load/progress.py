"""What a load tells while it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """The points of a load between which something lasting happens, in order."""

    PLANNED = "planned"
    WRITTEN = "written"
    DEAD_LETTERS_COMMITTED = "dead letters committed"
    COMMITTED = "committed"
    PUBLISHED = "published"


class LoadListener(Protocol):
    """Follows a load; an error raised by `reached` stops it like any other."""

    def reached(self, step: Step) -> None:
        """The load is at this step; called on its own thread."""
        ...

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """So many tasks are finished, and have read so many records; called on a thread of its own."""
        ...


class SilentListener:
    """Tells nobody."""

    def reached(self, step: Step) -> None:
        """Ignore it."""

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Ignore it."""
