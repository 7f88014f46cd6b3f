"""Reads how new segments are before retention deletes them, where only their time index says so.

A start reads no batches, and of some segments it does not surely know the newest record (`time_entries`). Retention
keeps these as if that was written when the file was. That would be long in a folder that was copied back, or where
producers give old timestamps. So what retention would delete by the time index is read before, on a worker.
"""

from __future__ import annotations

from dataclasses import replace

from millrace.errors import RecordError
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.retention import SegmentFacts, deletable, policies_of
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import facts_of
from millrace_broker.storage.segments.time_entries import newest_behind

Newest = tuple[int, int]
"""A segment's largest timestamp, and the last offset of its batch (`learn_newest`)."""


def read_newest(log: Log, now_ms: int) -> list[tuple[LogSegment, Newest]]:
    """Returns segments that retention would delete by their time indexes alone, and how new each is.

    Damage that is met is set aside, and its segment left out. Any thread may call this. Raises StorageError.
    """
    segments = log.segments
    if all(segment.is_newest_known for segment in segments):
        return []
    reasons = deletable(
        [_facts_by_index(segment) for segment in segments], policies_of(log.config),
        log_start_offset=log.log_start_offset, up_to_offset=log.high_watermark, now_ms=now_ms,
    )  # fmt: skip
    doubtful = (one for one in segments[: len(reasons)] if not one.is_newest_known)
    return [(segment, newest) for segment in doubtful if (newest := _newest_in(log, segment)) is not None]


def _facts_by_index(segment: LogSegment) -> SegmentFacts:
    facts = facts_of(segment)
    with storage_errors(segment.path):
        return facts if segment.damage else replace(facts, max_timestamp=segment.largest_timestamp)


def _newest_in(log: Log, segment: LogSegment) -> Newest | None:
    if not segment.retain():
        return None
    try:
        with storage_errors(segment.path):
            return newest_behind(segment)
    except RecordError:
        log.set_damage_aside(segment.base_offset)
        return None
    finally:
        segment.release()
