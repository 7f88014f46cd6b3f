"""Elects leaders and changes the in-sync replicas, as pure functions of what is known of a partition.

| election | leader | in-sync replicas |
|---|---|---|
| of a new partition | the first replica that is online | all that are online |
| after a failure | the leader if it is there, else the first replica online and in sync | those online |
| the same, none in sync is online | the first that is online and eligible (`eligibility`) | the leader alone |
| the same, nobody is in sync or eligible | the first online: a doubtful one, any if all are empty | the leader alone |
| the same, unclean | the first online that is doubtful, else the first that is not empty | the leader alone |
| after a restart | as after a failure of those that have restarted; the same leader if all have | the others, or all |
| after a loss of power or of a disk | as if those had never been in sync; they may be doubtful, or empty | the others |
| by the operator, unclean | where nobody could lead otherwise, the one online with the longest log | the leader alone |
| preferred | the first replica, if it is online and in sync | as before |
| controlled shutdown | the first replica in sync on a broker that stays | those on brokers that stay |
| reassignment | the leader if it stays, else the first of the target that is in sync | those of the target |

Replicas come in the order of the assignment, and those with damaged logs last (`sound_first`). Each election raises the
leader epoch by one, since brokers take no LeaderAndIsr without a higher one. A function returns None where nothing is
to change, or nothing can.

If all in-sync replicas fail, they stay in the ISR and the partition is without a leader: each of them has every record
that was acknowledged, and the first that comes back leads. (Apache Kafka keeps only the one that fails last.) The ISR
is empty where all of them have lost records; then nobody leads but one that is eligible or doubtful.

First replicas are to lead again where too many do not (auto.leader.rebalance.enable). The first replicas of partitions
are spread evenly over the brokers, and so are the leaders while first replicas lead. After a failure other replicas
lead. A broker is out of balance if others lead more than a percentage of the partitions that it is the first replica
of. Partitions that are being reassigned or deleted count, but are left as they are.

| a leader asks for another ISR (AlterPartition, KIP-497) | answer |
|---|---|
| for a partition of a topic id that is not known | UNKNOWN_TOPIC_ID |
| for a partition that is not known, or has no state | UNKNOWN_TOPIC_OR_PARTITION |
| in a leader or partition epoch above the known one | NOT_CONTROLLER: this may be a former controller |
| in a lower leader epoch, or without being the leader | FENCED_LEADER_EPOCH |
| for what it has already | success, the state as it is |
| in a lower partition epoch | INVALID_UPDATE_VERSION |
| to recover from an unclean election together with others, or once it has recovered | INVALID_REQUEST |
| for a replica on a broker that is not live, or that has started again since | INELIGIBLE_REPLICA (KIP-841) |
| for no replica, without itself, or for a broker that is no replica | INVALID_REQUEST |
| for anything else | the state is written; success if nothing else has written it meanwhile |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace.leader_states import NO_LEADER, RECOVERED, RECOVERING
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr
from millrace_broker.controller.eligibility import NOTHING_LOST, LostReplicas, awaited, without_lost
from millrace_broker.storage import TopicPartition

Online = AbstractSet[int]
LogEnd = tuple[int, int]
"""The leader epoch of the last record in a replica's log, and the log end offset; the larger pair has more."""
UNKNOWN_END: LogEnd = (-1, -1)
LogEnds = Mapping[TopicPartition, Mapping[int, LogEnd]]


def elect_first(assignment: Assignment, online: Online) -> LeaderAndIsr | None:
    """Returns the first leader and ISR of a new partition; None while no replica is online."""
    isr = tuple(one for one in assignment.replicas if one in online)
    return LeaderAndIsr(isr[0], 0, isr) if isr else None


