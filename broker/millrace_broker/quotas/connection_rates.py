"""How many connections may be opened per second (KIP-612): at this broker, by one listener, and from one address.

    max.connection.creation.rate                      the broker, without its listener for brokers
    listener.name.NAME.max.connection.creation.rate   one listener; the broker's rate unless it is set
    connection_creation_rate of /config/ips           one address; of <default>: each other address by itself

Above the rate of broker or listener, the listener takes its next connection later, and one after the other. A
connection above the rate of its address is closed, after the throttle time, and does not count anywhere. A throttle
time is one window at most.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace_broker.quotas.measures import DEFAULT_WINDOWS, QuotaWindows, SampledRate, Sensors

BROKER = ""  # no listener has this name

Scopes = Mapping[str, float | None]  # what a connection counts for, the broker and its listener, and their limits


class ConnectionRates:
    """Measures the connections that are opened; None stands for no limit."""

    def __init__(self, windows: QuotaWindows = DEFAULT_WINDOWS) -> None:
        self._windows = windows
        self._opened: dict[str, SampledRate] = {}
        self._addresses = Sensors[str, SampledRate](lambda: SampledRate(windows))

    def opened(self, scopes: Scopes, now_ms: int) -> int:
        """Counts a connection, and returns how many milliseconds it has to wait."""
        return max(self._record(self._of(name), limit, now_ms) for name, limit in scopes.items())

    def came_from(self, address: str, limit: float | None, scopes: Scopes, now_ms: int) -> int:
        """Counts a connection for its address; returns after how many milliseconds it is closed, 0 if it may stay."""
        if limit is None:
            return 0
        rate = self._addresses.get(address, now_ms)
        throttle_ms = self._record(rate, limit, now_ms)
        if throttle_ms:
            for one in (rate, *map(self._of, scopes)):
                one.record(-1, now_ms)
        return throttle_ms

    def _of(self, scope: str) -> SampledRate:
        return self._opened.setdefault(scope, SampledRate(self._windows))

    def _record(self, rate: SampledRate, limit: float | None, now_ms: int) -> int:
        rate.record(1, now_ms)
        return 0 if limit is None else min(rate.throttle_ms(limit, now_ms), self._windows.window_ms)
