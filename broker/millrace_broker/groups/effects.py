"""What a group asks of its surroundings. A group returns these and does nothing else.

    Answer       complete the request that holds the ticket
    SetTimer     call `timer_expired` with this timer after a delay; one set earlier under its name is replaced
    CancelTimer  forget a timer, if it is set
    Store        append records; `stored` is called with the outcome once the in-sync replicas have them

`Store` comes last among the effects of one event.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from millrace_broker.groups.records import Record

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
    """Records to keep; `outcome` says to the group what they were for."""

    records: tuple[Record, ...]
    outcome: Any


Effect = Answer | SetTimer | CancelTimer | Store
Effects = list[Effect]
