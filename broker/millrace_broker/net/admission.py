"""Limits the number of connections: in all, of one listener, and from one address.

    max.connections                     in all
    listener.name.NAME.max.connections  of one listener
    max.connections.per.ip              from one address
    max.connections.per.ip.overrides    ADDRESS:N,ADDRESS:N: from that address instead; IPv6 in brackets

`max.connections` does not limit the listener by which brokers reach each other: clients that have taken all connections
keep no broker out (KIP-402). That listener's own limit holds; unless it is set, it is as high as `max.connections`.

A connection above a limit is closed at once, and those that are open are not affected. A connection is also closed if
its descriptor is one of the last of the process, which are kept for files. The operating system gives the lowest
descriptor that is free.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache

from millrace.descriptor_pool import NO_DESCRIPTOR
from millrace_broker.properties.listeners import ConnectionLimits


class Admission:
    """Counts the open connections by address and by listener.

    Args:
        last_descriptors: the first descriptor that is not for connections.
        spared_listener: the listener of brokers; None where clients come by it, too.
    """

    def __init__(self, last_descriptors: int = sys.maxsize, spared_listener: str | None = None) -> None:
        self._last_descriptors = last_descriptors
        self._spared_listener = spared_listener
        self._from_address: Counter[str] = Counter()
        self._of_listener: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The number of open connections."""
        return self._of_listener.total()

    def admit(
        self, address: str, listener: str, limits: ConnectionLimits, descriptor: int = NO_DESCRIPTOR
    ) -> str | None:
        """Counts one more connection and returns None, or returns the limit that is reached."""
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
        """Counts one connection less, as an admitted one has ended."""
        self._of_listener[listener] -= 1
        self._from_address[address] -= 1
        if not self._from_address[address]:
            del self._from_address[address]


@cache
def _overrides(text: str) -> dict[str, int]:
    entries = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address.strip("[]").lower(): int(limit) for address, _, limit in entries}
