"""Who owns the partitions of a group in ZooKeeper, seen from outside: each partition must have one live owner.

    /consumers/[group]/ids/[member]                 ephemeral: a live member, and what it subscribes
    /consumers/[group]/owners/[topic]/[partition]   ephemeral: [member]-[stream], of the same session

What is read is no single moment's: a rebalance that is under way may look like a fault, which another look shows gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.registration import decode_registration
from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.codec import decode_topic
from millrace.zk.session import Node, ZooKeeperSession

NO_SESSION = 0


class Owner(NamedTuple):
    """What an owner's node says: the stream, as [member]-[stream], and the session that the node ends with."""

    thread: str
    session_id: int

    @property
    def member(self) -> str:
        """The name of the member that the stream is of."""
        return self.thread.rpartition("-")[0]


class GroupOwnership(NamedTuple):
    """A group: the session of each live member, the partitions that they subscribe to, and who owns which."""

    group_id: str
    members: Mapping[str, int]
    subscribed: AbstractSet[Partition]
    owners: Mapping[Partition, Owner]


class OwnershipFinding(NamedTuple):
    """A partition that has no live owner, and why."""

    group_id: str
    partition: Partition
    reason: str

    def __str__(self) -> str:
        return f"group {self.group_id}: {self.partition} {self.reason}"


def read_group_ownership(session: ZooKeeperSession, group_id: str) -> GroupOwnership:
    """Reads a group's members, what they subscribe to, and the owners of its partitions."""
    names = sorted(session.children(paths.consumer_ids(group_id)))
    nodes = session.nodes([paths.consumer_id(group_id, name) for name in names])
    members = {name: node for name, node in zip(names, nodes, strict=True) if node is not None}
    return GroupOwnership(
        group_id,
        {name: node.session_id for name, node in members.items()},
        _subscribed(session, members.values()) if members else frozenset(),
        read_owners(session, group_id),
    )


def read_owners(session: ZooKeeperSession, group_id: str) -> dict[Partition, Owner]:
    """Returns the owner of each partition that has one."""
    owned = [
        Partition(topic, int(number))
        for topic in session.children(paths.owners(group_id))
        for number in session.children(paths.owners(group_id, topic))
        if number.isdecimal()
    ]
    nodes = session.nodes([paths.owner(group_id, *one) for one in owned])
    return {
        one: Owner(node.data.decode(errors="replace"), node.session_id)
        for one, node in zip(owned, nodes, strict=True)
        if node is not None
    }


def ownership_findings(group: GroupOwnership) -> list[OwnershipFinding]:
    """Returns the partitions that have no live owner, by topic and number."""
    reasons = {one: _fault(owner, group.members) for one, owner in group.owners.items()}
    reasons |= dict.fromkeys(group.subscribed - group.owners.keys(), "has no owner, though the group has members")
    return [OwnershipFinding(group.group_id, one, reason) for one, reason in sorted(reasons.items()) if reason]


def _fault(owner: Owner, members: Mapping[str, int]) -> str | None:
    if owner.session_id == NO_SESSION:
        return f"is held for {owner.thread} by a node that ends with no session"
    if owner.member not in members:
        return f"is held for {owner.thread}, which is no live member"
    if owner.session_id != members[owner.member]:
        return f"is held for {owner.thread} by an earlier session of that member"
    return None


def _subscribed(session: ZooKeeperSession, members: Iterable[Node]) -> frozenset[Partition]:
    existing = sorted(session.children(paths.TOPICS))
    topics: set[str] = set()
    for node in members:
        try:
            topics.update(decode_registration(node.data).topics(existing))
        except ZooKeeperError:  # the members leave it out, too, and say so (docs/consumer-groups.md)
            continue
    found = session.get_many([paths.topic(topic) for topic in sorted(topics)])
    return frozenset(
        Partition(topic, number)
        for topic, data in zip(sorted(topics), found, strict=True)
        if data is not None
        for number in range(len(decode_topic(data).replicas))
    )
