"""Tasks as another machine runs them: work and results are pickled, and pieces may be worked on more than once.

RepeatedTasks(attempts=2, answer=0)     two attempts at each piece, and the first one's result comes back, or
RepeatedTasks(attempts=2, answer=1)     the second one's: the other wrote its files, too, and was lost
FailingTasks(after=3)                   the fourth piece fails, after its work has written
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pyspark import cloudpickle

from millrace.errors import WarehouseError

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class RepeatedTasks:
    """Works on each piece several times, from its pickled form, and yields the result of one attempt."""

    at_once = 2
    may_repeat = True

    def __init__(self, attempts: int = 2, answer: int = 0) -> None:
        self.attempts = attempts
        self.answer = answer
        self.pieces = 0

    def run(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yields the result of each piece, in their order."""
        given = list(pieces)
        for number in range(len(given)):
            yield self.result(work, given, number)

    def result(self, work: Callable[[Piece], Result], pieces: list[Piece], number: int) -> Result:
        """Returns the result of one attempt at a piece."""
        results = []
        for _ in range(self.attempts):
            there, sent = _copied((work, pieces))
            results.append(there(sent[number]))
        self.pieces += 1
        answer: Result = _copied(results[self.answer])
        return answer


class FailingTasks(RepeatedTasks):
    """Fails once a number of pieces have results, after the work on the next one has written its files."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def result(self, work: Callable[[Piece], Result], pieces: list[Piece], number: int) -> Result:
        """Returns the result of a piece; raises WarehouseError for the one that fails."""
        found = super().result(work, pieces, number)
        if self.pieces > self._after:
            raise WarehouseError("the task is lost")
        return found


def _copied(thing: object) -> Any:
    return pickle.loads(cloudpickle.dumps(thing))  # type: ignore[no-untyped-call]  # noqa: S301  our own bytes
