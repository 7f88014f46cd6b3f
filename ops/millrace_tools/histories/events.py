"""The history: what each process asked, what it was told, and when (docs/histories.md describes the lines).

    {"time_ns": 10, "process": "p1", "event": "invoke", "action": "transaction", "steps": [["send", "t-0", "a"]]}
    {"time_ns": 19, "process": "p1", "event": "ok", "steps": [["send", "t-0", "a", 4], ["poll", …]]}

A process has one operation at a time. It ends with `ok` (it was done), with `fail` (it was certainly not done), or with
`info` or without a line (it is not known). The steps of its end replace those of its beginning. Times are of one clock
that never goes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Required, TypedDict, cast

from millrace.errors import SetupError

Value = str | int


class HistoryError(SetupError):
    """A line that is no event, named by its number."""


class Action(StrEnum):
    """The kinds of operations in a history."""

    SEND = "send"
    POLL = "poll"
    TRANSACTION = "transaction"
    # From then on the process reads from other positions: in `partitions`, or in all of them if there are none.
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    # What members of a group do that own partitions: one step of `Owning` for each partition.
    CLAIM = "claim"
    RELEASE = "release"
    HAND_OUT = "hand-out"
    COMMIT = "commit"
    # A group's committed offsets, as a process was told them.
    COMMITTED = "committed"


class Outcome(StrEnum):
    """How an operation ended, as its process knows it."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Send:
    """One value that was sent; the offset is None where the broker did not tell it."""

    partition: str
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """The records of one partition in one poll, in their order."""

    partition: str
    records: tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Owning:
    """What an owner did with a partition under its fencing token; hand-outs and commits have an offset.

    Kafka's own groups have no token that clients are told: their commits are written without one.
    """

    action: Action
    partition: str
    token: int | None = None
    offset: int | None = None


Step = Send | Poll | Owning


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation from its beginning to its end; `completed_ns` is None where its end is not known.

    `committing_ns` is when a transaction was told to commit: what is read of it before is not committed. `group` is the
    group whose owner the process is, or whose offsets it was told.
    """

    index: int
    process: str
    action: Action
    outcome: Outcome
    invoked_ns: int
    completed_ns: int | None = None
    committing_ns: int | None = None
    steps: tuple[Step, ...] = ()
    partitions: tuple[str, ...] = ()
    group: str = ""

    def sends(self) -> Iterator[Send]:
        """Returns the values that it sent."""
        return (step for step in self.steps if isinstance(step, Send))

    def polls(self) -> Iterator[Poll]:
        """Returns the polls of the operation."""
        return (step for step in self.steps if isinstance(step, Poll))

    def ownings(self) -> Iterator[Owning]:
        """Returns what it did as an owner."""
        return (step for step in self.steps if isinstance(step, Owning))

    def __str__(self) -> str:
        return f"operation {self.index} ({self.action} of {self.process})"


def read_history(lines: Iterable[str | bytes]) -> list[Operation]:
    """Reads the operations of a history in the order of their beginnings.

    Raises HistoryError, which names an invalid line.
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                reader.take(json.loads(line))
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise HistoryError(f"line {number} of the history: {_reason(error)}") from error
    return reader.operations()


def _reason(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


class Event(TypedDict, total=False):
    """A line of a history, as JSON has it."""

    process: Required[str]
    event: Required[str]
    time_ns: int
    action: str
    steps: list[list[object]]
    partitions: list[str]
    committing_ns: int
    group: str


class _Reader:
    """Pairs beginnings and ends."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[int, Event]] = {}
        self._done: list[Operation] = []
        self._count = 0
        self._time_ns = 0

    def take(self, line: object) -> None:
        """Takes the event of the next line; raises KeyError, TypeError or ValueError if it is invalid."""
        if not isinstance(line, dict):
            raise TypeError("an event is an object")
        event = cast("Event", line)
        process, kind, time_ns = event["process"], event["event"], event["time_ns"]
        if time_ns < self._time_ns:
            raise ValueError("its time is before that of the line above")
        self._time_ns = time_ns
        if kind == "invoke":
            self._begin(process, event)
        elif process in self._begun:
            index, begun = self._begun.pop(process)
            self._done.append(_operation(index, begun, event))
        else:
            raise ValueError(f"process {process} has nothing that could end")

    def _begin(self, process: str, event: Event) -> None:
        if process in self._begun:
            raise ValueError(f"process {process} is not done with what it began before")
        _operation(self._count, event, None)  # an invalid step is found here, where its line is known
        self._begun[process] = self._count, event
        self._count += 1

    def operations(self) -> list[Operation]:
        unended = [_operation(index, begun, None) for index, begun in self._begun.values()]
        return sorted(self._done + unended, key=lambda operation: operation.index)


def _operation(index: int, begun: Event, ended: Event | None) -> Operation:
    end: Event = ended or {"process": begun["process"], "event": Outcome.INFO}
    return Operation(
        index=index,
        process=begun["process"],
        action=Action(begun["action"]),
        outcome=Outcome(end["event"]),
        invoked_ns=begun["time_ns"],
        completed_ns=end.get("time_ns"),
        committing_ns=end.get("committing_ns"),
        steps=tuple(_step(words) for words in end.get("steps", begun.get("steps", ()))),
        partitions=tuple(end.get("partitions", begun.get("partitions", ()))),
        group=begun.get("group", ""),
    )


def _step(words: list[object]) -> Step:
    match words:
        case ["send", str(partition), str() | int() as value]:
            return Send(partition, value)
        case ["send", str(partition), str() | int() as value, int() | None as offset]:
            return Send(partition, value, offset)
        case ["poll", str(partition), list(records)]:
            return Poll(partition, tuple(_record(record) for record in records))
        case ["claim" | "release" as action, str(partition), int(token)]:
            return Owning(Action(action), partition, token)
        case ["hand-out" | "commit" as action, str(partition), int(token), int(offset)]:
            return Owning(Action(action), partition, token, offset)
        case ["commit" | "committed" as action, str(partition), None, int(offset)]:
            return Owning(Action(action), partition, None, offset)
    raise ValueError(f"no step of an operation: {json.dumps(words)}")


def _record(words: object) -> tuple[int, Value]:
    match words:
        case [int(offset), str() | int() as value]:
            return offset, value
    raise ValueError(f"a polled record is [offset, value], not {json.dumps(words)}")
