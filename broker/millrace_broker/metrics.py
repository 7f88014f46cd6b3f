"""Counts requests, replicas, groups and transactions in plain numbers; Prometheus reads them when it asks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class ApiCount:
    """The requests of one API; `total_seconds` is the time until their replies were handed to the socket."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queue_seconds: float = 0.0
    handler_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(slots=True)
class RequestMetrics:
    """The requests of all APIs, and the connections that were closed or muted."""

    by_api: defaultdict[int, ApiCount] = field(default_factory=lambda: defaultdict(ApiCount))
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # by API key and error code
    refused: int = 0
    idle_closed: int = 0
    authentications: Counter[str] = field(default_factory=Counter)  # by SASL; by outcome, as docs/metrics.md lists them
    muted: int = 0  # connections that are not read at the moment, as their client is throttled

    def count(
        self, api_key: int, requests: int, bytes_in: int, queue_seconds: float, handler_seconds: float
    ) -> ApiCount:
        """Counts requests that were handled together; returns the API's counts, to which their replies are added."""
        api = self.by_api[api_key]
        api.requests += requests
        api.bytes_in += bytes_in
        api.queue_seconds += queue_seconds * requests
        api.handler_seconds += handler_seconds
        return api


@dataclass(slots=True)
class QuotaCounts:
    """Requests that exceeded a quota, and their throttle times, by the kind of the quota."""

    throttled: Counter[str] = field(default_factory=Counter)
    throttle_ms: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, throttle_ms: int) -> None:
        """Counts one throttle time."""
        self.throttled[kind] += 1
        self.throttle_ms[kind] += throttle_ms


@dataclass(slots=True)
class IsrCounts:
    """Changes of the in-sync replicas that this broker has proposed as a leader."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0  # refused by the controller


@dataclass(slots=True)
class ElectionCounts:
    """The leaders that this broker has elected as the controller; first leaders of new partitions don't count."""

    elected: int = 0
    unclean: int = 0  # counted in elected too
    seconds: float = 0.0  # from the event that makes elections necessary to the last write of them


@dataclass(slots=True)
class GroupCounts:
    """What happened to the groups whose coordinator this broker is, and how its partitions were loaded."""

    rebalances: Counter[str] = field(default_factory=Counter)  # generations and epochs that were stored, by type
    offsets_committed: int = 0
    offsets_removed: int = 0  # for whatever reason
    offsets_expired: int = 0  # counted in offsets_removed too
    partitions_loaded: int = 0
    groups_loaded: int = 0
    offsets_loaded: int = 0
    load_seconds: float = 0.0


@dataclass(slots=True)
class TransactionCounts:
    """What happened to the transactions whose coordinator this broker is; counted once it is stored."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0  # for whatever reason
    timed_out: int = 0  # counted in aborted too
    fenced: int = 0  # producers that lost their epoch during a transaction: to another instance, or by its timeout
    open_seconds: float = 0.0  # from the first partition to the last marker, of complete transactions
    partitions_loaded: int = 0
    ids_loaded: int = 0
    load_seconds: float = 0.0
