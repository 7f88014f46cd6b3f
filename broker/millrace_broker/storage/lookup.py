"""Where in a log's segments something is: batches by offset, records by time (spec B4, B5).

Functions of one snapshot of the segment list, so what appends, retention and compaction do meanwhile is not seen.
OSError passes.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.records.batch import NO_TIMESTAMP
from millrace_broker.storage.segment import Located, LogSegment
from millrace_broker.storage.segment_sequence import SegmentSequence
from millrace_broker.storage.transaction_index import AbortedTransaction, find_aborted


class Found(NamedTuple):
    """Batches, and the segment that they are in."""

    segment: LogSegment
    located: Located


def find_batches(
    segments: SegmentSequence, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
) -> Found | None:
    """Whole batches from the one that holds `offset`, below `end_offset`, from the first segment that has any."""
    for index in range(segments.floor_index(offset), len(segments)):
        segment = segments[index]
        if segment.base_offset >= end_offset:
            break
        located = segment.locate(offset, max_bytes, end_offset, at_least_one=at_least_one)
        if located is not None:
            return Found(segment, located) if located.size_bytes else None
    return None


def offset_for_timestamp(segments: SegmentSequence, timestamp_ms: int, log_start_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from the log start on that is not older."""
    for segment in segments:
        if segment.max_timestamp >= timestamp_ms:
            record = segment.find_timestamp(timestamp_ms, log_start_offset)
            if record is not None:
                return min(record.timestamp_ms, MAX_LONG), record.offset  # a producer may have given one beyond 64 bits
    return None


def offset_of_max_timestamp(segments: SegmentSequence, log_start_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp.

    A segment that compaction left without records still bears a time, so the next largest is tried where none is found.
    """
    newest = {segment.max_timestamp_from(log_start_offset) for segment in segments} - {NO_TIMESTAMP}
    for timestamp_ms in sorted(newest, reverse=True):
        found = offset_for_timestamp(segments, timestamp_ms, log_start_offset)
        if found is not None:
            return found
    return None


def segment_starts(segments: SegmentSequence, log_start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """(first offset, newest timestamp) of each segment that holds something below `end_offset`."""
    return [
        (max(segment.base_offset, log_start_offset), segment.max_timestamp)
        for segment in segments
        if segment.size_bytes and segment.base_offset < end_offset
    ]


def aborted_transactions(segments: SegmentSequence, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that reach into the offsets from start up to end."""
    indexes = (each.transaction_index for each in segments[segments.floor_index(start_offset) :])
    return find_aborted(indexes, start_offset, end_offset)
