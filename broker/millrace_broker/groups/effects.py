"""What a group asks of its surroundings. A group returns these and does nothing else.

    Answer       complete the request that holds the ticket
    SetTimer     call `timer_expired` with this timer after a delay; one set earlier under its name is replaced
    CancelTimer  forget a timer, if it is set
    Store        append records; `stored` is called with the outcome once the in-sync replicas have them
    Retire       whoever waits in a group that this one has taken the place of is told to join again
    Succession   another group takes this one's place, or none; what follows are effects of that one's

`Store` and `Succession` come last among the effects of one event.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace_broker.groups.records import Record

if TYPE_CHECKING:
    from millrace_broker.groups.group import Group

Ticket = Any
"""Whoever waits for an answer; a group only hands it back."""


class Answer(NamedTuple):
    """The result of the request that holds the ticket."""

    ticket: Ticket
    result: Any


class SetTimer(NamedTuple):
    """A timer of the group's."""

    timer: Hashable
    delay_ms: int


class CancelTimer(NamedTuple):
    """A timer that is needed no longer."""

    timer: Hashable


class Store(NamedTuple):
    """Records to keep; `outcome` says to the group what they were for.

    `is_rebalance` says that they are of a new generation or epoch.
    """

    records: tuple[Record, ...]
    outcome: Any
    is_rebalance: bool = False


class Retire(NamedTuple):
    """A group that is no more."""

    group: Group


class Succession(NamedTuple):
    """The group that stands under this one's name from now on; its effects are asked for once it does."""

    group: Group | None
    effects: Effects = []  # noqa: RUF012  # never changed


Effect = Answer | SetTimer | CancelTimer | Store | Retire | Succession
Effects = list[Effect]
