"""Counts of requests, kept as plain numbers on the hot path and given out when Prometheus asks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Protocol


class Handled(Protocol):
    """A request that its handler is done with; seconds of a monotonic clock."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the request."""
        ...

    @property
    def arrived(self) -> float:
        """When its bytes were there."""
        ...

    @property
    def started(self) -> float:
        """When its handler began."""
        ...

    @property
    def handled(self) -> float:
        """When its handler returned."""
        ...


@dataclass(slots=True)
class ApiCount:
    """One API's requests; `total_seconds` is until the reply was handed to the socket."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queue_seconds: float = 0.0
    handler_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(slots=True)
class RequestMetrics:
    """All APIs' requests, and the connections that were closed for what they sent or did not do."""

    by_api: defaultdict[int, ApiCount] = field(default_factory=lambda: defaultdict(ApiCount))
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # by API key and error code
    refused: int = 0
    idle_closed: int = 0

    def count(self, api_key: int, request: Handled) -> ApiCount:
        """Count one handled request; the API's counts, for its reply to be added."""
        api = self.by_api[api_key]
        api.requests += 1
        api.bytes_in += request.size_bytes
        api.queue_seconds += request.started - request.arrived
        api.handler_seconds += request.handled - request.started
        return api
