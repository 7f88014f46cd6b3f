"""The numbers by which the protocol and ZooKeeper say what is special about the leader of a partition."""

from __future__ import annotations

NO_LEADER = -1
LEADER_DURING_DELETE = -2  # the partition's topic is being deleted

# The leader has been elected uncleanly and has not recovered yet, or it has, as all other leaders have (KIP-704).
RECOVERED, RECOVERING = 0, 1