def elect_after_failure(
    assignment: Assignment, state: LeaderAndIsr, reachable: Online, online: Online, *, is_unclean_allowed: bool
) -> LeaderAndIsr | None:
    """Returns the state after replicas have failed or come back, None if unchanged; without a leader if none can lead.

    `reachable` has, beyond `online`, replicas on brokers that are shutting down: they go on leading, but are not
    elected.
    """
    if state.leader in reachable and state.leader in state.isr:
        return _changed(state, state.leader, tuple(one for one in state.isr if one in reachable))
    isr = tuple(one for one in state.isr if one in online)
    leader = _first(assignment.replicas, set(isr))
    if leader is not None:
        return _next(state, leader, isr)
    leader = _first(assignment.replicas, online & _next_best(assignment, state))
    if leader is not None:
        return _next(state, leader, (leader,))
    if is_unclean_allowed:
        known = state.eligibility
        for candidates in (online & set(known.doubtful), online - set(known.empty)):
            leader = _first(assignment.replicas, candidates)
            if leader is not None:
                return elect_unclean(state, leader)
    return _changed(state, NO_LEADER, state.isr)


def _next_best(assignment: Assignment, state: LeaderAndIsr) -> Online:
    """Returns the replicas of which one leads, without anybody's leave, where no in-sync one is online."""
    known = state.eligibility
    if awaited(state):
        return frozenset(known.eligible)
    all_are_empty = set(assignment.replicas) <= set(known.empty)
    return frozenset(assignment.replicas if all_are_empty else known.doubtful)


def elect_longest(
    assignment: Assignment, state: LeaderAndIsr, online: Online, log_ends: Mapping[int, LogEnd]
) -> LeaderAndIsr | None:
    """Returns the state with the replica in the lead whose log is the longest: in the newest leader epoch, then by end.

    Those whose log is not known come last, and among them the empty ones. If a replica can lead without loss, it does.
    """
    after = elect_after_failure(assignment, state, online, online, is_unclean_allowed=False)
    if after is not None and after.leader != NO_LEADER:
        return after
    ranked = [one for one in assignment.replicas if one in online]
    empty = state.eligibility.empty
    leader = max(ranked, key=lambda one: (log_ends.get(one, UNKNOWN_END), one not in empty), default=None)
    return after if leader is None else elect_unclean(state, leader)


def elect_unclean(state: LeaderAndIsr, leader: int) -> LeaderAndIsr:
    """Returns the state with a leader that may lack committed records, and that has to recover from that (KIP-704)."""
    return replace(_next(state, leader, (leader,)), leader_recovery_state=RECOVERING)


def elect_after_restart(
    assignment: Assignment,
    state: LeaderAndIsr,
    reachable: Online,
    online: Online,
    *,
    restarted: Online,
    lost: LostReplicas = NOTHING_LOST,
) -> LeaderAndIsr | None:
    """Returns the leader and ISR after brokers have restarted, unseen by a controller or with a loss.

    `restarted` replicas may have lost what was not synced. So another replica leads, or else the same leader leads in
    the next epoch, by which followers and consumers learn of records that are gone (KIP-101, KIP-320). Of those that
    are `lost`, none leads for having been in sync, even where the partition then has no leader until another one that
    has every committed record is back.
    """
    left = without_lost(state, lost)
    away = restarted if (reachable - restarted) & set(left.isr) else frozenset[int]()
    after = elect_after_failure(assignment, left, reachable - away, online - away, is_unclean_allowed=False)
    return after or (raise_epoch(left) if left != state or state.leader in restarted else None)


def elect_preferred(assignment: Assignment, state: LeaderAndIsr, online: Online) -> LeaderAndIsr | None:
    """Returns the leader and ISR with the preferred leader leading; None where it leads already, or can't."""
    preferred = assignment.replicas[0]
    if preferred == state.leader or preferred not in online or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr)


def elect_at_shutdown(assignment: Assignment, state: LeaderAndIsr, online: Online, broker: int) -> LeaderAndIsr | None:
    """Returns the leader and ISR without `broker`; None if unchanged, or if no other replica can lead.

    `online` are the replicas whose brokers are not shutting down.
    """
    isr = tuple(one for one in state.isr if one != broker)
    if state.leader != broker:
        return _next(state, state.leader, isr) if broker in state.isr and isr else None
    leader = _first(assignment.replicas, set(isr) & online)
    return None if leader is None else _next(state, leader, tuple(one for one in isr if one in online))


def elect_in_target(assignment: Assignment, state: LeaderAndIsr, online: Online) -> LeaderAndIsr | None:
    """Returns the leader and ISR at the end of a reassignment; None where no replica of its target can lead."""
    isr = tuple(one for one in state.isr if one in assignment.target)
    candidates = set(isr) & online
    leader = state.leader if state.leader in candidates else _first(assignment.target, candidates)
    return None if leader is None else _next(state, leader, isr)


