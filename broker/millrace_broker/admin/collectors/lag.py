"""The metrics of committed offsets, and of how far their groups are behind, as far as this broker knows.

A group's coordinator may neither lead nor follow a partition of which the group has committed an offset. Then it gives
the offset without the lag, which is the difference to the leader's `millrace_log_end_offset` (docs/metrics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from millrace_broker.admin.collectors.families import Family, LargeFamily, escaped, gauge
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.groups.records import OffsetKey
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

MAX_OFFSETS = 10_000


class LagCollector:
    """Collects up to `MAX_OFFSETS` committed offsets, and the lags, of the groups that this broker coordinates."""

    def __init__(self, groups: GroupCoordinator, replicas: ReplicaManager) -> None:
        self._groups = groups
        self._replicas = replicas

    def collect(self) -> Iterable[Family]:
        """Yields all families."""
        text = "Committed offsets."
        yield LargeFamily("millrace_group_offset", text, "gauge", (_row(key, at) for key, at in self._offsets()))
        text = "Committed records that a group has not committed."
        yield LargeFamily("millrace_group_lag", text, "gauge", self._lags())
        left_out = max(0, sum(shard.offsets.count for shard in self._groups.led.loaded()) - MAX_OFFSETS)
        yield gauge("group_offsets_left_out", "Committed offsets that are not told, as they are too many.", left_out)

    def _offsets(self) -> Iterator[tuple[OffsetKey, int]]:
        found = ((key, one.offset) for shard in self._groups.led.loaded() for key, one in shard.offsets.all())
        return islice(found, MAX_OFFSETS)

    def _lags(self) -> Iterator[str]:
        for key, offset in self._offsets():
            replica = self._replicas.replica(TopicPartition(key.topic, key.partition))
            if replica is not None:
                yield _row(key, max(0, replica.high_watermark - offset))


def _row(key: OffsetKey, value: int) -> str:
    return f'{{group="{escaped(key.group_id)}",partition="{key.partition}",topic="{key.topic}"}} {value}'
