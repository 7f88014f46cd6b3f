"""Quantiles of durations of the last minute or two, from their buckets; Kafka's quantiles fade out older ones, too."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from operator import sub

WINDOW_S = 60.0


def quantile(bounds: Sequence[float], buckets: Sequence[float], share: float) -> float:
    """Returns the duration below which this share of all lies, as if they lay evenly in their buckets; 0 of none.

    Of the last bucket, which has no upper bound, it returns the lower one.
    """
    wanted, before = share * sum(buckets), 0.0
    for (lower, upper), count in zip(pairwise((0.0, *bounds)), buckets, strict=False):
        if count and before + count >= wanted:
            return lower + (upper - lower) * (wanted - before) / count
        before += count
    return bounds[-1] if wanted else 0.0


class RecentBuckets:
    """The growth of buckets since a look that is one to two minutes old, or since the first look."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._looks: dict[Hashable, tuple[float, Sequence[float], Sequence[float]]] = {}

    def since(self, key: Hashable, buckets: Sequence[float]) -> Sequence[float]:
        """Takes the buckets of a key as they are now, and returns by how much each has grown."""
        now_s, nothing = self._now_s(), (0.0,) * len(buckets)
        looked_s, older, newer = self._looks.get(key, (now_s, nothing, nothing))
        recent = tuple(map(sub, buckets, older))
        if key not in self._looks or now_s - looked_s >= WINDOW_S:
            self._looks[key] = now_s, newer, buckets
        return recent
