"""Members of a consumer group that still use JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, "Upgrade").

    JoinGroup   brings subscription and owned partitions, as a heartbeat does; the response's generation is the epoch
    SyncGroup   returns what is assigned now, in the form of the embedded protocol; no member leads
    Heartbeat   returns REBALANCE_IN_PROGRESS while the member has partitions to give back or to fetch: it joins again

The embedded protocol is what classic consumers tell each other:

    subscription   version i16   0+  topics [string], user data bytes?
                                 1+  owned [topic string, partitions [i32]]   2+  generation i32   3+  rack string?
    assignment     version i16   0+  assigned [topic string, partitions [i32]], user data bytes?

A newer version is read as the newest that is known here: versions only add at the end.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from millrace.errors import (
    CorruptRecordError,
    ErrorCode,
    FencedInstanceIdError,
    GroupError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    UnknownMemberIdError,
)
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT32, Encoder
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.classic.facts import CONSUMER_PROTOCOL_TYPE
from millrace_broker.groups.consumer.change import Change
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
from millrace_broker.groups.group import UNKNOWN_MEMBER, Join, JoinResult, Leaving, Sync, SyncResult
from millrace_broker.groups.records import MAX_STRING_BYTES, fits

FIRST_VERSION_WITH_OWNED = 1
FIRST_VERSION_WITH_GENERATION = 2
FIRST_VERSION_WITH_RACK = 3
NEWEST_VERSION = 3
NULL = INT32.pack(-1)

Partitions = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a classic member reads, and the partitions it owns; only its assignor reads the user data."""

    version: int
    topic_names: frozenset[str]
    user_data: bytes | None = None
    owned: Partitions = field(default_factory=dict)
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """Returns the subscription in a ConsumerProtocolSubscription; raises CorruptRecordError for other bytes."""
    decoder = Decoder(data)
    version = decoder.int16()
    topics = frozenset(decoder.string() for _ in range(decoder.array_length()))
    user_data = _nullable_bytes(decoder)
    owned: Partitions = {}
    rack_id = None
    if version >= FIRST_VERSION_WITH_OWNED:
        owned = _read_partitions(decoder)
    if version >= FIRST_VERSION_WITH_GENERATION:
        decoder.int32()
    if version >= FIRST_VERSION_WITH_RACK:
        rack_id = decoder.nullable_string()
    return Subscription(version, topics, user_data, owned, rack_id)


def subscription_version(data: bytes) -> int:
    """Returns the version of a subscription; 0, which every client can read, if the bytes can't be decoded."""
    try:
        return read_subscription(data).version
    except CorruptRecordError:
        return 0


def read_assignment(data: bytes) -> tuple[Partitions, bytes | None]:
    """Returns an assignment's (partitions by topic, user data), `({}, None)` for b""; raises CorruptRecordError."""
    if not data:
        return {}, None
    decoder = Decoder(data)
    decoder.int16()
    return _read_partitions(decoder), _nullable_bytes(decoder)


def write_assignment(partitions: Partitions, version: int) -> bytes:
    """Returns a ConsumerProtocolAssignment that a member with a subscription of this version can read."""
    out = Encoder(flexible=False)
    out.int16(min(version, NEWEST_VERSION))
    out.array_length(len(partitions))
    for topic, indexes in partitions.items():
        out.string(topic)
        out.int32_array(indexes)
    out.raw(NULL)
    return out.joined()


def _read_partitions(decoder: Decoder) -> Partitions:
    return {
        decoder.string(): [decoder.int32() for _ in range(decoder.array_length())]
        for _ in range(decoder.array_length())
    }


def _nullable_bytes(decoder: Decoder) -> bytes | None:
    size = decoder.int32()
    if size < 0:
        return None
    decoder.position -= INT32.size
    return decoder.bytes_()


def join(change: Change, request: Join, member_id: str) -> JoinResult:
    """Lets a classic member join, or join again to learn of a change; raises a GroupError where it may not."""
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
    change.reconcile(member_id, by_id(subscription.owned, change.context.image))
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member_id,
        generation=change.state.members[member_id].current.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0].name,
    )


def sync(state: GroupState, request: Sync, image: MetadataImage) -> SyncResult:
    """Returns a classic member's current assignment, or REBALANCE_IN_PROGRESS where it has to join again."""
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
    assigned = write_assignment(by_name(member.current.assigned, image), version)
    return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assigned)


def must_rejoin(state: GroupState, member: Member) -> bool:
    """Returns whether a classic member has to join again, to give partitions back or to get some."""
    return (
        member.current.epoch < state.epoch
        or member.current.state is MemberState.UNREVOKED_PARTITIONS
        or (member.current.state is MemberState.UNRELEASED_PARTITIONS and not state.waits_for_others(member))
    )


def check_heartbeat(state: GroupState, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Returns the classic member that sends a Heartbeat; raises a GroupError for a wrong id or generation."""
    member = classic_member(state, member_id, instance_id)
    _check_generation(member, generation)
    return member


def leavers(state: GroupState, leaving: Sequence[Leaving]) -> list[str | ErrorCode]:
    """Returns, for each member that LeaveGroup names, its member id, or the error."""
    found: list[str | ErrorCode] = []
    for one in leaving:
        try:
            found.append(_leaver(state, one).member_id)
        except GroupError as error:
            found.append(error.code)
    return found


def by_id(partitions: Partitions, image: MetadataImage) -> Assignment:
    """Returns partitions given by topic name with topic ids instead, without topics that don't exist."""
    return assignment_of(
        {image.topics[name].topic_id: indexes for name, indexes in partitions.items() if name in image.topics}
    )


def by_name(assignment: Assignment, image: MetadataImage) -> Partitions:
    """Returns partitions given by topic id with topic names instead, without topics that don't exist."""
    topics = by_topic(assignment)
    names = {topic.topic_id: topic.name for topic in image.topics.values() if topic.topic_id in topics}
    return {names[topic_id]: indexes for topic_id, indexes in topics.items() if topic_id in names}


def classic_member(state: GroupState, member_id: str, instance_id: str | None) -> Member:
    """Returns the member with this id; raises a GroupError if there is none, it is fenced or uses the new protocol."""
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
