"""The rebalance of one member as a pure state table: events go in, actions for `member.py` come out.

    UNREGISTERED ──Registered──► READING ──Planned──► RELEASING ──Released──► CLAIMING ──Claimed──► OWNING
          ▲                       ▲  ▲                                           │                     │
          │                       │  └────── Elapsed, Changed ──── WAITING ◄──Refused                  │
      SessionLost (anywhere)      └──────────────────────── Changed ◄─────────────────────────────────┘

A change seen while an attempt is under way is remembered, and the group is read again once the attempt has ended. A
partition that stays with the same stream is neither released nor claimed again, which has the same effect as both at
once. Where a former owner still holds one partition, all that this attempt has claimed is given up, so that two members
never wait for each other; after `max_retries` attempts the member owns nothing and waits for the next change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from millrace.client.consumer.assignment import Partition, Thread

Held = Mapping[Partition, Thread]


class Phase(Enum):
    """The phase of a rebalance in which a group member is."""

    UNREGISTERED = "unregistered"
    READING = "reading"
    RELEASING = "releasing"
    CLAIMING = "claiming"
    OWNING = "owning"
    WAITING = "waiting"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Registered:
    """An event: the member's id is registered in the group, by a node of the current session."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An event: members, brokers, topics, or the owner of a partition that is waited for have changed."""


@dataclass(frozen=True, slots=True)
class Planned:
    """An event: the group was read, and this member is to own the partitions `mine`."""

    mine: Held


@dataclass(frozen=True, slots=True)
class Released:
    """An event: all partitions of a `Release` action are released."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An event: this member owns all partitions of a `Claim` action."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An event: another member still owns `partition`; `taken` were claimed before it and stay claimed."""

    partition: Partition
    taken: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Elapsed:
    """An event: the time of a `Wait` action has passed."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """An event: the session has ended, so that the member's nodes in ZooKeeper are gone or soon will be."""


@dataclass(frozen=True, slots=True)
class Close:
    """An event: the consumer is to leave the group."""


Event = Registered | Changed | Planned | Released | Claimed | Refused | Elapsed | SessionLost | Close


@dataclass(frozen=True, slots=True)
class Register:
    """An action: registers the member's id in the group, and watches the group's ids, the brokers and the topics."""


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """An action: reads members, topics and brokers, with watches; a `Planned` event follows."""


@dataclass(frozen=True, slots=True)
class Release:
    """An action: stops handing out, commits and deletes the owner nodes; a `Released` event follows."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """An action: creates the owner nodes of these partitions; a `Claimed` or `Refused` event follows."""

    partitions: Held


@dataclass(frozen=True, slots=True)
class Consume:
    """An action: begins to hand out messages of these partitions, from their committed offsets on."""

    partitions: Held


@dataclass(frozen=True, slots=True)
class Forget:
    """An action: hands out and commits nothing more of these partitions, whose owner nodes are gone."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """An action: an `Elapsed` event follows after `rebalance.backoff.ms`, or `Changed` once the partition is free."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class Fail:
    """An action: gives up this rebalance, since another member still owns `partition`."""

    partition: Partition


Action = Register | ReadGroup | Release | Claim | Consume | Forget | Wait | Fail
NOTHING: Held = {}


@dataclass(frozen=True, slots=True)
class Member:
    """The state of a member in a rebalance.

    `held` are the partitions that it owns, `mine` those that it is to own at the end of this attempt; `stale` says
    that the group has changed and is to be read again.
    """

    max_retries: int
    phase: Phase = Phase.UNREGISTERED
    held: Held = field(default_factory=dict)
    mine: Held = field(default_factory=dict)
    attempt: int = 0
    stale: bool = False


Step = tuple[Member, tuple[Action, ...]]


def step(member: Member, event: Event) -> Step:  # noqa: C901, PLR0911 -- the table's rows
    """Returns the member's next state and the actions to carry out.

    An event that is not expected in the member's phase changes nothing.
    """
    match member.phase, event:
        case Phase.CLOSED, _:
            return member, ()
        case _, Close():
            closed = replace(member, phase=Phase.CLOSED, held=NOTHING, mine=NOTHING)
            return closed, (Release(tuple(sorted(member.held))),)
        case _, SessionLost():
            return _lost(member)
        case Phase.UNREGISTERED, Registered():
            return _read(replace(member, attempt=0))
        case Phase.READING, Planned(mine):
            return _planned(member, mine)
        case Phase.RELEASING, Released():
            return _claim(member)
        case Phase.CLAIMING, Claimed():
            return _claimed(member)
        case Phase.CLAIMING, Refused(partition, taken):
            return _refused(member, partition, taken)
        case Phase.WAITING, Elapsed():
            return _read(member)
        case ((Phase.OWNING | Phase.FAILED), Changed()):
            return _read(replace(member, attempt=0))
        case Phase.WAITING, Changed():  # others have moved on, so that attempt does not count
            return _read(replace(member, attempt=max(member.attempt - 1, 0)))
        case ((Phase.READING | Phase.RELEASING | Phase.CLAIMING), Changed()):
            return replace(member, stale=True), ()
    return member, ()


def _lost(member: Member) -> Step:
    lost = replace(member, phase=Phase.UNREGISTERED, held=NOTHING, mine=NOTHING, attempt=0, stale=False)
    return lost, (Forget(tuple(sorted(member.held))), Register())


def _read(member: Member) -> Step:
    return replace(member, phase=Phase.READING, stale=False), (ReadGroup(),)


def _planned(member: Member, mine: Held) -> Step:
    if member.stale:  # nothing is given up for a plan that is old already
        return _read(member)
    given_up = tuple(sorted(one for one, thread in member.held.items() if mine.get(one) != thread))
    kept = {one: thread for one, thread in member.held.items() if one not in given_up}
    planned = replace(member, phase=Phase.RELEASING, mine=mine, held=kept)
    return (planned, (Release(given_up),)) if given_up else _claim(planned)


def _claim(member: Member) -> Step:
    wanted = {one: thread for one, thread in member.mine.items() if one not in member.held}
    claiming = replace(member, phase=Phase.CLAIMING)
    return (claiming, (Claim(wanted),)) if wanted else _claimed(claiming)


def _claimed(member: Member) -> Step:
    new = {one: thread for one, thread in member.mine.items() if one not in member.held}
    owning = replace(member, phase=Phase.OWNING, held=member.mine, attempt=0)
    consume: tuple[Action, ...] = (Consume(new),) if new else ()
    if not owning.stale:
        return owning, consume
    reading, actions = _read(owning)
    return reading, (*consume, *actions)


def _refused(member: Member, partition: Partition, taken: tuple[Partition, ...]) -> Step:
    attempt = member.attempt + 1
    actions: tuple[Action, ...] = (Release(tuple(sorted(taken))),) if taken else ()
    if member.stale:  # the plan was old
        reading, further = _read(member)
        return reading, (*actions, *further)
    if attempt < member.max_retries:
        return replace(member, phase=Phase.WAITING, attempt=attempt), (*actions, Wait(partition))
    given_up = tuple(sorted({*member.held, *taken}))
    actions = (Release(given_up),) if given_up else ()
    failed = replace(member, phase=Phase.FAILED, held=NOTHING, mine=NOTHING, attempt=attempt)
    return failed, (*actions, Fail(partition))
