"""The metric of logs that have records from the future, as the broker's clock sees it.

Retention by time keeps a segment until its newest record is old: one record of next year keeps its segment for a year.
The logs are looked at when somebody asks, so that appends pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from millrace.clock import Clock
from millrace_broker.admin.collectors.families import Family, gauges
from millrace_broker.replication.replica_manager import ReplicaManager

LEAST_AHEAD_MS = 60_000  # clocks of producers differ
MAX_LOGS = 100
LOGS_AT_ONCE = 200


class TimestampCollector:
    """The led logs whose newest timestamp is more than a minute ahead of the clock, those furthest ahead."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def collect(self) -> Iterable[Family | None]:
        """Yields the family, and before that None after each portion of the logs."""
        now_ms = self._clock.now_ms()
        ahead_ms: dict[tuple[str, ...], int] = {}
        for number, one in enumerate(tuple(self._replicas.partitions.values()), 1):
            newest_ms = one.log.newest_timestamp_ms()
            if newest_ms - now_ms > LEAST_AHEAD_MS:
                topic, index = one.log.topic_partition
                ahead_ms[topic, str(index)] = newest_ms - now_ms
            if number % LOGS_AT_ONCE == 0:
                yield None
        furthest = nlargest(MAX_LOGS, ahead_ms, key=ahead_ms.__getitem__)
        text = "By how much a log's newest timestamp is ahead of the machine's clock."
        told = {labels: ahead_ms[labels] / 1000 for labels in furthest}
        yield gauges("log_timestamp_ahead_seconds", text, ["topic", "partition"], told)
