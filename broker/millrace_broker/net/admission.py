"""Limits the number of connections and the rate of new ones: in all, of one listener, and from one address.

    max.connections                                   in all
    listener.name.NAME.max.connections                of one listener
    max.connections.per.ip                            from one address
    max.connections.per.ip.overrides                  ADDRESS:N,ADDRESS:N: from that address instead; IPv6 in brackets
    max.connection.creation.rate                      the broker, without its listener for brokers (KIP-612)
    listener.name.NAME.max.connection.creation.rate   one listener; the broker's rate unless it is set
    connection_creation_rate of /config/ips           one address; of <default>: each other address by itself

`max.connections` does not limit the listener by which brokers reach each other: clients that have taken all connections
keep no broker out (KIP-402). That listener's own limit holds; unless it is set, it is as high as `max.connections`.

A connection above a limit is closed at once, and those that are open are not affected. A connection is also closed if
its descriptor is one of the last of the process, which are kept for files. The operating system gives the lowest
descriptor that is free.

    above the rate of broker or listener    the connection waits, and those behind it at its listener wait in turn
    above the rate of its address           the connection is closed at the end of its throttle time, counted nowhere

Until then it is open and is not read. So what comes too fast waits here, where Kafka leaves it to the operating system;
`max.connections` bounds both. A throttle time is one window at most. As long as no rate is set, nothing is measured.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from functools import cache, partial

from millrace.descriptor_pool import NO_DESCRIPTOR
from millrace_broker.metrics import QuotaCounts
from millrace_broker.net.connection import Connection
from millrace_broker.properties.listeners import ConnectionLimits
from millrace_broker.quotas.measures import DEFAULT_WINDOWS, QuotaWindows, SampledRate, Sensors


class Admission:
    """Counts open connections, by address and by listener, and decides whether one more is admitted.

    Args:
        last_descriptors: the first descriptor that is not for connections.
        spared_listener: the listener of brokers, to which `max.connections` does not apply; None if clients use it.
    """

    def __init__(self, last_descriptors: int = sys.maxsize, spared_listener: str | None = None) -> None:
        self._last_descriptors = last_descriptors
        self._spared_listener = spared_listener
        self._from_address: Counter[str] = Counter()
        self._of_listener: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Returns the number of open connections."""
        return self._of_listener.total()

    def admit(
        self, address: str, listener: str, limits: ConnectionLimits, descriptor: int = NO_DESCRIPTOR
    ) -> str | None:
        """Counts one more connection and returns None, or returns the limit reached, like `max.connections=9`."""
        config, own = limits.broker, limits.open(listener)
        if descriptor >= self._last_descriptors:
            return f"{descriptor} descriptors are open"
        if listener != self._spared_listener and self.total >= config.max_connections:
            return f"max.connections={config.max_connections}"
        if self._of_listener[listener] >= own:
            return f"max.connections={own} of listener {listener}"
        limit = _overrides(config.max_connections_per_ip_overrides).get(address, config.max_connections_per_ip)
        if self._from_address[address] >= limit:
            return f"max.connections.per.ip={limit}"
        self._from_address[address] += 1
        self._of_listener[listener] += 1
        return None

    def leave(self, address: str, listener: str) -> None:
        """Counts one connection less, when an admitted one has ended."""
        self._of_listener[listener] -= 1
        self._from_address[address] -= 1
        if not self._from_address[address]:
            del self._from_address[address]


@cache
def _overrides(text: str) -> dict[str, int]:
    entries = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address.strip("[]").lower(): int(limit) for address, _, limit in entries}


COUNTED_AS = "CONNECTION"


class Accepting:
    """Delays the reading of new connections, in their order, so that their listener's connection rate is kept.

    Args:
        rates: measures the connections.
        scopes: returns, for a listener, the names under which its connections are counted, with limits per second.
        address_limit: returns how many connections per second may come from an address at the time.
        counts: counts the throttle times.
        now_ms: returns the time.
        call_later: calls a function after so many seconds.
    """

    def __init__(
        self,
        rates: ConnectionRates,
        scopes: Callable[[str], Scopes],
        address_limit: Callable[[str], float | None],
        counts: QuotaCounts,
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._rates = rates
        self._scopes = scopes
        self._address_limit = address_limit
        self._counts = counts
        self._now_ms = now_ms
        self._call_later = call_later
        self._waiting: defaultdict[str, deque[Connection]] = defaultdict(deque)

    def take(self, connection: Connection) -> None:
        """Lets a new connection be read, at once or after a wait; closes it after one if its address opens too many."""
        session = connection.session
        queue, limits = self._waiting[session.listener], self._scopes(session.listener).values()
        if not queue and self._address_limit(session.host) is None and not any(limit is not None for limit in limits):
            return
        connection.mute()
        queue.append(connection)
        if len(queue) == 1:
            self._go_on(session.listener)

    def _go_on(self, listener: str) -> None:
        queue = self._waiting[listener]
        while queue:
            wait_ms = self._rates.opened(self._scopes(listener), self._now_ms())
            if wait_ms:
                self._counts.note(COUNTED_AS, wait_ms)
                self._call_later(wait_ms / 1000, partial(self._waited, listener))
                return
            self._let_in(queue.popleft())

    def _waited(self, listener: str) -> None:
        self._let_in(self._waiting[listener].popleft())
        self._go_on(listener)

    def _let_in(self, connection: Connection) -> None:
        session = connection.session
        limit, scopes = self._address_limit(session.host), self._scopes(session.listener)
        throttle_ms = self._rates.came_from(session.host, limit, scopes, self._now_ms())
        if throttle_ms:
            self._counts.note(COUNTED_AS, throttle_ms)
            self._call_later(throttle_ms / 1000, connection.abort)
        else:
            connection.unmute()


BROKER = ""  # no listener has this name

Scopes = Mapping[str, float | None]  # what a connection counts for, the broker and its listener, and their limits


class ConnectionRates:
    """Measures rates of new connections: to the broker, to listeners, from addresses; a limit of None means none."""

    def __init__(self, windows: QuotaWindows = DEFAULT_WINDOWS) -> None:
        self._windows = windows
        self._opened: dict[str, SampledRate] = {}
        self._addresses = Sensors[str, SampledRate](lambda: SampledRate(windows))

    def opened(self, scopes: Scopes, now_ms: int) -> int:
        """Counts a connection under each name in `scopes`; returns for how many milliseconds it must not be read."""
        return max(self._record(self._of(name), limit, now_ms) for name, limit in scopes.items())

    def came_from(self, address: str, limit: float | None, scopes: Scopes, now_ms: int) -> int:
        """Counts a connection of an address; returns after how many milliseconds to close it, 0 if it may stay."""
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
