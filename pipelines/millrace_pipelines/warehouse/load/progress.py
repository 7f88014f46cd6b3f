"""What a load, or a reload, reports while it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """The points of a load between which something durable happens, in order."""

    PLANNED = "planned"
    WRITTEN = "written"
    DEAD_LETTERS_COMMITTED = "dead letters committed"
    COMMITTED = "committed"
    PUBLISHED = "published"


class LoadListener(Protocol):
    """Follows a load; an error that `reached` raises stops it like any other."""

    def reached(self, step: Step) -> None:
        """Hears, on the load's thread, that it is at this step."""
        ...

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Hears, on another thread, how many tasks are finished, and how many records they have read."""
        ...


class SilentListener:
    """A listener that ignores everything."""

    def reached(self, step: Step) -> None:
        """Does nothing."""

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Does nothing."""
