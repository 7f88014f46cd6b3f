"""A request for a page, and what a page answers: a template and its values, or another address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.errors import InvalidRequestError
from millrace.times import epoch_ms, parse_time


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the query of the address, the fields of a form, and what forms on the page are to carry.

    `own_troubles` say what is wrong with the broker that serves the console; None if the broker has not reported it.
    """

    path: str
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    form_token: str = ""
    own_troubles: Sequence[str] | None = None

    def need(self, name: str) -> str:
        """Returns a field of the query; raises InvalidRequestError where it is missing."""
        if not self.query.get(name):
            raise InvalidRequestError(f"the address lacks {name}=…")
        return self.query[name]


class Page(NamedTuple):
    """What is shown: a template's name and its values; after `refresh_s` the browser asks again."""

    template: str
    values: Mapping[str, object]
    status: int = 200
    refresh_s: int | None = None


class Redirect(NamedTuple):
    """Another address, below the console."""

    to: str


Answer = Page | Redirect


def time_ms(text: str) -> int:
    """Returns the milliseconds of an ISO 8601 time, UTC unless it says otherwise; raises InvalidRequestError."""
    try:
        return epoch_ms(parse_time(text.strip()))
    except ValueError:
        raise InvalidRequestError(f"{text!r} is no time: expected one like 2026-07-01T12:00") from None
