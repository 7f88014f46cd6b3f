"""The groups of one cluster, as a mirror sees them: at the coordinators and, if its address is known, in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millrace.client import Cluster, Groups
from millrace.client.consumer.assignment import Partition as GroupPartition
from millrace.client.consumer.offsets import FencedCommits, read_all_zookeeper, write_zookeeper
from millrace.client.groups import CONSUMER_PROTOCOL_TYPE
from millrace.client.metadata import Partition
from millrace.errors import BrokerError, ErrorCode, GroupHasMembersError, InvalidConfigError
from millrace.records.batch import NO_OFFSET
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession
from millrace_pipelines.mirror.group_plan import Commits, Stored
from millrace_pipelines.mirror.sharing import group_of

READING = frozenset({CONSUMER_PROTOCOL_TYPE, ""})  # "": a group that never had members
OWN_GROUPS = group_of("")  # those in which the instances of a mirror are members


class GroupSide(NamedTuple):
    """A cluster and, if its address is known, the session with the ZooKeeper in which groups have offsets."""

    cluster: Cluster
    zookeeper: ZooKeeperSession | None = None

    def group_ids(self) -> set[str]:
        """Returns the groups that read topics, or have offsets of topics."""
        listed = Groups(self.cluster).list()
        found = {one.group_id for one in listed if one.protocol_type in READING}
        if self.zookeeper is not None:
            found.update(self.zookeeper.children(paths.CONSUMERS))
        return {one for one in found if not one.startswith(OWN_GROUPS)}

    def stored(self, group_id: str, topics: Iterable[str], *, stable: bool = False) -> dict[Partition, Stored]:
        """Returns a group's offsets in some topics, with `stable` once no transaction can change them."""
        wanted = set(topics)
        groups = Groups(self.cluster)
        found = {one: at for one, at in groups.offsets(group_id).items() if one[0] in wanted}
        if stable and found:
            found = dict(groups.offsets(group_id, found))
        stored = {one: Stored(at) for one, at in found.items() if at.offset != NO_OFFSET}
        if self.has_in_zookeeper(group_id):
            for (topic, index), offset in read_all_zookeeper(self._session, group_id).items():
                if topic in wanted:
                    stored[topic, index] = stored.get((topic, index), Stored())._replace(zookeeper=offset)
        return stored

    def refuse_members(self, group_id: str) -> None:
        """Raises GroupHasMembersError for a group with members, at the coordinator or in ZooKeeper."""
        members: list[str] = []
        try:
            members += [one.member_id for one in Groups(self.cluster).describe(group_id).members]
        except BrokerError as error:
            if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        if self.has_in_zookeeper(group_id):
            members += self._session.children(paths.consumer_ids(group_id))
        if members:
            raise GroupHasMembersError(f"group {group_id} has live members ({', '.join(sorted(members))})")

    def commit(self, group_id: str, commits: Commits) -> None:
        """Commits offsets of a group without members, first at the coordinator."""
        if commits.coordinator:
            Groups(self.cluster).commit(group_id, commits.coordinator)
        if commits.zookeeper:
            offsets = {GroupPartition(*one): offset for one, offset in commits.zookeeper.items()}
            write_zookeeper(self._session, group_id, offsets)

    def fence(self, group_id: str, partitions: Iterable[Partition]) -> None:
        """Makes the coordinator refuse what a member of a group in ZooKeeper, stopped in a commit, may still send."""
        FencedCommits(group_id).take(self.cluster, [GroupPartition(*one) for one in partitions])

    def has_in_zookeeper(self, group_id: str) -> bool:
        """Returns whether the group can have offsets in ZooKeeper: its address is known, and the name is possible."""
        return self.zookeeper is not None and paths.is_name(group_id)

    @property
    def _session(self) -> ZooKeeperSession:
        if self.zookeeper is None:
            raise InvalidConfigError("offsets in ZooKeeper need its address")
        return self.zookeeper
