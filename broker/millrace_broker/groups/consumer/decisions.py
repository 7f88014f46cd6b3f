"""The decisions of a consumer group as functions of its state and an event.

They change nothing, but for the metadata images that the state was last compared with, which save work. An outcome is
one of these:

    Unchanged   there is nothing to store: the effects, mostly responses, are performed at once
    Changed     records make another state; once they are stored, the group adopts it and the effects are performed
    Succeeded   records replace the group by a classic one; once they are stored, that group takes this one's name

`DECISIONS` says by which function an event is decided, in a group that has members or none. A change by which only
members of the classic protocol remain is a succession: the last other member has left, was expired, or was a static
member that has come back as a classic one.

A heartbeat that joins a classic group of consumers has that group as `predecessor`: its members are written into the
new group together with the one that joins (KIP-848, "Migration").

How a group changes its protocol while its members go on (KIP-848, "Migration"):

    up      The first member with the new protocol joins a classic group of consumers. The generation becomes the group
            epoch, what the leader has assigned becomes target and current assignment, every member is at that epoch.
    down    The last member with the new protocol leaves, and classic ones remain. The epoch becomes the generation, and
            the classic group rebalances at once. Where the last one was a static member that has come back with the
            classic protocol, it keeps what it had, and no member has to join again.

Committed offsets belong to the group id, and stay. One batch of records deletes the one group and writes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from millrace.errors import CorruptRecordError, ErrorCode, GroupError, GroupIdNotFoundError, MillraceError
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.facts import CONSUMER_PROTOCOL_TYPE
from millrace_broker.groups.classic.facts import Member as ClassicMember
from millrace_broker.groups.consumer import classic_members
from millrace_broker.groups.consumer.change import Change, DecisionContext
from millrace_broker.groups.consumer.classic_members import (
    by_id,
    by_name,
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)
from millrace_broker.groups.consumer.events import (
    Event,
    Expired,
    HeartbeatEvent,
    Leave,
    Refusal,
    TimerKind,
    cancelled_timers,
    join_timer,
    rebalance_timer,
    session_timer,
    timers_after_join,
    timers_after_sync,
)
from millrace_broker.groups.consumer.heartbeat import heartbeat, leave
from millrace_broker.groups.consumer.member import (
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
)
from millrace_broker.groups.consumer.records import GroupEpoch, Kind, TargetEpoch, encoded
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.group import (
    UNKNOWN_MEMBER,
    Effect,
    Effects,
    Join,
    JoinProtocol,
    JoinResult,
    Respond,
    SetTimer,
    Sync,
    SyncResult,
)
from millrace_broker.groups.records import Record, StoredGroup, StoredMember
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig

RETRY_MS = 500  # Apache Kafka's pause before a member's removal that could not be stored is tried again
CANNOT = "classic group {} can't become a consumer group: {}"


def check_upgrade(group: ClassicGroup, config: ConsumerGroupConfig) -> None:
    """Raises GroupIdNotFoundError if policy, protocol type or size forbid that a classic group is upgraded."""
    reason = None
    if not config.may_upgrade:
        reason = "group.consumer.migration.policy does not allow it"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = f"its protocol type is {group.protocol_type}"
    elif len(group.members) > config.group_consumer_max_size:
        reason = f"it has {len(group.members)} members, of {config.group_consumer_max_size} that are allowed"
    if reason is not None:
        raise GroupIdNotFoundError(CANNOT.format(group.group_id, reason))


def upgrade(change: Change, group: ClassicGroup) -> None:
    """Writes a classic group's members into a new consumer group; raises GroupIdNotFoundError for unreadable ones."""
    try:
        members = [_upgraded(member, group, change.context.image) for member in group.members]
    except CorruptRecordError as error:
        reason = "a subscription or an assignment of its members can't be read"
        raise GroupIdNotFoundError(CANNOT.format(group.group_id, reason)) from error
    for member in members:
        change.put(Kind.MEMBER, member.member_id, member.metadata)
    change.put(Kind.GROUP, "", GroupEpoch(group.generation))
    for member in members:
        change.put(Kind.TARGET, member.member_id, member.current.assigned)
    change.put(Kind.TARGET_EPOCH, "", TargetEpoch(group.generation))
    for member in members:
        change.put(Kind.CURRENT, member.member_id, member.current)


