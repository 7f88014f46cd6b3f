"""ConsumerGroupHeartbeat: one request for joining, staying, owning less, owning more, and leaving (KIP-848).

    epoch 0     join, or join again: everything must be said, nothing may be owned
    epoch > 0   stay: what is null has not changed
    epoch -1    leave      -2  a static member leaves and will come back

A member's epoch must be the one that the group knows, or the one before, with no more than its assignment: then only
the answer was lost. Any other is fenced, and the member gives up everything and joins again.
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
from millrace_broker.group_config import ConsumerGroupConfig
from millrace_broker.groups.consumer.change import Change
from millrace_broker.groups.consumer.events import NOT_SAID, Heartbeat, HeartbeatAnswer
from millrace_broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING,
    Member,
)
from millrace_broker.groups.consumer.topic_pattern import check_pattern
from millrace_broker.groups.records import MAX_STRING_BYTES, fits

T = TypeVar("T")
FIRST_VERSION_WITH_CLIENTS_MEMBER_ID = 1


def check_heartbeat(request: Heartbeat, config: ConsumerGroupConfig) -> None:
    """Errors of the request alone: InvalidGroupRequestError, UnsupportedAssignorError."""
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
            raise InvalidGroupRequestError(f"{name} can't be empty.")
    if not fits(request.member_id):
        raise InvalidGroupRequestError(f"MemberId is longer than {MAX_STRING_BYTES} bytes.")
    if request.member_epoch == JOINING_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise InvalidGroupRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVING_STATIC_EPOCH:
        raise InvalidGroupRequestError("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.assignors:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}."
        )


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == NOT_SAID:
        raise InvalidGroupRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.owned != NOTHING:
        raise InvalidGroupRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise InvalidGroupRequestError(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def heartbeat(change: Change, request: Heartbeat, member_id: str) -> HeartbeatAnswer:
    """A member joins or stays.

    Args:
        change: of the group, which may be a new one.
        request: checked.
        member_id: the request's, or a fresh one where it has none.
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
    return HeartbeatAnswer(
        member_id,
        after.epoch,
        change.surroundings.config.group_consumer_heartbeat_interval_ms,
        after.assigned if request.says_everything or after.assigned != before else None,
    )


def leave(change: Change, request: Heartbeat) -> HeartbeatAnswer:
    """A member leaves; a static one may come back, and its partitions wait for it as long as its session lasts."""
    state = change.state
    if request.instance_id is None:
        member = state.member(request.member_id)
    else:
        member = known_static_member(change, request.instance_id, request.member_id)
    if request.instance_id is not None and request.member_epoch == LEAVING_STATIC_EPOCH:
        away = replace(member.current, epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING)
        change.set_current(member.member_id, away)
    else:
        change.remove(member.member_id)
    return HeartbeatAnswer(request.member_id, request.member_epoch)


def known_static_member(change: Change, instance_id: str, member_id: str) -> Member:
    """The member that holds an instance id; it must be the one that asks."""
    member = change.state.static_member(instance_id)
    if member is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
    return member


def check_size(change: Change, member_id: str) -> None:
    """GroupMaxSizeReachedError where one more would be too many."""
    largest = change.surroundings.config.group_consumer_max_size
    if len(change.state.members) >= largest and member_id not in change.state.members:
        raise GroupMaxSizeReachedError(f"The consumer group has reached its maximum capacity of {largest} members.")


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
            f"Static member {member_id} with instance id {instance_id} cannot join the group because "
            f"the instance id is owned by {holder.member_id} member."
        )
    return change.replace_static(holder, member_id)


def _check_epoch(member: Member, request: Heartbeat) -> None:
    known, received = member.current.epoch, request.member_epoch
    answer_was_lost = (
        received == member.current.previous_epoch
        and request.owned is not None
        and request.owned <= member.current.assigned
    )
    if received > known or (received < known and not answer_was_lost):
        raise FencedMemberEpochError(
            f"The consumer group member has a {'greater' if received > known else 'smaller'} member epoch ({received}) "
            f"than the one known by the group coordinator ({known}). "
            "The member must abandon all its partitions and rejoin."
        )


def _said(new: T | None, old: T) -> T:
    return old if new is None else new
