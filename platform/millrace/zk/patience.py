"""Does again what a broken connection to ZooKeeper has cut off, for work that has to be done before all else.

A process that stands still for as long as its session, as on a busy machine, finds it expired, and the calls under way
have no answer. Kazoo makes another session by itself.
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
    """Returns what `work` returns, and repeats it for `limit_s` where it gets no answer; then raises ZooKeeperError."""
    again = Retrying(
        retry=retry_if_exception(_has_no_answer),
        stop=stop_after_delay(limit_s),
        wait=wait_fixed(PAUSE_S),
        reraise=True,
    )
    return again(work)


def _has_no_answer(error: BaseException) -> bool:
    return isinstance(error, ZooKeeperError) and isinstance(error.__cause__, UNANSWERED)
