"""Members of a consumer group that still use JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, "Upgrade").

JoinGroup   brings subscription and owned partitions, as a heartbeat does; the answer's generation is the epoch
SyncGroup   returns what is assigned now, in the form of the embedded protocol; no member leads
Heartbeat   returns REBALANCE_IN_PROGRESS while the member has partitions to give back or to fetch: it joins again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millrace.errors import (
    ErrorCode,
    FencedInstanceIdError,
    GroupError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    UnknownMemberIdError,
)
from millrace_broker.cluster.view import ClusterView
from millrace_broker.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from millrace_broker.groups.consumer.change import Change
from millrace_broker.groups.consumer.embedded_protocol import (
    Partitions,
    read_subscription,
    subscription_version,
    write_assignment,
)
from millrace_broker.groups.consumer.heartbeat import check_size, known_static_member
from millrace_broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ClassicProtocol,
    Member,
    MemberState,
    assignment_of,
    by_topic,
)
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.events import UNKNOWN_MEMBER, Join, JoinResult, Leaving, Sync, SyncResult
from millrace_broker.groups.records import MAX_STRING_BYTES, fits


def join(change: Change, request: Join, member_id: str) -> JoinResult:
    """Lets a classic member join, or join again to learn of a change."""
    if not fits(member_id):
        raise UnknownMemberIdError(f"the member id has more than {MAX_STRING_BYTES} bytes")
    check_size(change, member_id)
    _check_protocols(change.state, request)
    member = _member(change, request, member_id)
    subscription = read_subscription(request.protocols[0].metadata)
    protocols = tuple(ClassicProtocol(one.name, one.metadata) for one in request.protocols)
    metadata = replace(
        member.metadata,
        instance_id=request.instance_id or member.metadata.instance_id,
        rack_id=subscription.rack_id or member.metadata.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )
    change.rebalance_if(change.set_metadata(member, metadata))
    change.reconcile(member_id, by_id(subscription.owned, change.surroundings.view))
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member_id,
        generation=change.state.members[member_id].current.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0].name,
    )


def sync(state: GroupState, request: Sync, view: ClusterView) -> SyncResult:
    """Returns what is assigned to a classic member now, or REBALANCE_IN_PROGRESS where it has to join again."""
    member = classic_member(state, request.member_id, request.instance_id)
    _check_generation(member, request.generation)
    metadata = member.metadata.classic
    assert metadata is not None
    if state.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    protocol = metadata.protocols[0]
    joined_with, asked_for = (CONSUMER_PROTOCOL_TYPE, protocol.name), (request.protocol_type, request.protocol_name)
    if any(asked not in (None, joined) for asked, joined in zip(asked_for, joined_with, strict=True)):
        raise InconsistentGroupProtocolError(
            f"member {member.member_id} asks for protocol {asked_for}; it has joined with {joined_with}"
        )
    version = subscription_version(protocol.metadata)
    assigned = write_assignment(by_name(member.current.assigned, view), version)
    return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assigned)


def must_rejoin(state: GroupState, member: Member) -> bool:
    """Returns whether a classic member has partitions to give back or to fetch."""
    return (
        member.current.epoch < state.epoch
        or member.current.state is MemberState.UNREVOKED_PARTITIONS
        or (member.current.state is MemberState.UNRELEASED_PARTITIONS and not state.waits_for_others(member))
    )


def check_heartbeat(state: GroupState, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Returns the classic member that sends a Heartbeat; raises a GroupError where there is none, or it is fenced."""
    member = classic_member(state, member_id, instance_id)
    _check_generation(member, generation)
    return member


def leavers(state: GroupState, leaving: Sequence[Leaving]) -> list[str | ErrorCode]:
    """Returns, for each member that LeaveGroup names, its id or the error."""
    found: list[str | ErrorCode] = []
    for one in leaving:
        try:
            found.append(_leaver(state, one).member_id)
        except GroupError as error:
            found.append(error.code)
    return found


def by_id(partitions: Partitions, view: ClusterView) -> Assignment:
    """Returns the partitions of those topics that exist, by topic id."""
    return assignment_of(
        {view.topics[name].topic_id: indexes for name, indexes in partitions.items() if name in view.topics}
    )


def by_name(assignment: Assignment, view: ClusterView) -> Partitions:
    """Returns the partitions of those topics that exist, by topic name."""
    topics = by_topic(assignment)
    names = {topic.topic_id: topic.name for topic in view.topics.values() if topic.topic_id in topics}
    return {names[topic_id]: indexes for topic_id, indexes in topics.items() if topic_id in names}


def classic_member(state: GroupState, member_id: str, instance_id: str | None) -> Member:
    """Returns the member; raises a GroupError where there is none, it is fenced, or it uses the new protocol."""
    if instance_id is None:
        member = state.member(member_id)
    else:
        holder = state.static_member(instance_id)
        if holder is None:
            raise UnknownMemberIdError(f"no member of group {state.group_id} has the instance id {instance_id}")
        if holder.member_id != member_id:
            raise FencedInstanceIdError(f"instance id {instance_id} belongs to {holder.member_id}, not {member_id}")
        member = holder
    if member.metadata.classic is None:
        raise UnknownMemberIdError(f"member {member_id} does not use the classic protocol")
    return member


def _leaver(state: GroupState, leaving: Leaving) -> Member:
    # An administrator names a static member by its instance id alone (KIP-345).
    if leaving.instance_id is not None and leaving.member_id == UNKNOWN_MEMBER:
        holder = state.static_member(leaving.instance_id)
        if holder is None:
            raise UnknownMemberIdError(f"no member of group {state.group_id} has the instance id {leaving.instance_id}")
        return classic_member(state, holder.member_id, leaving.instance_id)
    return classic_member(state, leaving.member_id, leaving.instance_id)


def _member(change: Change, request: Join, member_id: str) -> Member:
    state = change.state
    holder = state.static_member(request.instance_id)
    if request.instance_id is None or (holder is None and request.member_id == UNKNOWN_MEMBER):
        return state.members.get(member_id) or Member(member_id)
    if holder is not None and request.member_id == UNKNOWN_MEMBER:
        return change.replace_static(holder, member_id)
    return known_static_member(change, request.instance_id, member_id)


def _check_protocols(state: GroupState, request: Join) -> None:
    """Raises InconsistentGroupProtocolError unless all classic members have a protocol in common."""
    offered = {one.name for one in request.protocols}
    others = [
        {protocol.name for protocol in member.metadata.classic.protocols}
        for member in state.members.values()
        if member.metadata.classic is not None and member.member_id != request.member_id
    ]
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered.intersection(*others):
        raise InconsistentGroupProtocolError(
            f"the classic members of group {state.group_id} have no protocol in common with {sorted(offered)}"
        )


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.current.epoch:
        raise IllegalGenerationError(
            f"member {member.member_id} asks as of generation {generation}, it is at epoch {member.current.epoch}"
        )
