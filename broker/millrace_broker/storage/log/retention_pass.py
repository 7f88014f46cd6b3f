"""One pass of retention over a log: the oldest segments that its settings let go are deleted, or only named.

What may go is decided by `delete_policies`; here it is taken out of the log, and its files go on another thread
(`LogSegments.rename_dropped`). Belongs to the log's own thread.
"""

from __future__ import annotations

from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.delete_policies import deletable_of
from millrace_broker.storage.log.log_segments import LogSegments
from millrace_broker.storage.log.segment_writer import SegmentWriter
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.reports import RetentionReport, SegmentReport
from millrace_broker.storage.segments.segment_sequence import facts_of


def apply_retention(
    segments: LogSegments,
    writer: SegmentWriter,
    producers: ProducerStateManager,
    config: LogConfig,
    *,
    up_to_offset: int,
    now_ms: int,
    dry_run: bool,
) -> RetentionReport:
    """Deletes the segments that `config` lets go, below `up_to_offset` only; a dry run names them. Raises StorageError.

    The caller holds `names_lock`. A log that is closed keeps what it has.
    """
    before = [] if segments.is_closed else [facts_of(segment) for segment in segments.now]
    reasons = deletable_of(
        config, before, log_start_offset=segments.start_offset, up_to_offset=up_to_offset, now_ms=now_ms
    )
    deleted = tuple(
        SegmentReport(base_offset=each.base_offset, size_bytes=each.size_bytes, reason=reason)
        for each, reason in zip(before, reasons, strict=False)
    )
    if not dry_run:
        _delete_oldest(len(deleted), segments, writer, producers, config.file_delete_delay_ms)
    return RetentionReport(
        topic=segments.topic_partition.topic,
        partition=segments.topic_partition.partition,
        segments=len(segments.now),
        deleted_segments=len(deleted),
        deleted_bytes=sum(each.size_bytes for each in deleted),
        reasons=tuple(reasons),
        by_segment=deleted,
        log_start_offset=segments.start_offset,
        log_end_offset=segments.end_offset,
    )


def _delete_oldest(
    count: int, segments: LogSegments, writer: SegmentWriter, producers: ProducerStateManager, delay_ms: int
) -> None:
    for _ in range(count):
        if len(segments.now) == 1:  # last, as a full disk may have no room for another
            writer.roll()
        segments.drop_first(producers.snapshot_path(segments.now[0].base_offset), delay_ms)
