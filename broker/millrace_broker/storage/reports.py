"""What maintenance did or found, as plain values that `dataclasses.asdict` prepares for JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecovery:
    """A report on how one log was opened; `was_clean` if the last shutdown synced everything in its data folder.

    `recovered_segments` counts those read batch by batch, `truncated_bytes` all bytes cut off, with those of the
    `dropped_segments` behind the cut.
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
    """A report on how all logs were opened; `clean_dirs` are the data folders with a clean-shutdown marker.

    `offline_dirs` could not be opened: their partitions are not served.
    """

    logs: tuple[LogRecovery, ...]
    clean_dirs: tuple[str, ...]
    offline_dirs: tuple[str, ...]
    removed_dirs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """One segment that maintenance deletes or rewrites: its size before that, and the reason."""

    base_offset: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """The segments that retention has deleted from one log, oldest first; in a dry run, those that it would delete.

    `segments` is how many the log has now.
    """

    topic: str
    partition: int
    segments: int
    deleted_segments: int
    deleted_bytes: int
    reasons: tuple[str, ...]
    by_segment: tuple[SegmentReport, ...]
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """The result of compacting one log's closed segments.

    `records_kept` counts the last pass; `records_dropped` and `keyless_dropped`, a part of it, count all passes.
    `by_segment` has the segments that were rewritten. `error` says why it went no further; "" where all is well.

    A dry run makes no pass: the counts after it equal those before, and `by_segment` has what would be rewritten.
    """

    topic: str
    partition: int
    passes: int
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    dirty_bytes: int
    records_kept: int
    records_dropped: int
    keyless_dropped: int
    first_dirty_offset: int
    by_segment: tuple[SegmentReport, ...]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """Something wrong in a file: the batch or index entry that begins at byte `position`."""

    file: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSegment:
    """The result of a check of one segment: how much was read, and the number of findings."""

    base_offset: int
    size_bytes: int
    batches: int
    records: int
    findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of a check of all segments of one log; no findings means that all is well.

    A dry run reads nothing: it has the sizes of what there is to read, and 0 batches and records.
    """

    topic: str
    partition: int
    segments: int
    batches: int
    records: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    findings: tuple[LogFinding, ...]
    by_segment: tuple[VerifiedSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubProgress:
    """The scrubber's work in one data directory: the current round, the last complete one, and all since the start.

    Times are milliseconds since 1970. `round_started_ms` is None between two rounds, and then all is checked; the
    fields of the last round are None before there was one. Findings are damage that nobody had met before.
    """

    directory: str
    bytes_per_second: int
    interval_ms: int
    round_started_ms: int | None
    round_findings: int
    checked_bytes: int
    total_bytes: int
    last_started_ms: int | None
    last_ended_ms: int | None
    last_findings: int | None
    all_bytes: int
    all_segments: int
    all_rounds: int
    all_findings: int
    all_failures: int
