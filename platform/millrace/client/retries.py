"""When a request to a cluster is made again, and until when.

A retry waits 50 ms, then twice as long each time up to a second. After ten attempts, or when the time is over, the last
error is raised. Where an election is waited for, the time alone counts: a dead broker remains the leader until its
session with ZooKeeper has ended, which takes longer than ten attempts do.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from millrace.client.answers import is_retriable
from millrace.errors import AnswerLostError, BrokerError, BrokerUnreachableError, ErrorCode, NotLeaderError

RETRY_ATTEMPTS = 10
RETRY_WAIT_MIN_S = 0.05
RETRY_WAIT_MAX_S = 1.0
ELECTION_CODES = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    }
)


class LeaderUnreachableError(BrokerUnreachableError):
    """A leader, coordinator or controller does not answer; another broker will name its successor."""


class JustStartedError(BrokerError):
    """All brokers that answer have just started, and have not heard of their cluster yet."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, "the brokers have just started and know no cluster yet")


def retrying(
    timeout_s: float, again: Callable[[BaseException], bool], before_retry: Callable[[object], None] | None = None
) -> Retrying:
    """Returns what repeats attempts for `timeout_s` after errors of which `again` is true, and raises the last one."""
    is_late = stop_after_delay(timeout_s)
    return Retrying(
        retry=retry_if_exception(again),
        stop=lambda state: is_late(state) or _was_tried_enough(state),
        wait=wait_exponential(multiplier=RETRY_WAIT_MIN_S, max=RETRY_WAIT_MAX_S),
        before_sleep=before_retry,
        reraise=True,
    )


def is_passing(error: BaseException) -> bool:
    """Returns whether the cluster answers, and the error is one that soon passes by itself."""
    if isinstance(error, BrokerUnreachableError):
        return isinstance(error, LeaderUnreachableError)
    return is_retriable(error)


def _was_tried_enough(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    return state.attempt_number >= RETRY_ATTEMPTS and not _ends_by_an_election(error)


def _ends_by_an_election(error: BaseException | None) -> bool:
    """Returns whether a leader, a coordinator or a controller is missing from a cluster that answers."""
    if isinstance(error, BrokerError) and error.broker_code in ELECTION_CODES:
        return True
    return isinstance(error, NotLeaderError | JustStartedError | LeaderUnreachableError | AnswerLostError)
