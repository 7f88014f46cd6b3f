"""Finds where a leader epoch begins and ends in a log (KIP-101, KIP-320), as pure functions of its epochs.

entries      (0, 0)        (2, 50)            (5, 90)       log end offset 120
log          [ epoch 0 … 49 ][ epoch 2 … 89 ][ epoch 5 … 119 ]

end of 5     (5, 120)      the current epoch ends where the log does
end of 3     (2, 90)       is not in the log: the newest epoch before it, which ends where the next one begins
end of 9     unknown       is newer than all epochs
end of -1    unknown

The end of an epoch that is older than all in the log is the epoch itself and where the oldest one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.records.batch import NO_LEADER_EPOCH

UNKNOWN = (NO_LEADER_EPOCH, -1)

Entries = Sequence[tuple[int, int]]


def end_of_epoch(entries: Entries, epoch: int, log_end_offset: int) -> tuple[int, int]:
    """Returns (epoch, end offset) of the newest epoch up to `epoch`; (-1, -1) where it is not known."""
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
