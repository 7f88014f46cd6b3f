"""Continuous loads: one session, one exactly-once load after the other, until told to stop.

    load ─ lag left? ─ yes: load again
                     └ no:  wait for the interval, or the word to stop

The word to stop lets the running load end. An error that a retry helps is retried, with a growing pause, so many times
in a row; any other, or the last of them, ends the loop as it would have ended that load. Whatever ends it, the table
has whole loads: the next loop goes on where it is.
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
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.load.options import LoadReport

DEFAULT_INTERVAL_S = 10.0
DEFAULT_ATTEMPTS = 8
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0


class Failure(NamedTuple):
    """A failed load: the so-manieth attempt in a row, and the pause before the next one."""

    error: BaseException
    attempt: int
    pause_s: float


class ContinuousListener(Protocol):
    """Follows a loop of loads; `load.metrics` and the command line do."""

    def loaded(self, report: LoadReport) -> None:
        """A load has ended, with or without something new."""
        ...

    def failed(self, failure: Failure) -> None:
        """A load has failed, and is tried again."""
        ...


def load_continuously(
    load: Callable[[], LoadReport],
    stop: threading.Event,
    listener: ContinuousListener,
    *,
    interval_s: float = DEFAULT_INTERVAL_S,
    attempts: int = DEFAULT_ATTEMPTS,
) -> None:
    """Load until `stop` is set.

    Args:
        load: One exactly-once load.
        stop: Ends the loop after the running load, and any pause at once; so does a failure then that might pass.
        listener: Follows the loop.
        interval_s: The pause where a load has left nothing for the next.
        attempts: How often in a row a load may fail.

    Raises:
        MillraceError: What a load raised: at once where no retry helps, else at the last attempt.
    """
    while not stop.is_set():
        try:
            report = _retrying(stop, listener, attempts)(load)
        except Exception as error:
            if stop.is_set() and _may_pass(error):
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
        retry=retry_if_exception(_may_pass),
        stop=stop_any(stop_after_attempt(attempts), stop_when_event_set(stop)),
        wait=wait_random_exponential(multiplier=FIRST_PAUSE_S, max=MAX_PAUSE_S),
        sleep=sleep_using_event(stop),
        before_sleep=tell,
        reraise=True,
    )


def _may_pass(error: BaseException) -> bool:
    """A task's failure says little of its cause, so it is tried again like one that says so of itself."""
    return isinstance(error, LoadFailedError) or is_retriable(error)
