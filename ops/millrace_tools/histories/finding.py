"""The anomalies that a history can show, under the names of the field (Adya; Jepsen's Kafka workload)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Anomaly(StrEnum):
    """An anomaly that a history must not show."""

    INCONSISTENT_OFFSET = "inconsistent-offset"  # two values at one offset
    DUPLICATE = "duplicate"  # one value at two offsets
    PHANTOM = "phantom"  # a value that no process sent
    LOST_WRITE = "lost-write"  # acknowledged, not read, though a later offset was read
    UNSEEN = "unseen"  # acknowledged, not read, at the end of its partition
    ABORTED_READ = "aborted-read"  # G1a: read, though its sends certainly failed
    INTERMEDIATE_READ = "intermediate-read"  # G1b: read before its commit, or only in part
    POLL_SKIP = "poll-skip"
    NON_MONOTONIC_POLL = "non-monotonic-poll"
    NON_MONOTONIC_SEND = "non-monotonic-send"
    REAL_TIME_ORDER = "real-time-order"  # sent after another was acknowledged, but before it in the log
    WRITE_CYCLE = "write-cycle"  # G0; Kafka's transactions share a partition while they are open, and have these
    CIRCULAR_INFORMATION_FLOW = "circular-information-flow"  # G1c
    OWNERSHIP_OVERLAP = "ownership-overlap"  # handed out by an owner that had been replaced
    UNOWNED_HAND_OUT = "unowned-hand-out"  # handed out under a token that was not claimed, or was released
    CLAIM_REGRESSION = "claim-regression"  # a later owner has no larger token
    FENCED_COMMIT = "fenced-commit"  # a commit of an owner that had been replaced
    COMMIT_REGRESSION = "commit-regression"  # a committed offset went back
    LOST_COMMIT = "lost-commit"  # a group was told less than it had committed


@dataclass(frozen=True, slots=True)
class FoundAnomaly:
    """One anomaly, its partition, and what shows it."""

    anomaly: Anomaly
    partition: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {f'{self.partition}: ' if self.partition else ''}{self.message}"
