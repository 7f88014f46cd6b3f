"""ConsumerGroupHeartbeat, the one request by which a member joins, stays and leaves (KIP-848).

    epoch 0     joins, or joins again: it says everything about itself, and owns nothing
    epoch > 0   stays: what is null has not changed
    epoch -1    leaves      -2   is static, leaves for a while and comes back

A member sends the epoch that it was told last. It may send the one before where it owns no more than its assignment,
as then only the response was lost. With any other epoch it is fenced: it gives up its partitions and joins again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from millrace.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidGroupRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from millrace_broker.groups.consumer.change import Change
from millrace_broker.groups.consumer.events import NOT_SAID, Heartbeat, HeartbeatResponse
from millrace_broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING,
    Member,
    check_pattern,
)
from millrace_broker.groups.consumer.records import Kind
from millrace_broker.groups.records import MAX_STRING_BYTES, fits
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig

T = TypeVar("T")
FIRST_VERSION_WITH_CLIENTS_MEMBER_ID = 1


def check_heartbeat(request: Heartbeat, config: ConsumerGroupConfig) -> None:
    """Checks the fields of a heartbeat, without regard to the group.

    Raises:
        InvalidGroupRequestError: a field is missing, empty, too long or out of place.
        UnsupportedAssignorError: the broker does not have the server-side assignor.
    """
    needs_member_id = (
        request.version >= FIRST_VERSION_WITH_CLIENTS_MEMBER_ID
        or request.member_epoch > JOINING_EPOCH
        or request.member_epoch == LEAVING_EPOCH
    )
    for name, text in (
        ("MemberId", request.member_id if needs_member_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise InvalidGroupRequestError(f"the field {name} is empty")
    if not fits(request.member_id):
        raise InvalidGroupRequestError(f"the field MemberId has more than {MAX_STRING_BYTES} bytes")
    if request.member_epoch == JOINING_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise InvalidGroupRequestError("a member that leaves for a while has to name its InstanceId")
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        raise InvalidGroupRequestError(f"the member epoch {request.member_epoch} has no meaning")
    if request.server_assignor is not None and request.server_assignor not in config.assignors:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}."
        )


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == NOT_SAID:
        raise InvalidGroupRequestError("a member that joins has to give its RebalanceTimeoutMs")
    if request.owned != NOTHING:
        raise InvalidGroupRequestError(
            "a member that joins owns nothing: its TopicPartitions have to be an empty array"
        )
    if request.topic_names is None and request.topic_regex is None:
        raise InvalidGroupRequestError("a member that joins has to give SubscribedTopicNames or SubscribedTopicRegex")


def heartbeat(change: Change, request: Heartbeat, member_id: str) -> HeartbeatResponse:
    """Lets a member join or stay, writes what changes to `change`, and returns the response.

    Args:
        change: the change of the group, which may be a new one.
        request: a request that was checked.
        member_id: the member id of the request, or a fresh one where it has none.
    """
    check_size(change, member_id)
    member = _member(change, request, member_id)
    before = member.current.assigned
    metadata = replace(
        member.metadata,
        instance_id=_said(request.instance_id, member.metadata.instance_id),
        rack_id=_said(request.rack_id, member.metadata.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=_said(request.topic_names, member.metadata.topic_names),
        topic_regex=_said(request.topic_regex, member.metadata.topic_regex),
        rebalance_timeout_ms=_said(
            None if request.rebalance_timeout_ms == NOT_SAID else request.rebalance_timeout_ms,
            member.metadata.rebalance_timeout_ms,
        ),
        server_assignor=_said(request.server_assignor, member.metadata.server_assignor),
        classic=None,
    )
    if metadata.topic_regex and metadata.topic_regex != member.metadata.topic_regex:
        check_pattern(metadata.topic_regex)
    change.rebalance_if(change.set_metadata(member, metadata))
    change.reconcile(member_id, request.owned)
    after = change.state.members[member_id].current
    return HeartbeatResponse(
        member_id,
        after.epoch,
        change.context.config.group_consumer_heartbeat_interval_ms,
        after.assigned if request.says_everything or after.assigned != before else None,
    )


def leave(change: Change, request: Heartbeat) -> HeartbeatResponse:
    """Lets a member leave and returns the response.

    A static member may leave for a while: its partitions are kept for it as long as its session lasts.
    """
    state = change.state
    if request.instance_id is None:
        member = state.member(request.member_id)
    else:
        member = known_static_member(change, request.instance_id, request.member_id)
    if request.instance_id is not None and request.member_epoch == LEAVING_STATIC_EPOCH:
        away = replace(member.current, epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING)
        change.put(Kind.CURRENT, member.member_id, away)
    else:
        change.remove(member.member_id)
    return HeartbeatResponse(request.member_id, request.member_epoch)


def known_static_member(change: Change, instance_id: str, member_id: str) -> Member:
    """Returns the member with an instance id; raises a GroupError where there is none, or its member id is another."""
    member = change.state.static_member(instance_id)
    if member is None:
        raise UnknownMemberIdError(f"no member of group {change.state.group_id} has the instance id {instance_id}")
    if member.member_id != member_id:
        raise FencedInstanceIdError(
            f"member {member_id} is fenced: the instance id {instance_id} belongs to member {member.member_id} now"
        )
    return member


def check_size(change: Change, member_id: str) -> None:
    """Raises GroupMaxSizeReachedError where the group has `group.consumer.max.size` members without this one."""
    largest = change.context.config.group_consumer_max_size
    if len(change.state.members) >= largest and member_id not in change.state.members:
        raise GroupMaxSizeReachedError(f"group {change.state.group_id} is full: it may have at most {largest} members")


def _member(change: Change, request: Heartbeat, member_id: str) -> Member:
    joins = request.member_epoch == JOINING_EPOCH
    if request.instance_id is None:
        member = change.state.members.get(member_id) or (Member(member_id) if joins else change.state.member(member_id))
    elif joins and change.state.static_members.get(request.instance_id) != member_id:
        return _joining_static_member(change, request.instance_id, member_id)
    else:
        member = known_static_member(change, request.instance_id, member_id)
    _check_epoch(member, request)
    return member


def _joining_static_member(change: Change, instance_id: str, member_id: str) -> Member:
    holder = change.state.static_member(instance_id)
    if holder is None:
        return change.state.members.get(member_id) or Member(member_id)
    if holder.metadata.classic is None and holder.current.epoch != LEAVING_STATIC_EPOCH:
        raise UnreleasedInstanceIdError(
            f"member {member_id} can't take the instance id {instance_id}: member {holder.member_id} has not left"
        )
    return change.replace_static(holder, member_id)


def _check_epoch(member: Member, request: Heartbeat) -> None:
    known, received = member.current.epoch, request.member_epoch
    response_was_lost = (
        received == member.current.previous_epoch
        and request.owned is not None
        and request.owned <= member.current.assigned
    )
    if received > known or (received < known and not response_was_lost):
        raise FencedMemberEpochError(
            f"member {member.member_id} is at epoch {known}, not {received}: it has to give up all and join again"
        )


def _said(new: T | None, old: T) -> T:
    return old if new is None else new
