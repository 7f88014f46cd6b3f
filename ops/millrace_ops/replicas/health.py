"""Finds out whether a partition has a leader and enough replicas in sync, and names that as kafka-topics does."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import PartitionMetadata
    from millrace.client.reassignments import Reassignment

MIN_ISR_PROPERTY = "min.insync.replicas"


class PartitionState(StrEnum):
    """What may be told of a partition; a partition of which nothing is told is well."""

    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    REASSIGNING = "reassigning"


SHOWN = tuple(one for one in PartitionState if one is not PartitionState.AT_MIN_ISR)
"""The states that are shown. AT_MIN_ISR is not, as it also holds for a partition whose only replica is in sync."""


def partition_states(
    partition: PartitionMetadata, min_isr: int, reassignment: Reassignment | None = None
) -> list[PartitionState]:
    """Returns the states of a partition, the worst first.

    `min_isr` counts as the number of replicas if it is larger, as for leaders since Apache Kafka 3.7. Replicas that a
    reassignment adds do not count as missing.
    """
    wanted = len(reassignment.origin if reassignment and reassignment.adding else partition.replicas)
    in_sync, enough = len(partition.isr), min(min_isr, wanted)
    is_led = has_leader(partition)
    holds = {
        PartitionState.UNAVAILABLE: not is_led,
        PartitionState.UNDER_MIN_ISR: not is_led or in_sync < enough,
        PartitionState.UNDER_REPLICATED: in_sync < wanted,
        PartitionState.AT_MIN_ISR: is_led and in_sync == enough,
        PartitionState.REASSIGNING: reassignment is not None,
    }
    return [state for state, is_so in holds.items() if is_so]


def has_leader(partition: PartitionMetadata) -> bool:
    """Returns whether the partition has a leader."""
    return partition.leader >= 0
