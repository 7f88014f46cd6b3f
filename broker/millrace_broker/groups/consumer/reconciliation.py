"""How a member comes from what it has to what it shall have (KIP-848, "Reconciliation of the group").

    STABLE ──────────────── target epoch moves on ───────────────┐
      ▲                                                          ▼
      │                              something to give back?  ── yes ──► UNREVOKED_PARTITIONS, epoch as it was;
      │                                        │ no                      what it keeps is told, the rest waits
      │                                        ▼                         until the member no longer reports it
      │                              all of the target free?  ── no ───► UNRELEASED_PARTITIONS, target's epoch;
      │                                        │ yes                     told what is free, more as it comes free
      └──────────── target's epoch ────────────┘

A partition is told to a member only when no member has it, nor has still to give it back: so none is ever with
two members, whatever is lost or late in between.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import FencedMemberEpochError
from millrace_broker.groups.consumer.member import (
    NOTHING,
    Assignment,
    CurrentAssignment,
    MemberState,
    TopicIdPartition,
)

IsTaken = Callable[[TopicIdPartition], bool]


def reconcile(
    current: CurrentAssignment, target_epoch: int, target: Assignment, is_taken: IsTaken, owned: Assignment | None
) -> CurrentAssignment:
    """A member's next state, or the one it is in where it can't move on.

    Args:
        current: as it is.
        target_epoch: the target assignment's epoch.
        target: the member's own part of it.
        is_taken: whether a partition is with any member, given back or not.
        owned: what the member reports to have; None where it did not say.

    Raises:
        FencedMemberEpochError: the stored state is one that this version does not know.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == target_epoch:
            return current
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, current.pending_revocation):
            return current
        case MemberState.UNREVOKED_PARTITIONS:
            epoch = current.epoch + 1
        case MemberState.UNKNOWN if owned != NOTHING:
            raise FencedMemberEpochError(
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin."
            )
        case MemberState.UNKNOWN:
            epoch = target_epoch
        case _:
            epoch = current.epoch
    to_revoke = current.assigned - target
    if to_revoke and _still_owns(owned, to_revoke):
        kept = current.assigned & target
        return CurrentAssignment(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    return _assigned(current, target_epoch, target, is_taken)


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    return owned is None or bool(owned & revoked)


def _assigned(
    current: CurrentAssignment, target_epoch: int, target: Assignment, is_taken: IsTaken
) -> CurrentAssignment:
    kept = current.assigned & target
    free = frozenset(one for one in target - kept if one in current.pending_revocation or not is_taken(one))
    assigned = kept | free
    state = MemberState.STABLE if assigned == target else MemberState.UNRELEASED_PARTITIONS
    return CurrentAssignment(target_epoch, current.epoch, state, assigned, NOTHING)
