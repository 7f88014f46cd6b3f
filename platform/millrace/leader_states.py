"""The numbers by which the protocol and ZooKeeper say what is special about the leader of a partition."""

from __future__ import annotations

NO_LEADER = -1
LEADER_DURING_DELETE = -2  # the partition's topic is being deleted

# The leader has been elected uncleanly and has not recovered yet, or it has, as all other leaders have (KIP-704).
RECOVERED, RECOVERING = 0, 1

# Each election takes the next epoch, and 32 bits have to hold it. No cluster comes near the last one, so what is read
# as a larger one is damage; and nobody may choose one that is more than half way there.
LAST_LEADER_EPOCH = 2**31 - 1 - 2**20
LAST_CHOSEN_LEADER_EPOCH = 2**30


def leader_epoch(value: int | str) -> int:
    """Returns a leader epoch as a number; raises ValueError for one outside of 0 to LAST_LEADER_EPOCH."""
    epoch = int(value)
    if not 0 <= epoch <= LAST_LEADER_EPOCH:
        raise ValueError(f"leader epoch {epoch} is not between 0 and {LAST_LEADER_EPOCH}")
    return epoch
