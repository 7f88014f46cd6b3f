"""The errors of a member of a group that ZooKeeper coordinates, and of changes to such a group."""

from __future__ import annotations

from millrace.errors import ClientError


class ConsumerTimeoutError(ClientError, retriable=True):
    """A stream had nothing to hand out for `consumer.timeout.ms`; the stream can be read on."""


class RebalanceFailedError(ClientError, retriable=True):
    """After `rebalance.max.retries` attempts others still hold partitions that are this member's."""


class ConsumerIdTakenError(ClientError):
    """A live member of the group has this `consumer.id`."""


class OwnershipLostError(ClientError):
    """A commit for a partition that is this member's no longer; nothing was committed for it."""


class GroupHasMembersError(ClientError):
    """Offsets of a group can't be set while it has live members, which would go on from where they are."""
