"""How a member moves from its current assignment to its target (KIP-848).

The first of these rules that applies says what a heartbeat makes of a member:

    it is STABLE at the target's epoch, or still reports     it stays as it is
    what it was told to give back
    it has partitions that the target does not give it       UNREVOKED_PARTITIONS: it stays at its epoch and is told
                                                             what it keeps
    others have some of its target, or must give them back   UNRELEASED_PARTITIONS: it is at the target's epoch and is
                                                             told what is free, more by later heartbeats
    else                                                     STABLE: it is at the target's epoch and told all of it

A member is told a partition only when no other member has it or must give it back. So no partition ever has two
owners, whichever requests and answers are lost or late.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import FencedMemberEpochError
from millrace_broker.cluster.view import TopicIdPartition
from millrace_broker.groups.consumer.member import (
    NOTHING,
    Assignment,
    CurrentAssignment,
    MemberState,
)

IsTaken = Callable[[TopicIdPartition], bool]


def reconcile(
    current: CurrentAssignment, target_epoch: int, target: Assignment, is_taken: IsTaken, owned: Assignment | None
) -> CurrentAssignment:
    """Returns the current assignment that follows for a member; the same one where it can't move on.

    Args:
        current: the current assignment.
        target_epoch: the epoch of the target assignment.
        target: the member's part of the target assignment.
        is_taken: returns whether a member has a partition, or must still give it back.
        owned: what the member reports to own; None where it does not say.

    Raises:
        FencedMemberEpochError: the stored state is one that this version does not know, and the member owns partitions.
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
                "the member's stored state is unknown to this broker: it has to give up all and join again"
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
