"""Chooses the replica from which a consumer reads (KIP-392), as `replica.selector.class` of its leader's broker says.

| `replica.selector.class` | a consumer reads from |
|---|---|
| none, or `LeaderSelector` | the leader |
| `RackAwareReplicaSelector` | the best follower in its rack; the leader if that is there too, or no follower is |

A follower counts if it is in sync and its log has the offset. The best one is that with the longest log, and of several
the one that was caught up most recently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace_broker.replication.in_sync_replicas import ReadReplica


def in_rack(
    rack: str, leader: int, followers: Iterable[ReadReplica], rack_of: Callable[[int], str | None]
) -> int | None:
    """Returns the follower that a consumer in a rack reads from; None where it reads from the leader."""
    if rack_of(leader) == rack:
        return None
    best = max((one for one in followers if rack_of(one.broker_id) == rack), default=None)
    return None if best is None else best.broker_id
