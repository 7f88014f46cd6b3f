"""Counts of requests, kept as plain numbers on the hot path and given out when Prometheus asks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class ApiCount:
    """One API's requests."""

    requests: int = 0
    bytes_in: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class RequestMetrics:
    """All APIs' requests, and the connections that were closed for what they sent."""

    by_api: defaultdict[int, ApiCount] = field(default_factory=lambda: defaultdict(ApiCount))
    refused: int = 0

    def count(self, api_key: int, size_bytes: int, seconds: float) -> None:
        """Count one handled request."""
        api = self.by_api[api_key]
        api.requests += 1
        api.bytes_in += size_bytes
        api.seconds += seconds