def _upgraded(member: ClassicMember, group: ClassicGroup, image: MetadataImage) -> Member:
    # A group whose first rebalance is not complete has chosen no protocol yet.
    subscription = read_subscription(member.metadata(group.protocol_name) or member.protocols[0].metadata)
    partitions, user_data = read_assignment(member.assignment)
    if user_data:  # those of a subscription may be lost, they only help an assignor to be sticky
        reason = "its members have an assignor of their own, which keeps user data in the assignment"
        raise GroupIdNotFoundError(CANNOT.format(group.group_id, reason))
    metadata = MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(
            member.session_timeout_ms, tuple(ClassicProtocol(one.name, one.metadata) for one in member.protocols)
        ),
    )
    epoch = group.generation
    return Member(
        member.member_id,
        metadata,
        CurrentAssignment(epoch, epoch, MemberState.STABLE, by_id(partitions, image)),
    )


def may_downgrade(before: GroupState, after: Collection[Member], config: ConsumerGroupConfig, largest: int) -> bool:
    """Returns whether a group becomes classic: its last KIP-848 member left; policy and `largest` size allow it."""
    return (
        bool(after)
        and all(member.metadata.classic is not None for member in after)
        and any(member.metadata.classic is None for member in before.members.values())
        and config.may_downgrade
        and len(after) <= largest
    )


def downgraded_group(
    state: GroupState, members: Sequence[Member], image: MetadataImage, config: GroupConfig, now_ms: int
) -> ClassicGroup:
    """Returns the classic group of these members, with their current assignments and the group epoch as generation."""
    protocol = _common_protocol(members)
    kept = StoredGroup(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.epoch,
        protocol_name=protocol,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(_stored_member(member, protocol, image) for member in members),
    )
    offered = {
        member.member_id: tuple(JoinProtocol(one.name, one.metadata) for one in member.metadata.classic.protocols)
        for member in members
        if member.metadata.classic is not None
    }
    group = ClassicGroup.of(state.group_id, kept, config, now_ms)
    for member in group.members:
        member.protocols = offered[member.member_id]
    return group


def _common_protocol(members: Sequence[Member]) -> str:
    """Returns the first member's first protocol that all members support; its very first if there is none."""
    offers = [[one.name for one in member.metadata.classic.protocols] for member in members if member.metadata.classic]
    return next((name for name in offers[0] if all(name in offer for offer in offers)), offers[0][0])


def _stored_member(member: Member, protocol: str, image: MetadataImage) -> StoredMember:
    classic = member.metadata.classic
    assert classic is not None
    subscription = next(
        (one.metadata for one in classic.protocols if one.name == protocol), classic.protocols[0].metadata
    )
    return StoredMember(
        member_id=member.member_id,
        instance_id=member.metadata.instance_id,
        client_id=member.metadata.client_id,
        client_host=member.metadata.client_host,
        rebalance_timeout_ms=member.metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        subscription=subscription,
        assignment=write_assignment(by_name(member.current.assigned, image), subscription_version(subscription)),
    )


class Situation(NamedTuple):
    """The basis of a decision: the stored state of the group, the configurations, the cluster and the time.

    `predecessor` is the classic group that this one is about to replace.
    """

    state: GroupState
    context: DecisionContext
    classic_config: GroupConfig
    predecessor: ClassicGroup | None = None

    @property
    def config(self) -> ConsumerGroupConfig:
        """The properties of consumer groups that hold for this group."""
        return self.context.config


class Unchanged(NamedTuple):
    """An outcome that stores nothing: its effects are performed at once."""

    effects: Sequence[Effect] = ()


class Changed(NamedTuple):
    """An outcome that stores records; then the group takes the state, and the effects are performed."""

    records: tuple[Record, ...]
    state: GroupState
    effects: Sequence[Effect] = ()


