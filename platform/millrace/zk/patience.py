"""Repeats calls that ZooKeeper has not answered, for work without which nothing else can be done.

A process that stands still for its session's timeout, as on a busy machine, finds the session expired, and its calls
under way get no answer. Kazoo then makes another session by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from millrace.errors import ZooKeeperError

T = TypeVar("T")

PAUSE_S = 0.5
UNANSWERED = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)


def patiently(work: Callable[[], T], limit_s: float) -> T:
    """Returns what `work` returns; repeats it while it gets no answer, for up to `limit_s`, then raises its error."""
    again = Retrying(
        retry=retry_if_exception(_has_no_answer),
        stop=stop_after_delay(limit_s),
        wait=wait_fixed(PAUSE_S),
        reraise=True,
    )
    return again(work)


def _has_no_answer(error: BaseException) -> bool:
    return isinstance(error, ZooKeeperError) and isinstance(error.__cause__, UNANSWERED)
