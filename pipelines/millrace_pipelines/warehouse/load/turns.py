"""Continuous loads of many tables in one session, each at its turn, until a signal to stop.

    due tables, the longest due first ─► loaded together (`load.together`) ─► each is due again:
        lag left          at once, behind those that are due already
        nothing left      after the interval
        failed            after a pause that grows with each failure in a row, up to MAX_PAUSE_MS

A turn takes at most TURN_OFFSETS of a table, so that a long backlog keeps no other waiting. A failure ends nothing but
the turn, whatever it is: what stops one table (a topic that was created again, a right that is missing) may be mended
while the others are loaded, and its next turn finds out. Only where Spark's JVM has ended does the loop end, too.

Which tables there are is asked again before a turn, at most once in an interval: a topic that a pattern fits may have
come. Where that can't be asked, the loop goes on with the tables that it knows.

The signal lets the running turn end. A crash leaves each table with whole loads, and the next loop goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple, Protocol, TypeAlias

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.times import SECOND_MS
from millrace_pipelines.spark.session import jvm_status
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.together import MOST_TOGETHER, Outcome

TURN_OFFSETS = 5_000_000
FIRST_PAUSE_MS = 1_000
MAX_PAUSE_MS = 300_000

LoadSome: TypeAlias = Callable[[Sequence[LoadOptions]], Iterable[tuple[LoadOptions, Outcome]]]
"""Loads some tables, and yields each one's report or error."""


class FailedTurn(NamedTuple):
    """A table's load that failed: its error, its number among failures in a row, and the pause before the next."""

    options: LoadOptions
    error: Exception
    attempt: int
    pause_ms: int


class TurnsListener(Protocol):
    """Follows a loop of many tables."""

    def loaded(self, report: LoadReport) -> None:
        """Takes the report of a load that has ended, with or without new records."""
        ...

    def failed(self, failed: FailedTurn) -> None:
        """Takes the failure of a load; the table has its next turn after the pause."""
        ...

    def not_asked(self, error: MillraceError) -> None:
        """Takes why it could not be asked which tables there are."""
        ...


@dataclass(frozen=True, slots=True)
class _Turn:
    """When a table is due, on the monotonic clock, and how often it has failed since its last load."""

    due_ms: int = 0
    failures: int = 0


class Turns:
    """Says whose turn it is, and when the next turns are; it knows no clock.

    Args:
        interval_ms: The pause after a load that left nothing.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._turns: dict[str, _Turn] = {}

    def due(self, tables: Iterable[LoadOptions], now_ms: int) -> list[LoadOptions]:
        """Returns the tables that are loaded now, the longest due first; a new table is due at once."""
        at = {one.table: self._turns.setdefault(one.table, _Turn(now_ms)).due_ms for one in tables}
        found = sorted((one for one in tables if at[one.table] <= now_ms), key=lambda one: at[one.table])
        return [_bounded(one) for one in found[:MOST_TOGETHER]]

    def pause_ms(self, tables: Iterable[LoadOptions], now_ms: int) -> int:
        """Returns how long it is until the next table is due; at most the interval."""
        due = [self._turns[one.table].due_ms for one in tables if one.table in self._turns]
        return max(0, min([now_ms + self._interval_ms, *due]) - now_ms)

    def loaded(self, report: LoadReport, now_ms: int) -> None:
        """Gives a table its next turn: now where it lacks records still, else after the interval."""
        has_lag = any(report.lag.values())
        self._turns[report.table] = _Turn(now_ms if has_lag else now_ms + self._interval_ms)

    def failed(self, options: LoadOptions, error: Exception, now_ms: int) -> FailedTurn:
        """Gives a table its next turn after a pause, and returns what to tell."""
        failures = self._turns[options.table].failures + 1
        pause_ms = min(FIRST_PAUSE_MS * 2 ** min(failures - 1, 20), MAX_PAUSE_MS)
        self._turns[options.table] = _Turn(now_ms + pause_ms, failures)
        return FailedTurn(options, error, failures, pause_ms)


def _bounded(options: LoadOptions) -> LoadOptions:
    return replace(options, max_records_per_run=options.max_records_per_run or TURN_OFFSETS)


def load_in_turns(
    tables: Callable[[], Sequence[LoadOptions]],
    load: LoadSome,
    stop: Event,
    listener: TurnsListener,
    clock: Clock,
    *,
    interval_s: float,
) -> None:
    """Loads tables, each at its turn, until `stop` is set.

    Args:
        tables: Says which tables there are; raises MillraceError where that can't be asked now.
        load: Loads some of them.
        stop: Ends the loop after the loads that are under way, and a pause at once.
        listener: Follows the loop.
        clock: The time.
        interval_s: The pause of a table that has all that its topic has.

    Raises:
        LoadFailedError: Spark's JVM has ended.
    """
    turns, known = Turns(round(interval_s * SECOND_MS)), _Known(tables, listener, clock, interval_s)
    while not stop.is_set():
        there = known.tables()
        for options, outcome in _loads(load, turns.due(there, clock.monotonic_ms())):
            if isinstance(outcome, Exception):
                listener.failed(turns.failed(options, outcome, clock.monotonic_ms()))
            else:
                turns.loaded(outcome, clock.monotonic_ms())
                listener.loaded(outcome)
        if jvm_status() is not None:
            raise LoadFailedError("Spark's JVM has ended; each table has whole loads, and the next start goes on")
        stop.wait(turns.pause_ms(there, clock.monotonic_ms()) / SECOND_MS)


def _loads(load: LoadSome, due: Sequence[LoadOptions]) -> Iterator[tuple[LoadOptions, Outcome]]:
    if due:
        yield from load(due)


class _Known:
    """The tables as they were when they could last be asked for."""

    def __init__(
        self, ask: Callable[[], Sequence[LoadOptions]], listener: TurnsListener, clock: Clock, interval_s: float
    ) -> None:
        self._ask = ask
        self._listener = listener
        self._clock = clock
        self._interval_ms = round(interval_s * SECOND_MS)
        self._next_ms: int | None = None
        self._tables: Sequence[LoadOptions] = ()

    def tables(self) -> Sequence[LoadOptions]:
        """Returns the tables, asked for again where an interval has passed."""
        now_ms = self._clock.monotonic_ms()
        if self._next_ms is None or now_ms >= self._next_ms:
            self._next_ms = now_ms + self._interval_ms
            try:
                self._tables = self._ask()
            except MillraceError as error:
                self._listener.not_asked(error)
        return self._tables
