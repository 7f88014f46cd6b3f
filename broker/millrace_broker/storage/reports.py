"""What maintenance did or found, as plain values that `dataclasses.asdict` prepares for JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecovery:
    """How one log was opened; `was_clean` if the last shutdown synced all of its data folder.

    `recovered_segments` were walked batch by batch; `truncated_bytes` is all that was cut, the
    `dropped_segments` behind the cut included.
    """

    topic: str
    partition: int
    was_clean: bool
    segments: int
    recovered_segments: int
    truncated_bytes: int
    dropped_segments: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """How all logs were opened; `clean_dirs` are the data folders with a clean-shutdown marker.

    `offline_dirs` could not be opened: their partitions are not served.
    """

    logs: tuple[LogRecovery, ...]
    clean_dirs: tuple[str, ...]
    offline_dirs: tuple[str, ...]
    removed_dirs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """What retention deleted from one log; `reasons` holds one for each segment, the oldest first."""

    topic: str
    partition: int
    segments: int
    deleted_segments: int
    deleted_bytes: int
    reasons: tuple[str, ...]
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What compaction made of one log's closed segments.

    Records kept are those of the last pass, records dropped those of all passes, those without a key among them.
    `error` says why it went no further; "" where all is well.
    """

    topic: str
    partition: int
    passes: int
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_kept: int
    records_dropped: int
    keyless_dropped: int
    first_dirty_offset: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong in a file: the batch or index entry that begins at byte `position`."""

    file: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a check of all segments of one log found; no findings means that all is well."""

    topic: str
    partition: int
    segments: int
    batches: int
    records: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    findings: tuple[Finding, ...]
