"""Limits the bytes per second of replication (KIP-73): a broker has one quota as leader and another one as follower.

    rate of the broker          leader.replication.throttled.rate, follower.replication.throttled.rate
    replicas of a topic         leader.replication.throttled.replicas, follower.replication.throttled.replicas

A topic lists its throttled replicas as PARTITION:BROKER,… or * for all. The brokers that are listed for leaders send
slowly, and those that are listed for followers fetch slowly. All bytes of a listed replica are counted. While they
exceed the rate, only a replica that is in sync goes on, so that a throttle takes no replica out of the ISR.

The measured rate is that of Kafka's SimpleRate: all bytes of the last windows, divided by the time since the first of
these windows began. That time is at least one window, so the first bytes after a pause do not count as a burst.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from millrace.clock import Clock
from millrace.config import MAX_LONG
from millrace_broker.quotas.measures import DEFAULT_WINDOWS, QuotaWindows, SampledRate

ALL_REPLICAS = "*"


@lru_cache(maxsize=1024)
def _partitions_of(throttled_replicas: str, broker_id: int) -> frozenset[int] | None:
    """Returns the partitions in `partition:broker,…` that name this broker; None for all, as `*` says."""
    listed = [one.strip() for one in throttled_replicas.split(",") if one.strip()]
    if ALL_REPLICAS in listed:
        return None
    pairs = [one.split(":") for one in listed]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """The quota of replication traffic of one broker, either as leader or as follower.

    Args:
        broker_id: the id of the broker.
        clock: measures the windows.
        rate: returns the bytes per second that are allowed at the time.
        windows: the span of the measurement.
    """

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        rate: Callable[[], int] = lambda: MAX_LONG,
        windows: QuotaWindows = DEFAULT_WINDOWS,
    ) -> None:
        self._broker_id = broker_id
        self._now_ms = clock.monotonic_ms
        self._rate = rate
        self._sampled = SampledRate(windows)
        self._is_used = False

    def lists(self, throttled_replicas: str, partition: int) -> bool:
        """Returns whether a topic's throttled replicas (`partition:broker,…` or `*`) name this broker's replica."""
        if not throttled_replicas:
            return False
        partitions = _partitions_of(throttled_replicas, self._broker_id)
        return partitions is None or partition in partitions

    def record(self, size_bytes: int) -> None:
        """Counts bytes of a throttled replica, whether the quota is exceeded or not."""
        self._is_used = True
        self._sampled.record(size_bytes, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the quota, so that throttled replicas that are not in sync have to wait."""
        return self._is_used and self.bytes_per_second() > self._rate()

    def bytes_per_second(self) -> float:
        """Returns the rate of throttled traffic, measured over the quota's windows."""
        return self._sampled.simple_per_second(self._now_ms())
