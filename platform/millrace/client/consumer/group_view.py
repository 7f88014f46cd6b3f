"""What ZooKeeper has of a group: for a member, who is to consume what; from outside, who owns what.

    /consumers/[group]/ids/[member]                 ephemeral: a live member, and what it subscribes
    /consumers/[group]/owners/[topic]/[partition]   ephemeral: [member]-[stream], of the same session

Each partition must have one live owner. What is read from outside is no single moment's: a rebalance that is under way
may look like a fault, which another look shows gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millrace.client.consumer.assignment import STRATEGIES, Assignment, Partition, Registration, decode_registration
from millrace.client.consumer.config import ConsumerConfig
from millrace.errors import ClusterError, ZooKeeperError
from millrace.security.protocols import SecurityProtocol
from millrace.zk import paths
from millrace.zk.brokers import read_brokers
from millrace.zk.codec import decode_topic
from millrace.zk.session import Node, ZooKeeperSession

logger = logging.getLogger(__name__)


def read_assignment(session: ZooKeeperSession, config: ConsumerConfig) -> Assignment:
    """Returns the stream that is to own each partition, from the group's members, brokers and topics; sets watches."""
    registrations = _registrations(session, config.group_id)
    session.children(paths.BROKER_IDS, watch=True)
    existing = sorted(session.children(paths.TOPICS, watch=True))
    exclude = config.exclude_internal_topics
    subscriptions = {member: one.topics(existing, exclude_internal=exclude) for member, one in registrations.items()}
    topics = sorted({topic for subscribed in subscriptions.values() for topic in subscribed})
    found = session.get_many([paths.topic(topic) for topic in topics], watch=True)
    brokers = {
        topic: [replicas[0] for replicas in decode_topic(data).replicas]
        for topic, data in zip(topics, found, strict=True)
        if data is not None
    }
    return STRATEGIES[config.partition_assignment_strategy](subscriptions, brokers)


def read_bootstrap(session: ZooKeeperSession, protocol: SecurityProtocol) -> str:
    """Returns `HOST:PORT,…` of the live brokers' listeners with this protocol; raises ClusterError for none."""
    brokers = read_brokers(session, security_protocol=protocol.name)
    if not brokers:
        raise ClusterError("no broker is registered in ZooKeeper")
    return ",".join(map(str, brokers))


def _registrations(session: ZooKeeperSession, group_id: str) -> dict[str, Registration]:
    members = sorted(session.children(paths.consumer_ids(group_id), watch=True))
    found = session.get_many([paths.consumer_id(group_id, member) for member in members])
    registrations: dict[str, Registration] = {}
    for member, data in zip(members, found, strict=True):
        if data is None:
            continue
        try:
            registrations[member] = decode_registration(data)
        except ZooKeeperError as error:  # every member leaves it out, so that all agree; it can own nothing of theirs
            logger.warning("%s is left out: %s", paths.consumer_id(group_id, member), error)
    return registrations


NO_SESSION = 0


class Owner(NamedTuple):
    """A partition's owner by its node in ZooKeeper: the stream, as MEMBER-STREAM, and the session of the node."""

    thread: str
    session_id: int

    @property
    def member(self) -> str:
        """The name of the member to which the stream belongs."""
        return self.thread.rpartition("-")[0]


class GroupOwnership(NamedTuple):
    """A group: the session id of each live member, the partitions subscribed to, and the owner of each partition."""

    group_id: str
    members: Mapping[str, int]
    subscribed: AbstractSet[Partition]
    owners: Mapping[Partition, Owner]


class OwnershipFinding(NamedTuple):
    """A partition that has no live owner in a group, and the reason as text."""

    group_id: str
    partition: Partition
    reason: str

    def __str__(self) -> str:
        return f"group {self.group_id}: {self.partition} {self.reason}"


def read_group_ownership(session: ZooKeeperSession, group_id: str) -> GroupOwnership:
    """Returns a group's live members, the partitions they subscribe to and the owners, as ZooKeeper has them."""
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
    """Returns the owner of each partition that has an owner node in ZooKeeper."""
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
    """Returns each partition whose owner is missing or not live, with the reason; sorted by topic and number."""
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
