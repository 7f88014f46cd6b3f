"""getOffsetsBefore: offsets at which a reader may begin, as Kafka 0.7 and 0.8 return them.

    segment       0 … 41      42 … 99      100 …         log end offset 117
    its time      09:00       10:00        11:00         now

    LATEST (-1)   117, 100, 42, 0          the end, then the segments' first offsets, backwards
    EARLIEST (-2) 0
    10:30         42, 0                    from the newest whose time is not after 10:30

The time of a segment is that of its newest record. Where no record has a time, and where there is no record, it is the
time at which the file was last written, which Apache Kafka takes for every segment. A newest segment that is empty
begins at the log end offset, which then has the time of that file.

A consumer is not told of what lies above the high watermark: that is told instead, once.
"""

from __future__ import annotations

from collections.abc import Sequence

LATEST = -1
EARLIEST = -2

TimedOffset = tuple[int, int]


def offsets_before(starts: Sequence[TimedOffset], timestamp_ms: int, max_count: int, up_to_offset: int) -> list[int]:
    """Returns up to `max_count` offsets, newest first; none where all of the log is younger.

    Args:
        starts: (first offset, time) of each segment, oldest first; then (log end offset, now), unless the newest
            segment is empty.
        timestamp_ms: a time, LATEST or EARLIEST.
        max_count: how many are wanted.
        up_to_offset: the high watermark, for a consumer.
    """
    if max_count < 1:
        return []
    timed = [*starts]
    if timestamp_ms == EARLIEST:
        timed = timed[:1]
    elif timestamp_ms != LATEST:
        while timed and timed[-1][1] > timestamp_ms:
            timed.pop()
    found = [offset for offset, _ in timed[: -max_count - 1 : -1]]
    visible = [offset for offset in found if offset <= up_to_offset]
    return visible if len(visible) == len(found) else [up_to_offset, *visible]
