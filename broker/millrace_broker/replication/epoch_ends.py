"""Finds where leader epochs begin and end in a log, and where a follower cuts its log (KIP-101, KIP-279, KIP-595).

entries      (0, 0)        (2, 50)            (5, 90)       log end offset 120
log          [ epoch 0 … 49 ][ epoch 2 … 89 ][ epoch 5 … 119 ]

end of 5     (5, 120)      the current epoch ends where the log does
end of 3     (2, 90)       is not in the log: the newest epoch before it, which ends where the next one begins
end of 9     unknown       is newer than all epochs
end of -1    unknown

The end of an epoch that is older than all in the log is the epoch itself and where the oldest one begins.

A follower cuts its log so that it goes on from what its leader has too:

    leader      epoch 1 [0 … 9]  epoch 2 [10 … 19]                     epoch 5 [20 …
    follower    epoch 1 [0 … 9]  epoch 2 [10 … 24]  epoch 3 [25 … 29]

    fetch at 30, last epoch 3    the leader answers: epoch 2 ends at 20
    epoch 2 ends at 25 here      both know it: cut at 20, where the first of the two ends
    fetch at 20, last epoch 2    nothing diverges

Each fetch says where the follower's log ends and in which epoch its last batch was written, so a leader finds out after
every change of leaders that the logs differ, also where the same broker leads again (KAFKA-7164). Where the follower
does not know the epoch that the leader names, it cuts at the end of the newest older one, and has to ask again, since
its log may still reach too far. Each step shortens the log or ends the search.

The functions are pure; `entries` are a log's leader epochs with their first offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.records.batch import NO_LEADER_EPOCH

UNKNOWN = (NO_LEADER_EPOCH, -1)

Entries = Sequence[tuple[int, int]]


def end_of_epoch(entries: Entries, epoch: int, log_end_offset: int) -> tuple[int, int]:
    """Returns (epoch, end offset) of the newest epoch in `entries` up to `epoch`; (-1, -1) if there is none."""
    if epoch == NO_LEADER_EPOCH or not entries:
        return UNKNOWN
    if epoch == entries[-1][0]:
        return epoch, log_end_offset
    later = next((start for number, start in entries if number > epoch), None)
    if later is None:
        return UNKNOWN
    earlier = [number for number, _ in entries if number <= epoch]
    return (earlier[-1] if earlier else epoch), later


def epoch_of_offset(entries: Entries, offset: int) -> int:
    """Returns the epoch in which an offset was written; -1 where that is not known."""
    return next((number for number, start in reversed(entries) if start <= offset), NO_LEADER_EPOCH)


def fetch_position(entries: Entries, log_end_offset: int, high_watermark: int) -> tuple[int, int]:
    """Returns (offset, epoch) where a follower begins to fetch from a new leader, or from one in a new epoch.

    The epoch, by which the leader compares logs (-1 compares nothing), is that of the last record: a newer one in which
    nothing was written may be unknown to all other brokers. A log without epochs can't be compared. So it is cut at the
    high watermark, below which all that was acknowledged is the same everywhere, and is fetched from there.
    """
    written = [epoch for epoch, start_offset in entries if start_offset < log_end_offset]
    if not written:
        return min(high_watermark, log_end_offset), NO_LEADER_EPOCH
    return log_end_offset, written[-1]


def cut_for(entries: Entries, log_end_offset: int, high_watermark: int, leaders_end: tuple[int, int]) -> int:
    """Returns where to cut a follower's log, by the leader's (epoch, end offset) of its newest epoch up to ours.

    That is the diverging epoch of a Fetch answer, or the answer to OffsetForLeaderEpoch. (-1, -1) says that the leader
    knows of no such epoch: the high watermark is then the only offset below which both are sure to be the same. An
    epoch of -1 with an offset comes from a leader that can't name epochs (before KIP-279).
    """
    leaders_epoch, leaders_offset = leaders_end
    if leaders_end == UNKNOWN:
        return min(high_watermark, log_end_offset)
    own_epoch, own_offset = end_of_epoch(entries, leaders_epoch, log_end_offset)
    if NO_LEADER_EPOCH in (leaders_epoch, own_epoch):
        return min(leaders_offset, log_end_offset)
    if own_epoch != leaders_epoch:  # the next fetch asks again
        return min(own_offset, log_end_offset)
    return min(own_offset, leaders_offset, log_end_offset)