def sound_first(assignment: Assignment, damaged: Online) -> Assignment:
    """Returns the assignment with its replicas in the order of elections: those with damaged logs come last."""
    if damaged.isdisjoint(assignment.replicas):
        return assignment
    return replace(assignment, replicas=tuple(sorted(assignment.replicas, key=lambda one: one in damaged)))


def raise_epoch(state: LeaderAndIsr) -> LeaderAndIsr:
    """Returns the same leader and ISR in the next leader epoch, so that brokers take another assignment."""
    return _next(state, state.leader, state.isr)


def _first(replicas: Iterable[int], candidates: Online) -> int | None:
    return next((one for one in replicas if one in candidates), None)


def _changed(state: LeaderAndIsr, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr | None:
    return None if (leader, isr) == (state.leader, state.isr) else _next(state, leader, isr)


def _next(state: LeaderAndIsr, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def find_imbalance(cluster: ClusterState, most_percent: int) -> set[TopicPartition]:
    """Returns the partitions whose preferred leader can lead again, of brokers out of balance.

    A broker is, if more than `most_percent` of the partitions that it should lead are led by others.
    """
    preferred: dict[int, set[TopicPartition]] = defaultdict(set)
    led_by_others: dict[int, dict[TopicPartition, Assignment]] = defaultdict(dict)
    for key, assignment in cluster.kept_partitions():
        state = cluster.leaders.get(key)
        if state is not None:
            first = assignment.replicas[0]
            preferred[first].add(key)
            if state.leader != first:
                led_by_others[first][key] = assignment
    return {
        key
        for first, keys in led_by_others.items()
        if 100 * len(keys) > most_percent * len(preferred[first])
        for key, assignment in keys.items()
        if elect_preferred(assignment, cluster.leaders[key], cluster.sound(key)) and not assignment.is_reassigned
    }


AskedPartition = TopicIdPartition | TopicPartition
"""A partition as a leader names it: by its topic's id, or by its name before version 2."""


class IsrProposal(NamedTuple):
    """A leader's proposal of other in-sync replicas; `isr` has their broker epochs, -1 where the leader has none."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    leader_recovery_state: int


def judge(cluster: ClusterState, key: TopicPartition, proposal: IsrProposal) -> LeaderAndIsr | ErrorCode:
    """Returns the leader and ISR to write for a leader's proposal, the present ones if they are so, or an error."""
    state, assignment = cluster.leaders.get(key), cluster.assignment(key)
    if state is None or assignment is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = _fence(state, proposal)
    is_there = set(proposal.isr) == set(state.isr) and proposal.leader_recovery_state == state.leader_recovery_state
    if error is None and is_there:  # an earlier request, whose answer was lost, may have made it so
        return state
    if error is None and proposal.partition_epoch < state.partition_epoch:
        error = ErrorCode.INVALID_UPDATE_VERSION
    if error is None and not _is_valid(assignment, state, proposal):
        error = ErrorCode.INVALID_REQUEST
    if error is None and not all(_is_eligible(cluster, broker, epoch) for broker, epoch in proposal.isr.items()):
        error = ErrorCode.INELIGIBLE_REPLICA
    if error is not None:
        return error
    return replace(state, isr=tuple(proposal.isr), leader_recovery_state=proposal.leader_recovery_state)


def _fence(state: LeaderAndIsr, proposal: IsrProposal) -> ErrorCode | None:
    """Returns the error code if the leader, or this controller, has an older epoch than the other; else None."""
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch or proposal.leader != state.leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    return None


def _is_valid(assignment: Assignment, state: LeaderAndIsr, proposal: IsrProposal) -> bool:
    if proposal.leader not in proposal.isr or not proposal.isr.keys() <= set(assignment.replicas):
        return False
    is_alone = len(proposal.isr) == 1 and state.leader_recovery_state == RECOVERING
    return is_alone or proposal.leader_recovery_state == RECOVERED


def _is_eligible(cluster: ClusterState, broker: int, epoch: int) -> bool:
    return broker in cluster.live() and epoch in (NO_BROKER_EPOCH, cluster.brokers[broker].epoch)
