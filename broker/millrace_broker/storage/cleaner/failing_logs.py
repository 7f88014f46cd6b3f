"""The logs whose compaction fails: each is left alone for a while, which grows, and keeps no other from it.

    failure     1       2       3       …       7 and later
    pause       15 s    30 s    60 s            15 min

A log is named, with the reason, until a compaction succeeds. Another log of the same name begins afresh.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.clock import Clock
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 15_000, 900_000


class Failure(NamedTuple):
    """The last failure of a log, the pause after it, and when that is over."""

    log: Log
    reason: str
    pause_ms: int
    until_ms: int


class FailingLogs:
    """The logs that are left alone; for one thread at a time, but `failures` is for any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[TopicPartition, Failure] = {}

    def is_due(self, log: Log) -> bool:
        """Returns whether a log may be compacted."""
        failure = self._of(log)
        return failure is None or self._clock.monotonic_ms() >= failure.until_ms

    def note_failure(self, log: Log, reason: str) -> None:
        """Leaves a log alone, for longer than after the failure before."""
        before = self._of(log)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        until_ms = self._clock.monotonic_ms() + pause_ms
        self._failures = {**self._failures, log.topic_partition: Failure(log, reason, pause_ms, until_ms)}

    def note_success(self, log: Log) -> None:
        """Forgets the failures of a log."""
        if log.topic_partition in self._failures:
            self._failures = {key: one for key, one in self._failures.items() if key != log.topic_partition}

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The last failure of each log, in the order of their names."""
        return tuple(one for _, one in sorted(self._failures.items()))

    def _of(self, log: Log) -> Failure | None:
        failure = self._failures.get(log.topic_partition)
        return failure if failure is not None and failure.log is log else None
