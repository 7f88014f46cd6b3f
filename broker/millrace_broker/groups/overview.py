"""Lists and deletes groups of every type."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.groups.group_coordinator import GroupCoordinator


class Listed(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


def list_groups(
    coordinator: GroupCoordinator, states: Collection[str] = (), types: Collection[str] = ()
) -> list[Listed]:
    """Returns the groups with one of the states and one of the types, both in any case; an empty filter lets all pass.

    Raises:
        CoordinatorLoadInProgressError: some groups are not known yet.
    """
    wanted_states, wanted_types = ({one.lower() for one in names} for names in (states, types))
    return [
        Listed(group.group_id, group.protocol_type or "", group.state_name, group.type)
        for shard in coordinator.shards()
        for group in shard.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.type.lower() in wanted_types)
    ]


def delete_group(coordinator: GroupCoordinator, group_id: str) -> asyncio.Future[ErrorCode]:
    """Deletes a group without members, and its offsets; the future gets the error.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """
    response: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    shard = coordinator.shard(group_id)
    group = shard.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
    if group is None or error:
        response.set_result(error)
        return response

    def replicated(error: ErrorCode) -> None:
        if not response.done():
            response.set_result(error)

    keys = dict.fromkeys([*shard.offsets.keys_of(group_id), *shard.transactional.keys_of(group_id)])
    shard.forget(list(keys), group, replicated)
    return response
