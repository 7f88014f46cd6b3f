"""A group's offsets, read and set from outside in both stores, and who its live members are.

Offsets are not set while the group has members of either kind: those would go on from their positions, and commit
them over what was set (docs/consumer-groups.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Self

from millrace.client.cluster import Cluster
from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.config import KAFKA
from millrace.client.consumer.group_view import read_owners
from millrace.client.consumer.offsets import (
    FencedCommits,
    check_names,
    furthest,
    read_all_zookeeper,
    read_coordinator,
    read_sound_zookeeper,
    write_zookeeper,
)
from millrace.client.groups import GroupDescription, GroupOffset, Groups
from millrace.clock import SystemClock
from millrace.errors import BrokerError, ErrorCode, GroupHasMembersError, InvalidConfigError
from millrace.security.client_security import ClientSecurity
from millrace.zk import paths
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import ZooKeeperSession

SESSION_TIMEOUT_MS = 10_000


class ZooKeeperGroup(NamedTuple):
    """A group in ZooKeeper: its live members, the owner of each partition, and its committed offsets."""

    group_id: str
    members: tuple[str, ...]
    owners: Mapping[Partition, str]
    offsets: Mapping[Partition, int]


class GroupOffsets:
    """Reads and sets the committed offsets of one group; a context manager.

    A method's `store` says where the offsets are: `kafka` (the coordinator) or `zookeeper`. Raises InvalidConfigError
    for a group whose name no node of ZooKeeper can have.

    Args:
        zookeeper: needed for offsets in ZooKeeper; without it members registered there are not seen.
        security: of the connections to the brokers at `bootstrap`.
        zookeeper_security: how the session with ZooKeeper is secured.
        waiting: as of a `Cluster`.
    """

    def __init__(
        self,
        group_id: str,
        *,
        zookeeper: str | None,
        bootstrap: str,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
        zookeeper_security: ZooKeeperSecurity = UNSECURED,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        if zookeeper:
            check_names(group_id)
        self._group_id = group_id
        self._cluster = Cluster(bootstrap, security=security, waiting=waiting)
        self._groups = Groups(self._cluster)
        self._session = open_session(zookeeper, security=zookeeper_security) if zookeeper else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        if self._session is not None:
            self._session.close()

    def read(self, store: str) -> dict[Partition, int]:
        """Returns all offsets that `store` (`kafka` or `zookeeper`) has of the group; none for an unknown group."""
        if store == KAFKA:
            return read_coordinator(self._groups, self._group_id)
        return read_all_zookeeper(self._zookeeper(), self._group_id)

    def read_sound(self, store: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns these partitions' offsets in `store`, without those whose node in ZooKeeper holds no number."""
        if store == KAFKA:
            wanted = set(partitions)
            return {one: offset for one, offset in self.read(store).items() if one in wanted}
        return read_sound_zookeeper(self._zookeeper(), self._group_id, partitions)

    def exists(self, store: str) -> bool:
        """Returns whether `store` (`kafka`, the coordinator, or `zookeeper`) knows the group."""
        if store == KAFKA:
            return self._describe() is not None
        return self._group_id in self._zookeeper().children(paths.CONSUMERS)

    def write(self, store: str, offsets: Mapping[Partition, int], *, only_forward: bool = False) -> None:
        """Sets offsets in `store`, with `only_forward` none to a lower one.

        Raises GroupHasMembersError where the group has live members.
        """
        self.refuse_members()
        if only_forward:
            has = self.read(store)
            offsets = {one: offset for one, offset in furthest(offsets, has).items() if has.get(one) != offset}
        if not offsets:
            return
        if store == KAFKA:
            if self._session is not None:  # of a member that was stopped during a commit, and is none any more
                FencedCommits(self._group_id).take(self._cluster, offsets)
            # The coordinator takes them from anyone while it knows no members.
            self._groups.commit(self._group_id, {one: GroupOffset(offset, "") for one, offset in offsets.items()})
        else:
            write_zookeeper(self._zookeeper(), self._group_id, offsets)

    def refuse_members(self) -> None:
        """Raises GroupHasMembersError where the group has live members, at the coordinator or in ZooKeeper."""
        members = [] if self._session is None else self._session.children(paths.consumer_ids(self._group_id))
        group = self._describe()
        if group is not None:
            members += [one.member_id for one in group.members]
        if members:
            raise GroupHasMembersError(
                f"group {self._group_id} has live members ({', '.join(sorted(members))}); stop them first"
            )

    def _zookeeper(self) -> ZooKeeperSession:
        if self._session is None:
            raise InvalidConfigError("offsets in ZooKeeper need --zookeeper HOST:PORT")
        return self._session

    def _describe(self) -> GroupDescription | None:
        """Returns the coordinator's description of the group; None where it does not know the group."""
        try:
            return self._groups.describe(self._group_id)
        except BrokerError as error:
            if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None


def read_legacy_positions(session: ZooKeeperSession, group_id: str, topic: str) -> dict[int, dict[int, int]]:
    """Returns the positions that a group of Kafka 0.7 has in a topic's logs: by broker, those of its partitions."""
    found: dict[int, dict[int, int]] = {}
    for name in session.children(paths.consumer_offsets(group_id, topic)):
        broker, _, partition = name.partition("-")
        node = session.get(f"{paths.consumer_offsets(group_id, topic)}/{name}")
        if broker.isdecimal() and partition.isdecimal() and node is not None and node.isdigit():
            found.setdefault(int(broker), {})[int(partition)] = int(node)
    return found


def list_zookeeper_groups(session: ZooKeeperSession) -> list[tuple[str, bool]]:
    """Returns (name, whether it has live members) of every group that is known to ZooKeeper."""
    return [(one, bool(session.children(paths.consumer_ids(one)))) for one in sorted(session.children(paths.CONSUMERS))]


def describe_zookeeper_group(session: ZooKeeperSession, group_id: str) -> ZooKeeperGroup:
    """Returns a group's members, owners and offsets in ZooKeeper; all are empty for a group that it does not know."""
    check_names(group_id)
    members = tuple(sorted(session.children(paths.consumer_ids(group_id))))
    return ZooKeeperGroup(
        group_id,
        members,
        {one: owner.thread for one, owner in read_owners(session, group_id).items()},
        read_all_zookeeper(session, group_id),
    )


def open_session(zookeeper: str, *, security: ZooKeeperSecurity = UNSECURED) -> ZooKeeperSession:
    """Returns a started session with ZooKeeper at `HOST:PORT,…`, to read groups and set their offsets."""
    session = ZooKeeperSession(
        zookeeper,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        connection_timeout_ms=SESSION_TIMEOUT_MS,
        on_change=lambda _: None,
        clock=SystemClock(),
        security=security,
    )
    session.start()
    return session