class Succeeded(NamedTuple):
    """An outcome that stores records by which a classic group, `successor`, replaces this one.

    Once they are stored, the effects are performed, and the successor rebalances or gets `join`.
    """

    records: tuple[Record, ...]
    successor: ClassicGroup
    effects: Sequence[Effect] = ()
    rebalances: bool = False
    join: Join | None = None


Outcome = Unchanged | Changed | Succeeded


def decide(situation: Situation, event: Event) -> Outcome:
    """Returns what an event leads to: records to store with the new state, or effects alone."""
    return DECISIONS[type(event), bool(situation.state.members)](situation, event)


def refuse(event: Event, error: ErrorCode) -> Effects:
    """Returns the effect that answers an event's request with an error; none if the event comes from no request."""
    match event:
        case HeartbeatEvent(_, ticket):
            # REBALANCE_IN_PROGRESS is an error of the classic protocol; this one makes the client ask again too.
            is_classic_error = error is ErrorCode.REBALANCE_IN_PROGRESS
            return [Respond(ticket, Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE if is_classic_error else error))]
        case Join():
            return [Respond(event.ticket, JoinResult(error, event.member_id))]
        case _:
            return []


def not_stored(situation: Situation, event: Event, error: ErrorCode) -> Effects:
    """Returns the effects after the records of an event could not be stored: a member is removed somewhat later."""
    if isinstance(event, Expired) and event.timer.member_id in situation.state.members:
        return [SetTimer(event.timer, RETRY_MS)]
    return refuse(event, error)


def respond_sync(situation: Situation, request: Sync) -> Effects:
    """Returns the response to a classic member's SyncGroup, and its timers that are set or cancelled."""
    try:
        result = classic_members.sync(situation.state, request, situation.context.image)
    except GroupError as error:
        return [Respond(request.ticket, SyncResult(error.code))]
    member = situation.state.members[request.member_id]
    if result.error:
        return [join_timer(member), Respond(request.ticket, result)]
    return [*timers_after_sync(member, situation.config), Respond(request.ticket, result)]


def respond_heartbeat(
    state: GroupState, config: ConsumerGroupConfig, member_id: str, instance_id: str | None, generation: int
) -> tuple[ErrorCode, Effects]:
    """Returns (error, timers) for a classic member's Heartbeat: REBALANCE_IN_PROGRESS if it has to join again."""
    try:
        member = classic_members.check_heartbeat(state, member_id, instance_id, generation)
    except GroupError as error:
        return error.code, []
    session = session_timer(member, config)
    if classic_members.must_rejoin(state, member):
        return ErrorCode.REBALANCE_IN_PROGRESS, [session, join_timer(member)]
    return ErrorCode.NONE, [session]


def _heartbeat(situation: Situation, event: HeartbeatEvent) -> Outcome:
    request, ticket = event
    try:
        change = _begin(situation)
        if request.leaves:
            return _settled(situation, change, [Respond(ticket, leave(change, request))])
        response = heartbeat(change, request, request.member_id)
    except MillraceError as error:
        return Unchanged([Respond(ticket, Refusal(_code(error), str(error)))])
    member = change.state.members[request.member_id]
    return _changed(situation, change, [session_timer(member, situation.config), Respond(ticket, response)])


def _join(situation: Situation, request: Join) -> Outcome:
    try:
        return _join_classic(situation, request)
    except MillraceError as error:
        return Unchanged(refuse(request, _code(error)))


def _join_classic(situation: Situation, request: Join) -> Outcome:
    is_unknown = request.member_id == UNKNOWN_MEMBER
    member_id = request.fresh_member_id if is_unknown else request.member_id
    change = _begin(situation)
    response = Respond(request.ticket, classic_members.join(change, request, member_id))
    if is_unknown and request.instance_id is None and request.requires_known_member_id:
        return Unchanged([Respond(request.ticket, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))])
    member = change.state.members[member_id]
    if _may_downgrade(situation, change):
        rebalances = member.current.epoch != change.state.epoch
        return _downgraded(situation, change.state, change, [response], rebalances=rebalances)
    of_timers = timers_after_join(member, situation.config, request.rebalance_timeout_ms)
    return _changed(situation, change, [*of_timers, response])


