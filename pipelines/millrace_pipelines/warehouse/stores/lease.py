"""What a lease is, wherever its table lies: who runs on a table, and how far it is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

LEASES_DIRECTORY = "_running"
LEASE_SUFFIX = ".lease"


class Progress(NamedTuple):
    """The progress of a running operation: when it began its tasks, tasks done, all tasks, and records read."""

    started_ms: int
    tasks_done: int
    tasks: int
    records: int


class Running(NamedTuple):
    """An operation that holds a lease; `progress` is None where the operation has noted none."""

    operation_id: str
    started_ms: int
    progress: Progress | None


class Lease(Protocol):
    """Shows others that an operation runs."""

    def note(self, progress: Progress) -> None:
        """Notes the operation's progress for others to see; does nothing once the lease has ended."""

    def confirm(self) -> None:
        """Raises LeaseLostError where others took the operation for dead; they may have removed its files."""


class Asked(NamedTuple):
    """What a look at a table's leases found: the ids of operations that run, and the names of leases that were ended.

    Nothing says yet that those whose leases were ended can't commit any more.
    """

    held: frozenset[str]
    ended: frozenset[str]


class Leases(Protocol):
    """Holds leases of one table, and tells which operations hold one; a folder and a bucket do that differently."""

    def hold(self, operation_id: str) -> AbstractContextManager[Lease]:
        """Holds an operation's lease while the context lasts."""

    def sees(self, operation_id: str) -> bool:
        """Returns whether this process sees an operation's lease, or could if it were there."""

    def ask(self, *, dry_run: bool) -> Asked:
        """Returns who runs; unless `dry_run`, ends the leases of those that don't any more."""

    def forget(self, ended: frozenset[str]) -> None:
        """Removes leases that were ended."""

    def running(self) -> list[Running]:
        """Returns the operations that run, in the order of their ids; it changes nothing."""


class NoLease:
    """The lease of an operation whose table isn't there yet: nobody could ask for it."""

    def note(self, progress: Progress) -> None:
        """Does nothing."""

    def confirm(self) -> None:
        """Does nothing."""
