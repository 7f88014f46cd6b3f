"""The quotas of users and clients at one broker: what they do is recorded, and a throttle time comes back.

    produce, fetch         bytes per second, over sampled windows
    request                time of the event loop in percent, over the same windows; throttled for one window at most
    controller mutation    partitions made and deleted, from a bucket of tokens

A fetch that is throttled, for its bytes or for its time, is answered empty, so its bytes are taken back. Replicas are
never recorded, nor is the time of the requests among brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import ThrottlingQuotaExceededError
from millrace_broker.metrics import QuotaCounts
from millrace_broker.quotas.limits import Client, Configs, QuotaKind, QuotaLimits
from millrace_broker.quotas.measures import DEFAULT_WINDOWS, QuotaWindows, SampledRate, Sensors, TokenBucket

PERCENT = 100
RATES = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST)


@dataclass(slots=True)
class MutationQuota:
    """A client's quota of changes (partitions made and deleted), for one request.

    A strict quota refuses a change while tokens are owed. Any other quota takes every change, and throttles the client
    while tokens are owed. Without a bucket nothing is refused or throttled.
    """

    _bucket: TokenBucket | None
    _per_second: float
    _is_strict: bool
    _counts: QuotaCounts
    _throttle_ms: int = 0
    _recorded_ms: int = 0

    def record(self, partitions: int, now_ms: int) -> None:
        """Takes tokens for partitions that are about to be made or deleted.

        Raises ThrottlingQuotaExceededError where the quota is strict and tokens are owed.
        """
        if self._bucket is None:
            return
        if self._is_strict and self._owes(self._bucket, now_ms):
            raise ThrottlingQuotaExceededError(
                f"the controller_mutation_rate of {self._per_second:g} is used up; try again in {self._throttle_ms} ms"
            )
        self._bucket.take(partitions, self._per_second, now_ms)
        if not self._is_strict:
            self._owes(self._bucket, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Returns for how many milliseconds the client is still throttled because of its changes."""
        return max(0, self._throttle_ms - (now_ms - self._recorded_ms))

    def _owes(self, bucket: TokenBucket, now_ms: int) -> bool:
        owed_ms = bucket.throttle_ms(self._per_second, now_ms)
        if owed_ms:
            self._throttle_ms, self._recorded_ms = owed_ms, now_ms
            self._counts.note(QuotaKind.CONTROLLER_MUTATION.name, owed_ms)
        return bool(owed_ms)


class ClientQuotas:
    """Measures what clients use, and says how long those that exceed their quotas are throttled."""

    def __init__(
        self,
        windows: QuotaWindows = DEFAULT_WINDOWS,
        controller_windows: QuotaWindows = DEFAULT_WINDOWS,
    ) -> None:
        self._windows = windows
        self._rates = {kind: Sensors[Client, SampledRate](lambda: SampledRate(windows)) for kind in RATES}
        self._buckets = Sensors[Client, TokenBucket](lambda: TokenBucket(controller_windows))
        self._configs: Configs = {}
        self._limits = QuotaLimits({})
        self.counts = QuotaCounts()
        self.is_enabled = False  # whether there has been any quota of clients: until then nothing is looked up

    def set_configs(self, configs: Configs) -> None:
        """Replaces the quotas by those in the properties of users, clients and addresses; measured rates stay."""
        if configs is not self._configs and configs != self._configs:
            self._configs, self._limits = configs, QuotaLimits(configs)
            self.is_enabled = self.is_enabled or self._limits.has_client_quotas

    def connection_rate(self, address: str) -> float | None:
        """Returns how many connections per second may come from an address; None where that is not limited."""
        return self._limits.connection_rate(address)

    def produced(self, client: Client, size_bytes: int, now_ms: int) -> int:
        """Counts the bytes of a Produce request; returns for how many milliseconds its client is throttled."""
        return self._record(QuotaKind.PRODUCE, client, size_bytes, now_ms)

    def used(self, client: Client, seconds: float, now_ms: int) -> int:
        """Counts the seconds that a request took on the event loop; returns for how many ms its client is throttled."""
        throttle_ms = self._record(QuotaKind.REQUEST, client, seconds * PERCENT, now_ms)
        return min(throttle_ms, self._windows.window_ms)

    def fetched(self, client: Client, size_bytes: int, seconds: float, now_ms: int) -> int:
        """Counts a fetch's bytes and seconds; returns the throttle time in ms, for which its response is left empty."""
        throttle_ms = max(self.used(client, seconds, now_ms), self._record(QuotaKind.FETCH, client, size_bytes, now_ms))
        limit = self._limits.find(QuotaKind.FETCH, client)
        if throttle_ms and limit is not None:
            self._rates[QuotaKind.FETCH].get(limit.measured, now_ms).record(-size_bytes, now_ms)
        return throttle_ms

    def fetch_max_bytes(self, client: Client, max_bytes: int) -> int:
        """Returns how many bytes a fetch may return: `max_bytes`, or what the quota allows in all windows, if less."""
        limit = self._limits.find(QuotaKind.FETCH, client)
        return max_bytes if limit is None else min(max_bytes, int(limit.per_second * self._windows.whole_seconds))

    def mutations(self, client: Client, now_ms: int, *, is_strict: bool) -> MutationQuota:
        """Returns the client's quota of changes to topics, for one request."""
        limit = self._limits.find(QuotaKind.CONTROLLER_MUTATION, client)
        if limit is None:
            return MutationQuota(None, 0, is_strict, self.counts)
        return MutationQuota(self._buckets.get(limit.measured, now_ms), limit.per_second, is_strict, self.counts)

    def _record(self, kind: QuotaKind, client: Client, value: float, now_ms: int) -> int:
        limit = self._limits.find(kind, client)
        if limit is None:
            return 0
        rate = self._rates[kind].get(limit.measured, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit.per_second, now_ms)
        if throttle_ms:
            self.counts.note(kind.name, throttle_ms)
        return throttle_ms
