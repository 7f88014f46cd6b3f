"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, for groups of every type.

What can be seen without the group is checked here; the rest decides the group. JoinGroup and SyncGroup are answered
through their ticket, a future; the others at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import ErrorCode, GroupError
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.group import UNKNOWN_MEMBER, Group, Join, JoinResult, Leaving, Sync, SyncResult
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.groups.records import MAX_STRING_BYTES, fits
from millrace_broker.groups.shard import Shard

MAX_NAME_BYTES = MAX_STRING_BYTES - 64  # a member id is a client's or an instance's id and 37 characters


def join(coordinator: GroupCoordinator, group_id: str, request: Join) -> None:
    """Handles JoinGroup; its ticket, a future, gets the response. A new member makes a classic group, if need be."""
    try:
        error = _join(coordinator, group_id, request)
    except GroupError as refused:
        error = refused.code
    if error:
        request.ticket.set_result(JoinResult(error, request.member_id))


def _join(coordinator: GroupCoordinator, group_id: str, request: Join) -> ErrorCode:
    config = coordinator.config
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not all(fits(text, MAX_NAME_BYTES) for text in _names(request)):
        return ErrorCode.INVALID_REQUEST
    shard = coordinator.shard(group_id)
    group = shard.groups.get(group_id)
    if group is None:
        if request.member_id != UNKNOWN_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group = shard.groups[group_id] = ClassicGroup(group_id, config, shard.now_ms())
    shard.perform(group, group.join(request, shard.now_ms()))
    return ErrorCode.NONE


def _names(request: Join) -> list[str]:
    """Returns the texts of a JoinGroup that are stored, whose lengths are limited."""
    protocols = [protocol.name for protocol in request.protocols]
    return [request.protocol_type, request.client_id, request.instance_id or "", *protocols]


def sync(coordinator: GroupCoordinator, group_id: str, request: Sync) -> None:
    """Handles SyncGroup; the ticket (the request's future) gets the response, perhaps later."""
    try:
        shard, group = _find(coordinator, group_id)
    except GroupError as refused:
        # While the group is being loaded, the member joins again: what its leader assigned may not have been stored.
        loading = refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        request.ticket.set_result(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if loading else refused.code))
        return
    if group is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
        request.ticket.set_result(SyncResult(error))
    else:
        shard.perform(group, group.sync(request, shard.now_ms()))


def heartbeat(
    coordinator: GroupCoordinator, group_id: str, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Handles Heartbeat; returns the error, or NONE, also while the group is being loaded."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        shard, group = _find(coordinator, group_id)
    except GroupError as refused:
        loading = refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if loading else refused.code
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error, effects = group.heartbeat(member_id, instance_id, generation)
    shard.perform(group, effects)
    return error


def leave(coordinator: GroupCoordinator, group_id: str, leaving: Sequence[Leaving]) -> list[ErrorCode]:
    """Handles LeaveGroup; returns an error or NONE for each member.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """
    shard, group = _find(coordinator, group_id)
    if group is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    errors, effects = group.leave(leaving, shard.now_ms())
    shard.perform(group, effects)
    return errors


def _find(coordinator: GroupCoordinator, group_id: str) -> tuple[Shard, Group | None]:
    shard = coordinator.shard(group_id)
    return shard, shard.groups.get(group_id)
