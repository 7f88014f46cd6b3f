"""How many bytes a fetch still waits for: what its reader sees now, and did not when a partition was looked at.

A partition that has another role, or is in another epoch, than when it was looked at ends the wait, as does one whose
log was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace_broker.replication.replica import Isolation, Replica
from millrace_broker.storage import TopicPartition


class _Seen(NamedTuple):
    """The state of a partition when it was looked at last."""

    replica: Replica
    leader_epoch: int
    appended_bytes: int
    visible_end: int
    is_held_back: bool  # by followers that are behind, or by an open transaction


class MissingBytes:
    """The bytes that one fetch waits for.

    Args:
        isolation: What its reader sees.
        is_throttled: Whether it gets nothing of a partition for now.
    """

    def __init__(self, isolation: Isolation, is_throttled: Callable[[Replica], bool]) -> None:
        self.count = 0
        self._isolation = isolation
        self._is_throttled = is_throttled
        self._seen: dict[TopicPartition, _Seen] = {}

    def look_at(self, key: TopicPartition, replica: Replica) -> None:
        """Counts what becomes visible from now on."""
        self._seen[key] = self._look_at(replica)

    def look_at_first(self, key: TopicPartition, replica: Replica) -> None:
        """Counts what becomes visible from now on, unless the partition has been looked at."""
        if key not in self._seen:
            self.look_at(key, replica)

    def are_there(self, key: TopicPartition, replica: Replica | None) -> bool:
        """Counts what has become visible of one partition, and returns whether the fetch has to wait no longer."""
        seen = self._seen.get(key)
        if replica is None or seen is None or replica is not seen.replica or replica.leader_epoch != seen.leader_epoch:
            return True
        now = self._seen[key] = self._look_at(replica)
        if not self._is_throttled(replica):
            self.count -= self._became_visible(replica, seen, now)
        return self.count <= 0

    def _look_at(self, replica: Replica) -> _Seen:
        end = replica.visible_end(self._isolation)
        return _Seen(replica, replica.leader_epoch, replica.appended_bytes, end, end < replica.log.log_end_offset)

    def _became_visible(self, replica: Replica, seen: _Seen, now: _Seen) -> int:
        if not seen.is_held_back and not now.is_held_back:
            return now.appended_bytes - seen.appended_bytes
        if now.visible_end < seen.visible_end or seen.visible_end < replica.log.log_start_offset:
            return self.count
        return replica.size_between(seen.visible_end, now.visible_end, self.count)
