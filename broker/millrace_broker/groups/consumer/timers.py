"""The timers of a consumer group's members. A member whose timer runs out is removed.

session     runs from one sign of life to the next
rebalance   runs while a member has partitions to give back
join        runs from when a classic member is first told to join again until it does
sync        runs from when a classic member has joined until it asks for its assignment
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from millrace_broker.groups.consumer.member import Member, MemberState
from millrace_broker.groups.group import CancelTimer, Effects, SetTimer
from millrace_broker.properties.group_config import ConsumerGroupConfig


class TimerKind(StrEnum):
    """What a member must do before its timer ends: heartbeat, give up partitions, join or sync."""

    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


class Timer(NamedTuple):
    """One timer of a member."""

    kind: TimerKind
    member_id: str


def session(member: Member, config: ConsumerGroupConfig) -> SetTimer:
    """Starts a member's session from zero; a classic member has chosen the timeout itself."""
    classic = member.metadata.classic
    timeout_ms = config.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
    return SetTimer(Timer(TimerKind.SESSION, member.member_id), timeout_ms)


def rebalance(member: Member) -> Effects:
    """Starts the timer of a member that has partitions to give back, and cancels that of another."""
    if member.metadata.classic is not None:
        return []  # it has `join` and `sync` instead
    timer = Timer(TimerKind.REBALANCE, member.member_id)
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        return [SetTimer(timer, member.metadata.rebalance_timeout_ms)]
    return [CancelTimer(timer)]


def of_member(member: Member, config: ConsumerGroupConfig) -> Effects:
    """Starts the timers of a member that is known from the log, or is not removed after all."""
    return [session(member, config), *rebalance(member)]


def told_to_join(member: Member) -> SetTimer:
    """Starts the time within which a classic member has to join again, unless it was told before."""
    return SetTimer(Timer(TimerKind.JOIN, member.member_id), member.metadata.rebalance_timeout_ms, restarts=False)


def joined(member: Member, config: ConsumerGroupConfig, sync_timeout_ms: int) -> Effects:
    """Ends the wait for a classic member's JoinGroup and begins that for its SyncGroup."""
    return [
        CancelTimer(Timer(TimerKind.JOIN, member.member_id)),
        SetTimer(Timer(TimerKind.SYNC, member.member_id), sync_timeout_ms),
        session(member, config),
    ]


def synced(member: Member, config: ConsumerGroupConfig) -> Effects:
    """Ends the wait for a classic member's SyncGroup."""
    return [CancelTimer(Timer(TimerKind.SYNC, member.member_id)), session(member, config)]


def cancelled(member_id: str) -> Effects:
    """Cancels all timers of a member that has gone."""
    return [CancelTimer(Timer(kind, member_id)) for kind in TimerKind]
