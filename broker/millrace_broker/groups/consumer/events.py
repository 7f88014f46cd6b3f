"""What happens to a consumer group, and what its members are answered.

    HeartbeatEvent   a member that uses ConsumerGroupHeartbeat joins, stays or leaves
    Join             a member that uses the classic protocol joins, or joins again to learn of a change
    Leave            members that use the classic protocol leave
    Expired          one of a member's timers has run out, and the member is removed

Each of these may write records, and waits while those of another are being stored. SyncGroup and Heartbeat only ask
what is known already, and are answered at once. The timers of a member:

    session     runs from one sign of life to the next
    rebalance   runs while the member has partitions to give back
    join        runs from when a classic member is first told to join again until it does
    sync        runs from when a classic member has joined until it asks for its assignment
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    Assignment,
    Member,
    MemberState,
    any_topic,
)
from millrace_broker.groups.group import CancelTimer, Effects, Join, SetTimer, Ticket
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig


class TimerKind(StrEnum):
    """What a member must do before its timer ends: heartbeat, give up partitions, join or sync."""

    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


class Timer(NamedTuple):
    """The key of a member's timer."""

    kind: TimerKind
    member_id: str


def session_timer(member: Member, config: ConsumerGroupConfig) -> SetTimer:
    """Returns the effect that restarts a member's session; a classic member has chosen the timeout itself."""
    classic = member.metadata.classic
    timeout_ms = config.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
    return SetTimer(Timer(TimerKind.SESSION, member.member_id), timeout_ms)


def rebalance_timer(member: Member) -> Effects:
    """Returns the effect that starts a member's rebalance timer if it has partitions to give back, else cancels it."""
    if member.metadata.classic is not None:
        return []  # it has `join` and `sync` instead
    timer = Timer(TimerKind.REBALANCE, member.member_id)
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        return [SetTimer(timer, member.metadata.rebalance_timeout_ms)]
    return [CancelTimer(timer)]


def timers_of(member: Member, config: ConsumerGroupConfig) -> Effects:
    """Returns the effects that start the timers of a member that was loaded."""
    return [session_timer(member, config), *rebalance_timer(member)]


def join_timer(member: Member) -> SetTimer:
    """Returns the effect that starts a classic member's time to join again, unless it runs already."""
    return SetTimer(Timer(TimerKind.JOIN, member.member_id), member.metadata.rebalance_timeout_ms, restarts=False)


def timers_after_join(member: Member, config: ConsumerGroupConfig, sync_timeout_ms: int) -> Effects:
    """Returns the effects that end a classic member's time for JoinGroup, and begin that for SyncGroup."""
    return [
        CancelTimer(Timer(TimerKind.JOIN, member.member_id)),
        SetTimer(Timer(TimerKind.SYNC, member.member_id), sync_timeout_ms),
        session_timer(member, config),
    ]


def timers_after_sync(member: Member, config: ConsumerGroupConfig) -> Effects:
    """Returns the effects that end a classic member's time for SyncGroup, and restart its session."""
    return [CancelTimer(Timer(TimerKind.SYNC, member.member_id)), session_timer(member, config)]


def cancelled_timers(member_id: str) -> Effects:
    """Returns the effects that cancel all timers of a member that has gone."""
    return [CancelTimer(Timer(kind, member_id)) for kind in TimerKind]


NOT_SAID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The request ConsumerGroupHeartbeat. None, or -1 for the timeout, means that nothing has changed.

    `may_describe` says which topics the member may describe.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    version: int = 1
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = field(default=any_topic, compare=False, repr=False)

    @property
    def leaves(self) -> bool:
        """Whether the member leaves, for good or (static, epoch -2) for a while."""
        return self.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH)

    @property
    def says_everything(self) -> bool:
        """Whether the request has all fields, on joining or after an error, so that the response must, too."""
        return self.member_epoch == JOINING_EPOCH or (
            self.rebalance_timeout_ms != NOT_SAID and self.topic_names is not None and self.owned is not None
        )


class HeartbeatResponse(NamedTuple):
    """The response to an accepted heartbeat; without an assignment that has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class Refusal(NamedTuple):
    """The error response to a heartbeat."""

    error: ErrorCode
    message: str | None = None


class HeartbeatEvent(NamedTuple):
    """A checked heartbeat with a member id, and the future (`ticket`) that gets the response."""

    request: Heartbeat
    ticket: Ticket


class Leave(NamedTuple):
    """Tells the group that a LeaveGroup request removes these members, which use the classic protocol."""

    member_ids: tuple[str, ...]


class Expired(NamedTuple):
    """The event that a member's timer has run out."""

    timer: Timer


Event = HeartbeatEvent | Join | Leave | Expired
