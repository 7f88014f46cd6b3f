"""Which segments may go: pure choices over what is known of each segment (docs/logs.md).

Only whole segments go, the oldest first, up to the first one that must stay. A policy returns the reason for which one
segment may go, or None; the reason of one policy is enough. `delete_policies` finds those that a log names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from millrace_broker.storage.config import UNLIMITED, LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What a policy may know of a segment. `next_offset` is the offset after the segment's last.

    `max_timestamp` is the largest timestamp of its records. Where no record has one, as with clients of Kafka 0.8 and
    0.9, it is the time at which the file was last written, which compaction and a move to another folder keep.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a policy may know of the log. `size_bytes` counts this segment and all newer ones."""

    size_bytes: int
    log_start_offset: int
    now_ms: int


class RetentionPolicy(Protocol):
    """One rule. Each pass over a log makes it from the log's settings."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns why the segment may go; None if this rule lets it stay."""
        ...


@dataclass(frozen=True, slots=True)
class ByLogStartOffset:
    """Lets a segment go if all of its records are below the log start offset."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `below the log start offset`, or None."""
        return "below the log start offset" if segment.next_offset <= log.log_start_offset else None


class ByTime:
    """Lets a segment go if its `max_timestamp` is more than `retention_ms` ago."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_ms = config.retention_ms

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `older than retention.ms`, or None."""
        known = self.retention_ms != UNLIMITED and segment.max_timestamp >= 0
        return "older than retention.ms" if known and log.now_ms - segment.max_timestamp > self.retention_ms else None


class BySize:
    """Lets a segment go if the log still has `retention_bytes` or more without it."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_bytes = config.retention_bytes

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `above retention.bytes`, or None."""
        limited = self.retention_bytes != UNLIMITED
        return (
            "above retention.bytes" if limited and log.size_bytes - segment.size_bytes >= self.retention_bytes else None
        )


def deletable(
    segments: Sequence[SegmentFacts],
    policies: Sequence[RetentionPolicy],
    *,
    log_start_offset: int,
    up_to_offset: int,
    now_ms: int,
) -> list[str]:
    """Returns the reasons for which the oldest segments may go, one each, up to the first one that must stay.

    Nothing at or above `up_to_offset`, the high watermark, is touched, nor an empty segment.
    """
    reasons: list[str] = []
    size_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        log = LogFacts(size_bytes=size_bytes, log_start_offset=log_start_offset, now_ms=now_ms)
        found = next(filter(None, (policy.reason(segment, log) for policy in policies)), None)
        if found is None or segment.next_offset > up_to_offset or not segment.size_bytes:
            break
        reasons.append(found)
        size_bytes -= segment.size_bytes
    return reasons
