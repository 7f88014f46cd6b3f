"""The positions of `millrace consume --group`: the group's committed offsets, which its coordinator keeps.

The command is not a member of the group: one command at a time reads all partitions. Offsets are committed after their
records were printed, so a crash in between prints them a second time: at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import Cluster


class GroupPositions:
    """The committed offsets of one group in one topic.

    Raises:
        GroupHasMembersError: The group has members, which own its partitions and would overwrite these commits.
    """

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        from millrace.client import Groups

        self._groups = Groups(cluster)
        self._group_id = group_id
        self._topic = topic
        self._committed: dict[int, int] = {}
        self._refuse_members()

    def read(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Returns the next offset of each partition that the group has committed."""
        from millrace.records.batch import NO_OFFSET

        found = self._groups.offsets(self._group_id, [(self._topic, one) for one in partitions])
        self._committed = {number: one.offset for (_, number), one in found.items() if one.offset != NO_OFFSET}
        return dict(self._committed)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commits the offsets that have changed; raises BrokerError if the group has members by now."""
        from millrace.client.groups import GroupOffset

        changed = {one: offset for one, offset in offsets.items() if self._committed.get(one) != offset}
        if changed:
            placed = {(self._topic, one): GroupOffset(offset, "") for one, offset in changed.items()}
            self._groups.commit(self._group_id, placed)
            self._committed.update(changed)

    def _refuse_members(self) -> None:
        from millrace.client.consumer import GroupHasMembersError
        from millrace.errors import BrokerError, ErrorCode

        try:
            members = self._groups.describe(self._group_id).members
        except BrokerError as error:
            if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return
        if members:
            names = ", ".join(sorted(one.member_id for one in members))
            raise GroupHasMembersError(f"group {self._group_id} has live members ({names}); stop them first")
