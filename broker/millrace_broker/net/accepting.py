"""Lets connections in at the rates that are allowed (KIP-612; `quotas.connection_rates`).

    above the rate of broker or listener    the connection waits, and those behind it at its listener wait in turn
    above the rate of its address           the connection is closed at the end of its throttle time

Until then it is open and is not read. So what comes too fast waits here, where Kafka leaves it to the operating system;
`max.connections` bounds both. As long as no rate is set, nothing is measured.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from millrace_broker.metrics import QuotaCounts
from millrace_broker.quotas.connection_rates import ConnectionRates, Scopes
from millrace_broker.security.client_session import ClientSession

COUNTED_AS = "CONNECTION"


class NewConnection(Protocol):
    """The part of a connection that is used here."""

    session: ClientSession

    def mute(self) -> None:
        """Stops reading until `unmute`."""
        ...

    def unmute(self) -> None:
        """Goes on reading."""
        ...

    def abort(self) -> None:
        """Closes at once."""
        ...


class Accepting:
    """The connections that wait to be let in, by listener.

    Args:
        rates: measures the connections.
        scopes: returns what a connection of a listener counts for, and the limits at the time.
        address_limit: returns how many connections per second may come from an address at the time.
        counts: takes the throttle times.
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
        self._waiting: defaultdict[str, deque[NewConnection]] = defaultdict(deque)

    def take(self, connection: NewConnection) -> None:
        """Lets a new connection in, at once or later, or closes it later."""
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

    def _let_in(self, connection: NewConnection) -> None:
        session = connection.session
        limit, scopes = self._address_limit(session.host), self._scopes(session.listener)
        throttle_ms = self._rates.came_from(session.host, limit, scopes, self._now_ms())
        if throttle_ms:
            self._counts.note(COUNTED_AS, throttle_ms)
            self._call_later(throttle_ms / 1000, connection.abort)
        else:
            connection.unmute()
