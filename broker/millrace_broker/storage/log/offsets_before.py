"""getOffsetsBefore: offsets at which a reader may begin, as Kafka 0.7 and 0.8 return them.

    segment       0 … 41      42 … 99      100 …         log end offset 117
    its time      09:00       10:00        11:00         now

    LATEST (-1)   117, 100, 42, 0          the end, then the segments' first offsets, backwards
    EARLIEST (-2) 0
    10:30         42, 0                    from the newest whose time is not after 10:30

The time of a segment is that of its newest record. A broker of Kafka 0.8 takes the time at which the file was last
written, which a copied file has lost.
"""

from __future__ import annotations

from collections.abc import Sequence

LATEST = -1
EARLIEST = -2

TimedOffset = tuple[int, int]


def offsets_before(starts: Sequence[TimedOffset], end: TimedOffset, timestamp_ms: int, max_count: int) -> list[int]:
    """Returns up to `max_count` offsets, newest first; none where all of the log is younger.

    Args:
        starts: (first offset, time of the newest record) of each segment that is not empty, oldest first.
        end: (log end offset, now).
        timestamp_ms: a time, LATEST or EARLIEST.
        max_count: how many are wanted.
    """
    if max_count < 1:
        return []
    timed = [*starts, end]
    if timestamp_ms == EARLIEST:
        return [timed[0][0]]
    if timestamp_ms != LATEST:
        while timed and timed[-1][1] > timestamp_ms:
            timed.pop()
    return [offset for offset, _ in timed[: -max_count - 1 : -1]]
