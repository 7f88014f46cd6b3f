"""The positions of `millrace consume --group`: the group's committed offsets, kept by its coordinator.

The command is no member of the group: nothing is shared out, all partitions are read by one command at a time. What
was printed is committed after it, so what a crash comes between is printed again: at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import Cluster


class GroupPositions:
    """The committed offsets of one group in one topic.

    Raises:
        GroupHasMembersError: The group has members, which share its partitions and would commit over this.
    """

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        from millrace.client import Groups

        self._groups = Groups(cluster)
        self._group_id = group_id
        self._topic = topic
        self._committed: dict[int, int] = {}
        self._refuse_members()

    def read(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Returns where to go on, in the partitions that the group has an offset of."""
        from millrace.records.batch import NO_OFFSET

        found = self._groups.offsets(self._group_id, [(self._topic, one) for one in partitions])
        self._committed = {number: one.offset for (_, number), one in found.items() if one.offset != NO_OFFSET}
        return dict(self._committed)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit those that have changed; BrokerError where the group has got members since."""
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
