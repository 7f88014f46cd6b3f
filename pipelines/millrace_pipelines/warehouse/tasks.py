"""The door to where work on a table's files runs: threads of this process, or tasks of Spark (`spark_tasks`).

    plan (driver) ── pieces, mostly a file each ──► work(piece), many at once ── results ──► commit (driver)

A work is a picklable object that is called with a piece, and opens the table's files itself (`task_table`): it
may run on another machine. What it returns is small: names of files that it wrote, counts, offsets in intervals; never
rows. So the driver's memory does not grow with the table, and a task's only with a block of rows.

A piece may be worked on more than once: where a task fails after it wrote, its machine is lost, or Spark speculates.
Each attempt writes files of its own name, a commit names those of the attempt whose result came back, and the others
are removed (`rewrite`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

WAITING_FOR_EACH = 4


class Tasks(Protocol):
    """A place where pieces of work run, several at once."""

    @property
    def at_once(self) -> int:
        """Returns how many pieces run at the same time."""
        ...

    @property
    def may_repeat(self) -> bool:
        """Returns whether a piece may be worked on more than once, so that files of other attempts may be left."""
        ...

    def run(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yields the result of each piece, in the order of the pieces; raises what the work raises."""
        ...


class Threads:
    """Threads of this process, one for each core; a bounded number of pieces waits for them."""

    may_repeat = False

    @property
    def at_once(self) -> int:
        """Returns the number of cores."""
        return os.cpu_count() or 1

    def run(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yields the result of each piece; after an error, no further piece begins."""
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.at_once) as pool:
            try:
                for piece in pieces:
                    waiting.append(pool.submit(work, piece))
                    if len(waiting) >= WAITING_FOR_EACH * self.at_once:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


THREADS: Tasks = Threads()
