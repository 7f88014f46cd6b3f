"""Finding records of one segment by their timestamps (docs/logs.md).

The header of a batch has the largest timestamp of its records, so batches without a candidate are not decompressed. A
batch may hold millions of records, so this pauses at each (`millrace.turns`). Raises OSError.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.records.batch import NO_TIMESTAMP, BatchHeader
from millrace.records.record_times import TimedOffset, record_times
from millrace.turns import each
from millrace_broker.storage.segments.segment import LogSegment


def find_timestamp(segment: LogSegment, timestamp_ms: int, start_offset: int) -> TimedOffset | None:
    """Finds the first record from `start_offset` on whose timestamp is not below `timestamp_ms`; None without one.

    Where a batch's header promises one that none of its records has, the batch's last record is returned: otherwise
    every batch with such a header would be decompressed.
    """
    older = segment.time_index.floor(timestamp_ms - 1)
    floor = segment.offset_index.floor(older[1]) if older is not None else None
    for position, header in each(segment.headers(floor[1] if floor is not None else 0)):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            last = None
            for last in _records(segment, position, header):
                if last.timestamp_ms >= timestamp_ms and last.offset >= start_offset:
                    return last
            if last is not None and header.base_offset >= start_offset:
                return last._replace(timestamp_ms=header.max_timestamp)
    return None


def max_timestamp_from(segment: LogSegment, start_offset: int) -> int:
    """Returns the largest timestamp of records at `start_offset` or above; -1 where there is none."""
    if start_offset <= segment.base_offset:
        return segment.max_timestamp
    headers = each(segment.headers(segment.position_of(start_offset)))
    return max((_newest(segment, position, header, start_offset) for position, header in headers), default=NO_TIMESTAMP)


def _newest(segment: LogSegment, position: int, header: BatchHeader, start_offset: int) -> int:
    if start_offset <= header.base_offset:
        return header.max_timestamp
    records = _records(segment, position, header)
    return max((record.timestamp_ms for record in records if record.offset >= start_offset), default=NO_TIMESTAMP)


def _records(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[TimedOffset]:
    return iter(each(record_times(header, memoryview(segment.read_at(position, header.size_bytes)))))
