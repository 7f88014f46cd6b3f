"""Continuous loads: one exactly-once load after the other in one session, until a signal to stop.

    load ─ lag left? ─ yes: load again
                     └ no:  wait for the interval, or for the signal

The signal lets the running load end. An error that may pass (`is_retriable`) is retried, after pauses that grow, up to
a number of attempts in a row; any other error, and that of the last attempt, ends the loop. Whatever ends it, the table
holds whole loads, and the next loop goes on from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_any,
    wait_random_exponential,
)
from tenacity.stop import stop_when_event_set

from millrace.client.answers import is_retriable
from millrace_pipelines.warehouse.load.report import LoadReport

DEFAULT_INTERVAL_S = 10.0
DEFAULT_ATTEMPTS = 8
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0


class Failure(NamedTuple):
    """A failed load: its error, its number among failures in a row, from 1, and the pause before the next attempt."""

    error: BaseException
    attempt: int
    pause_s: float


class ContinuousListener(Protocol):
    """Follows a loop of loads, as the metrics (`load.metrics`) and the command line do."""

    def loaded(self, report: LoadReport) -> None:
        """Takes the report of a load that has ended, with or without new records."""
        ...

    def failed(self, failure: Failure) -> None:
        """Takes the failure of a load that will be tried again."""
        ...


def load_continuously(
    load: Callable[[], LoadReport],
    stop: threading.Event,
    listener: ContinuousListener,
    *,
    interval_s: float = DEFAULT_INTERVAL_S,
    attempts: int = DEFAULT_ATTEMPTS,
) -> None:
    """Runs loads, one after the other, until `stop` is set.

    Args:
        load: One exactly-once load.
        stop: Ends the loop after the running load, and any pause at once; an error that may pass then ends it quietly.
        listener: Follows the loop.
        interval_s: The pause after a load that has read all that the topic had.
        attempts: The number of failures in a row that ends the loop.

    Raises:
        MillraceError: A load raised it: at once where no retry helps, else at the last attempt.
    """
    while not stop.is_set():
        try:
            report = _retrying(stop, listener, attempts)(load)
        except Exception as error:
            if stop.is_set() and is_retriable(error):
                return
            raise
        listener.loaded(report)
        if not any(report.lag.values()):
            stop.wait(interval_s)


def _retrying(stop: threading.Event, listener: ContinuousListener, attempts: int) -> Retrying:
    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None:
            listener.failed(Failure(error, state.attempt_number, state.upcoming_sleep))

    return Retrying(
        retry=retry_if_exception(is_retriable),
        stop=stop_any(stop_after_attempt(attempts), stop_when_event_set(stop)),
        wait=wait_random_exponential(multiplier=FIRST_PAUSE_S, max=MAX_PAUSE_S),
        sleep=sleep_using_event(stop),
        before_sleep=tell,
        reraise=True,
    )
