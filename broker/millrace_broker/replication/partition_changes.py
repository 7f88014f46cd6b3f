"""Tells sessions of followers which led partitions have changed, so that they need not look at thousands of others.

    changes     … 40: weather-3    41: weather-7    42: weather-3    end 43
    a session that has read up to 41 finds weather-7 and weather-3 behind it

Only the newest changes are kept. A session that has not read for so long looks at all its partitions.
"""

from __future__ import annotations

from collections import deque

from millrace.wire.fetch_request import PartitionKey

KEPT = 10_000


class PartitionChanges:
    """The newest changes in their order; `end` counts all that there were."""

    __slots__ = ("_newest", "end")

    def __init__(self, kept: int = KEPT) -> None:
        self._newest: deque[PartitionKey] = deque(maxlen=kept)
        self.end = 0

    def note(self, key: PartitionKey) -> None:
        """Notes that a partition has got records, another high watermark, log start, leader epoch or leader."""
        self._newest.append(key)
        self.end += 1

    def since(self, position: int) -> list[PartitionKey] | None:
        """Returns what has changed since `end` was `position`; None where that is not known any more."""
        count = self.end - position
        if count > len(self._newest):
            return None
        return [self._newest[place] for place in range(-count, 0)]
