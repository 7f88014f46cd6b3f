"""Which segments may go: pure choices over what is known of each segment (spec B6).

Whole segments only, the oldest first, and only as long as each next one may go too. A policy says of one segment
why it may go, or None; any policy's word is enough. `storage.delete_policies` finds those that a log names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from millrace_broker.storage.config import UNLIMITED, LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What a policy may look at. `next_offset` is the offset after the segment's last.

    `max_timestamp` is the largest timestamp of its records. Where no record has one, as with clients of Kafka 0.8 and
    0.9, it is the time at which the file was last written, which compaction and a move to another folder keep.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The log around it. `size_bytes` counts this segment and all newer ones."""

    size_bytes: int
    log_start_offset: int
    now_ms: int


class RetentionPolicy(Protocol):
    """One rule. Each pass over a log makes it from the log's settings."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Why the segment may go; None if it stays as far as this rule goes."""
        ...


@dataclass(frozen=True, slots=True)
class ByLogStartOffset:
    """All of its records lie below the log start offset."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """`below the log start offset`, or None."""
        return "below the log start offset" if segment.next_offset <= log.log_start_offset else None


class ByTime:
    """Its `max_timestamp` is more than `retention_ms` ago."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_ms = config.retention_ms

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """`older than retention.ms`, or None."""
        known = self.retention_ms != UNLIMITED and segment.max_timestamp >= 0
        return "older than retention.ms" if known and log.now_ms - segment.max_timestamp > self.retention_ms else None


class BySize:
    """Without it the log still holds `retention_bytes` or more."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_bytes = config.retention_bytes

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """`above retention.bytes`, or None."""
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
    """The reasons for which the oldest segments may go, one each; the first segment that must stay ends the list.

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
