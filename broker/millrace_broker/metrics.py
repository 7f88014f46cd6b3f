"""Counts requests, topics, replicas, groups, transactions and work on the disk in plain numbers.

`admin.collectors` makes Prometheus' families of them when it asks, so that a request costs a few additions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

REQUEST_BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
MAINTENANCE_BOUNDS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


class Durations:
    """A histogram of durations: counts in buckets with upper bounds; the last bucket has all longer ones."""

    __slots__ = ("bounds_s", "buckets", "sum_s")

    def __init__(self, bounds_s: Sequence[float] = REQUEST_BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.buckets = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Counts a duration, in seconds, as often as `times` says."""
        self.buckets[bisect_left(self.bounds_s, seconds)] += times
        self.sum_s += seconds * times


class RequestTimes(NamedTuple):
    """When requests that were handled together arrived and were handled, in seconds of a monotonic clock."""

    arrived: float
    started: float
    handled: float


@dataclass(slots=True)
class ApiCount:
    """The requests of one API, and how long their phases took.

    `queue` and `local` count every request that was handled; requests that were handled together share the time in the
    handler equally. `send` and `total` count the requests whose replies were handed to the socket, and `remote` those
    of them whose replies had to wait.
    """

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queue: Durations = field(default_factory=Durations)
    local: Durations = field(default_factory=Durations)
    remote: Durations = field(default_factory=Durations)
    send: Durations = field(default_factory=Durations)
    total: Durations = field(default_factory=Durations)

    def sent(self, requests: int, bytes_out: int, times: RequestTimes, answered: float, now: float) -> None:
        """Counts the replies, sent `now`, to requests handled together; those that waited were ready at `answered`."""
        self.bytes_out += bytes_out
        total_s, send_s = now - times.arrived, now - answered
        total, send = self.total, self.send
        total.buckets[bisect_left(REQUEST_BOUNDS_S, total_s)] += requests
        total.sum_s += total_s * requests
        send.buckets[bisect_left(REQUEST_BOUNDS_S, send_s)] += requests
        send.sum_s += send_s * requests
        if answered != times.handled:
            self.remote.observe(answered - times.handled, requests)


@dataclass(slots=True)
class RequestMetrics:
    """Counts the requests of all APIs, and the connections that were closed or are muted (not read)."""

    by_api: defaultdict[int, ApiCount] = field(default_factory=lambda: defaultdict(ApiCount))
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # by API key and error code
    refused: int = 0
    idle_closed: int = 0
    authentications: Counter[str] = field(default_factory=Counter)  # by SASL; by outcome, as docs/metrics.md lists them
    muted: int = 0  # connections that are not read at the moment, as their client is throttled

    def handled(self, api_key: int, requests: int, bytes_in: int, queue_s: float, handler_s: float) -> ApiCount:
        """Counts requests that were handled together; returns the API's counts, whose `sent` counts their replies."""
        api = self.by_api[api_key]
        api.requests += requests
        api.bytes_in += bytes_in
        queue, local = api.queue, api.local
        queue.buckets[bisect_left(REQUEST_BOUNDS_S, queue_s)] += requests
        queue.sum_s += queue_s * requests
        local.buckets[bisect_left(REQUEST_BOUNDS_S, handler_s / requests)] += requests
        local.sum_s += handler_s
        return api


@dataclass(slots=True, weakref_slot=True)
class TopicTraffic:
    """The records and bytes of a topic on this broker: what clients wrote and read, and what replicas copied."""

    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replicated_bytes_in: int = 0
    replicated_bytes_out: int = 0


@dataclass(slots=True)
class MaintenanceCounts:
    """What the opening, compaction and retention of logs took and removed: seconds, bytes, failures."""

    recovery_s: float = 0.0  # of all logs at the start
    recovered_segments: int = 0  # walked at the start, as the last shutdown had not synced them
    truncated_bytes: int = 0  # cut off at the start
    compactions: Durations = field(default_factory=lambda: Durations(MAINTENANCE_BOUNDS_S))
    compaction_removed_bytes: int = 0
    compaction_failures: int = 0  # logs whose compaction failed
    retention_removed_bytes: int = 0
    healed_ranges: int = 0  # damaged ranges that batches of other replicas have filled
    healed_bytes: int = 0


class ClockStep(NamedTuple):
    """By how many seconds the machine's clock was set (below 0: back), and when, by the monotonic clock."""

    by_s: float
    at_ms: int

    @property
    def sentence_part(self) -> str:
        """Returns the direction and the amount, such as `forward by 1.500 s`."""
        return f"{'forward' if self.by_s > 0 else 'back'} by {abs(self.by_s):.3f} s"


@dataclass(slots=True)
class ClockCounts:
    """How often the machine's clock was set since the start, by how much in all, and the last time."""

    steps: int = 0
    stepped_s: float = 0.0
    last: ClockStep | None = None


@dataclass(slots=True)
class QuotaCounts:
    """Counts requests and connections that exceeded a quota, and their throttle times, by kind of quota."""

    throttled: Counter[str] = field(default_factory=Counter)
    throttle_ms: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, throttle_ms: int) -> None:
        """Counts one throttled request or connection, and its throttle time, under the kind of the quota."""
        self.throttled[kind] += 1
        self.throttle_ms[kind] += throttle_ms


@dataclass(slots=True)
class IsrCounts:
    """Counts the changes of in-sync replicas that this broker has proposed as a leader."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0  # refused by the controller


@dataclass(slots=True)
class ElectionCounts:
    """Counts the leaders that this broker has elected as the controller, without first leaders of new partitions."""

    elected: int = 0
    unclean: int = 0  # counted in elected too
    seconds: float = 0.0  # from the event that makes elections necessary to the last write of them


@dataclass(slots=True)
class GroupCounts:
    """Counts events of the groups that this broker coordinates, and the loading of its partitions of their topic."""

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
    """Counts events of the transactions that this broker coordinates, once they are in the coordinator's log."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0  # for whatever reason
    timed_out: int = 0  # counted in aborted too
    fenced: int = 0  # producers that lost their epoch during a transaction: to another instance, or by its timeout
    open_seconds: float = 0.0  # from the first partition to the last marker, of complete transactions
    partitions_loaded: int = 0
    ids_loaded: int = 0
    load_seconds: float = 0.0
