"""The tokens that are left for changes of topics (KIP-599), as Apache Kafka's TokenBucket counts them.

A bucket begins full, with what the quota allows in all windows, and fills at the quota's rate. One change may take more
tokens than there are: then the bucket owes them, and it is exhausted until it has filled up to none again.
"""

from __future__ import annotations

from millrace.config import MAX_INT
from millrace_broker.quotas.sampled_rate import QuotaWindows, bounded_ms


class TokenBucket:
    """One bucket; the quota is handed in each time, as it may change."""

    __slots__ = ("_burst_seconds", "_last_ms", "_tokens")

    def __init__(self, windows: QuotaWindows) -> None:
        self._burst_seconds = windows.number * windows.window_ms / 1000
        self._tokens = float("inf")
        self._last_ms = 0

    def tokens(self, quota: float, now_ms: int) -> float:
        """Returns how many tokens there are; a negative number is owed."""
        filled = self._tokens + quota * (now_ms - self._last_ms) / 1000
        self._tokens = min(self._burst_seconds * quota, filled)
        self._last_ms = now_ms
        return self._tokens

    def take(self, tokens: float, quota: float, now_ms: int) -> None:
        """Takes tokens, whether there are enough or not."""
        self._tokens = self.tokens(quota, now_ms) - tokens

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns how long it takes until nothing is owed any more; 0 where nothing is."""
        tokens = self.tokens(quota, now_ms)
        if tokens >= 0:
            return 0
        return bounded_ms(-tokens / quota * 1000) if quota else MAX_INT
