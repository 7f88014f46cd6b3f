"""Reads what a maintenance request asks for: which topics, and whether anything is to be changed (docs/maintenance.md).

    POST /maintenance/retention?topics=flights,logs-*&dry_run=true
    POST /maintenance/retention        {"topics": ["flights", "logs-*"], "dry_run": true}

A name with `*`, `?` or `[` is a pattern, as in a shell; topics can't have these characters in their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from millrace.errors import InvalidRequestError, UnknownTopicError
from millrace_broker.admin.request_body import parse_body, shown

Action = Literal["retention", "compaction", "verify"]

TOPICS, DRY_RUN, ONLY_DUE = "topics", "dry_run", "only_due"
FIELDS: Mapping[Action, Sequence[str]] = {
    "retention": (TOPICS, DRY_RUN),
    "compaction": (TOPICS, DRY_RUN, ONLY_DUE),
    "verify": (TOPICS, DRY_RUN),
}
TRUTH = {"true": True, "false": False}
PATTERN_CHARACTERS = "*?["


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """What is asked for.

    Attributes:
        topics: Names and patterns of topics; none for all topics.
        dry_run: Whether the answer tells what would be done, and nothing is changed.
        only_due: Whether compaction leaves out logs that their own settings do not ask to compact yet.
    """

    topics: tuple[str, ...] = ()
    dry_run: bool = False
    only_due: bool = False

    @property
    def does_everything(self) -> bool:
        """Whether nothing is left for the broker's own timer to do."""
        return not self.topics and not self.dry_run


def read_request(action: Action, query: Iterable[tuple[str, str]], body: bytes) -> MaintenanceRequest:
    """Returns the request of a query and a JSON body, either of which may be empty.

    Raises InvalidRequestError, which names the field.
    """
    given = _body_fields(body)
    for name, text in query:
        if name in given and name != TOPICS:
            raise InvalidRequestError(f"{name}: the field is given twice")
        given[name] = [*_names(given.get(name, [])), *text.split(",")] if name == TOPICS else TRUTH.get(text, text)
    for name in given:
        if name not in FIELDS[action]:
            raise InvalidRequestError(f"{name}: unknown field of {action}, expected {', '.join(FIELDS[action])}")
    return MaintenanceRequest(
        topics=_names(given.get(TOPICS, [])),
        dry_run=_truth(DRY_RUN, given.get(DRY_RUN, False)),
        only_due=_truth(ONLY_DUE, given.get(ONLY_DUE, False)),
    )


def selected_topics(wanted: Sequence[str], known: Collection[str]) -> frozenset[str] | None:
    """Returns the known topics that names and patterns stand for, None for all where `wanted` is empty.

    A pattern may stand for no topic. Raises UnknownTopicError, which has the names that no topic has.
    """
    if not wanted:
        return None
    patterns = [each for each in wanted if any(character in each for character in PATTERN_CHARACTERS)]
    names = set(wanted) - set(patterns)
    if unknown := sorted(names - set(known)):
        raise UnknownTopicError(f"{TOPICS}: this broker has no log of {', '.join(map(repr, unknown))}")
    return frozenset(names | {topic for topic in known if any(fnmatchcase(topic, pattern) for pattern in patterns)})


def _body_fields(body: bytes) -> dict[str, object]:
    if not body.strip():
        return {}
    fields = parse_body(body)
    if not isinstance(fields, dict):
        raise InvalidRequestError("the body is no JSON object")
    return fields


def _names(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidRequestError(f"{TOPICS}: a list of names and patterns is expected, not {shown(value)}")
    return tuple(names)


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name}: true or false is expected, not {shown(value)}")
    return value