def _become_classic(situation: Situation, request: Join) -> Outcome:
    """Replaces the group, which has no members, by a classic group, which then handles this JoinGroup."""
    if request.member_id != UNKNOWN_MEMBER:
        return Unchanged(refuse(request, ErrorCode.UNKNOWN_MEMBER_ID))
    state = situation.state
    successor = ClassicGroup(state.group_id, situation.classic_config, situation.context.now_ms)
    return Succeeded(_tombstones(state), successor, join=request)


def _leave(situation: Situation, event: Leave) -> Outcome:
    present = [member_id for member_id in event.member_ids if member_id in situation.state.members]
    return _remove(situation, present) if present else Unchanged()


def _expired(situation: Situation, event: Expired) -> Outcome:
    kind, member_id = event.timer
    member = situation.state.members.get(member_id)
    has_given_back = member is None or member.current.state is not MemberState.UNREVOKED_PARTITIONS
    if member is None or (kind is TimerKind.REBALANCE and has_given_back):
        return Unchanged()
    return _remove(situation, [member_id])


def _remove(situation: Situation, member_ids: Sequence[str]) -> Outcome:
    change = _begin(situation)
    change.remove(*member_ids)
    return _settled(situation, change, [])


def _settled(situation: Situation, change: Change, effects: Effects) -> Outcome:
    """Returns the outcome of a change by which members have left; if only classic ones remain, a classic group."""
    if _may_downgrade(situation, change):
        return _downgraded(situation, situation.state, change, effects, rebalances=True)
    return _changed(situation, change, effects)


def _may_downgrade(situation: Situation, change: Change) -> bool:
    largest = situation.classic_config.group_max_size
    return may_downgrade(situation.state, change.state.members.values(), situation.config, largest)


def _downgraded(
    situation: Situation, state: GroupState, change: Change, effects: Effects, *, rebalances: bool
) -> Succeeded:
    members, image = tuple(change.state.members.values()), situation.context.image
    successor = downgraded_group(state, members, image, situation.classic_config, situation.context.now_ms)
    return Succeeded((*_tombstones(situation.state), successor.record()), successor, effects, rebalances)


def _begin(situation: Situation) -> Change:
    change = Change(situation.state, situation.context)
    if situation.predecessor is not None and not situation.predecessor.is_empty:
        check_upgrade(situation.predecessor, situation.config)
        upgrade(change, situation.predecessor)
    return change


def _changed(situation: Situation, change: Change, effects: Effects) -> Outcome:
    """Returns the outcome of a change: its records, and the timers of the members that it affects."""
    if not change.records:
        return Unchanged(effects)
    predecessor, members = situation.predecessor, change.state.members
    records = [] if predecessor is None else predecessor.tombstones()
    of_timers: Effects = []
    if predecessor is not None:
        of_timers += [session_timer(member, situation.config) for member in members.values()]
    for member_id in situation.state.members:
        if member_id not in members:
            of_timers += cancelled_timers(member_id)
    for member in _reconciled(change):
        of_timers += rebalance_timer(member)
    records += [encoded(record) for record in change.records]
    return Changed(tuple(records), change.state, [*of_timers, *effects])


def _reconciled(change: Change) -> list[Member]:
    """Returns the members whose current assignment the change has written."""
    member_ids = dict.fromkeys(record.key.name for record in change.records if record.key.kind is Kind.CURRENT)
    return [change.state.members[one] for one in member_ids if one in change.state.members]


def _tombstones(state: GroupState) -> tuple[Record, ...]:
    return tuple(encoded(record) for record in state.tombstones())


def _code(error: MillraceError) -> ErrorCode:
    return error.code if isinstance(error, GroupError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _ignored(_: Situation, __: Event) -> Outcome:
    return Unchanged()


DECISIONS: Mapping[tuple[type[Event], bool], Callable[[Situation, Any], Outcome]] = {
    (HeartbeatEvent, True): _heartbeat,
    (HeartbeatEvent, False): _heartbeat,
    (Join, True): _join,
    (Join, False): _become_classic,
    (Leave, True): _leave,
    (Leave, False): _ignored,
    (Expired, True): _expired,
    (Expired, False): _ignored,
}
"""The function that decides an event, where the group has members, and where it has none."""
