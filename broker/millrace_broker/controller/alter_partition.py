"""Decides the answer to a leader that asks for another ISR (AlterPartition, KIP-497), as a pure function.

| the leader asks | answer |
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

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace.leader_states import RECOVERED, RECOVERING
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.cluster_state import (
    Assignment,
    ClusterState,
    LeaderAndIsr,
)
from millrace_broker.storage import TopicPartition

AskedPartition = TopicIdPartition | TopicPartition
"""A partition as a leader names it: by its topic's id, or by its name before version 2."""


class IsrProposal(NamedTuple):
    """What the leader of a partition asks for; the ISR has the epoch of each broker, -1 where the leader has none."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    leader_recovery_state: int


def judge(cluster: ClusterState, key: TopicPartition, proposal: IsrProposal) -> LeaderAndIsr | ErrorCode:
    """Returns the state to write, the known state where it is already as proposed, or the error."""
    state, assignment = cluster.leaders.get(key), cluster.assignment(key)
    if state is None or assignment is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = _fence(state, proposal)
    if error is None and _is_there(state, proposal):
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
    """Returns the error where one of the two sides is out of date."""
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch or proposal.leader != state.leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    return None


def _is_there(state: LeaderAndIsr, proposal: IsrProposal) -> bool:
    """Returns whether the state is as proposed: an earlier request, whose answer was lost, may have made it so."""
    return set(proposal.isr) == set(state.isr) and proposal.leader_recovery_state == state.leader_recovery_state


def _is_valid(assignment: Assignment, state: LeaderAndIsr, proposal: IsrProposal) -> bool:
    if proposal.leader not in proposal.isr or not proposal.isr.keys() <= set(assignment.replicas):
        return False
    is_alone = len(proposal.isr) == 1 and state.leader_recovery_state == RECOVERING
    return is_alone or proposal.leader_recovery_state == RECOVERED


def _is_eligible(cluster: ClusterState, broker: int, epoch: int) -> bool:
    return broker in cluster.live() and epoch in (NO_BROKER_EPOCH, cluster.brokers[broker].epoch)
