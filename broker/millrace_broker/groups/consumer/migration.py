"""A group changes its protocol while its members go on (KIP-848, "Migration").

    up      The first member with the new protocol joins a classic group of consumers. The generation becomes the group
            epoch, what the leader has assigned becomes target and current assignment, every member is at that epoch.
    down    The last member with the new protocol leaves, and classic ones remain. The epoch becomes the generation, and
            the classic group rebalances at once. Where the last one was a static member that has come back with the
            classic protocol, it keeps what it had, and no member has to join again.

Committed offsets belong to the group id, and stay. One batch of records deletes the one group and writes the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millrace.errors import CorruptRecordError, GroupIdNotFoundError
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from millrace_broker.groups.classic.members import Member as ClassicMember
from millrace_broker.groups.consumer.change import Change
from millrace_broker.groups.consumer.classic_members import (
    by_id,
    by_name,
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)
from millrace_broker.groups.consumer.member import (
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
)
from millrace_broker.groups.consumer.records import GroupEpoch, Kind, TargetEpoch
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.events import JoinProtocol
from millrace_broker.groups.records import StoredGroup, StoredMember
from millrace_broker.properties.group_config import ConsumerGroupConfig, GroupConfig

CANNOT = "classic group {} can't become a consumer group: {}"


def check_upgrade(group: ClassicGroup, config: ConsumerGroupConfig) -> None:
    """Raises GroupIdNotFoundError where a classic group with members may not become a consumer group."""
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
    """Writes the members of a classic group into a new consumer group."""
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
    """Returns whether a consumer group becomes a classic one, which `largest` members fit into."""
    return (
        bool(after)
        and all(member.metadata.classic is not None for member in after)
        and any(member.metadata.classic is None for member in before.members.values())
        and config.may_downgrade
        and len(after) <= largest
    )


def downgrade(
    state: GroupState, members: Sequence[Member], image: MetadataImage, config: GroupConfig, now_ms: int
) -> ClassicGroup:
    """Returns the classic group of these members, each with what is assigned to it now."""
    protocol = _common_protocol(members)
    kept = StoredGroup(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.epoch,
        protocol_name=protocol,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(_downgraded(member, protocol, image) for member in members),
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
    """Returns the first protocol of the first member that all members have."""
    offers = [[one.name for one in member.metadata.classic.protocols] for member in members if member.metadata.classic]
    return next((name for name in offers[0] if all(name in offer for offer in offers)), offers[0][0])


def _downgraded(member: Member, protocol: str, image: MetadataImage) -> StoredMember:
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
