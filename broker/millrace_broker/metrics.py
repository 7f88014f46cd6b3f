"""Counts of requests, groups and transactions, plain numbers on the hot path, given out when Prometheus asks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


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

    def count(
        self, api_key: int, requests: int, bytes_in: int, queue_seconds: float, handler_seconds: float
    ) -> ApiCount:
        """Count requests that were handled together; the API's counts, for their replies to be added."""
        api = self.by_api[api_key]
        api.requests += requests
        api.bytes_in += bytes_in
        api.queue_seconds += queue_seconds * requests
        api.handler_seconds += handler_seconds
        return api


@dataclass(slots=True)
class GroupCounts:
    """What became of the groups whose coordinator this broker is; partitions of their topic are loaded at a start."""

    rebalances: Counter[str] = field(default_factory=Counter)  # generations and epochs that were stored, by type
    offsets_committed: int = 0
    offsets_removed: int = 0  # for whatever reason
    offsets_expired: int = 0  # of those
    partitions_loaded: int = 0
    groups_loaded: int = 0
    offsets_loaded: int = 0
    load_seconds: float = 0.0


@dataclass(slots=True)
class TransactionCounts:
    """What became of the transactions whose coordinator this broker is, once it was stored."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0  # for whatever reason
    timed_out: int = 0  # of those
    fenced: int = 0  # producers whose epoch was taken away amid a transaction: by another instance, or its timeout
    open_seconds: float = 0.0  # from the first partition to the last marker, of those that are complete
    partitions_loaded: int = 0
    ids_loaded: int = 0
    load_seconds: float = 0.0
