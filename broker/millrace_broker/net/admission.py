"""Limits the number of connections, in all and from one address.

    max.connections                     in all
    max.connections.per.ip              from one address
    max.connections.per.ip.overrides    ADDRESS:N,ADDRESS:N: from that address instead; IPv6 in brackets

A connection above a limit is closed at once, and those that are open are not affected. A connection is also closed if
its descriptor is one of the last of the process, which are kept for files. The operating system gives the lowest
descriptor that is free.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache

from millrace.descriptor_pool import NO_DESCRIPTOR
from millrace_broker.properties.broker_config import BrokerConfig


class Admission:
    """Counts the open connections by address."""

    def __init__(self, last_descriptors: int = sys.maxsize) -> None:
        """Takes the first descriptor that is not for connections."""
        self._last_descriptors = last_descriptors
        self._open: Counter[str] = Counter()
        self.total = 0

    def admit(self, address: str, config: BrokerConfig, descriptor: int = NO_DESCRIPTOR) -> str | None:
        """Counts one more connection from `address` and returns None, or returns the limit that is reached."""
        if descriptor >= self._last_descriptors:
            return f"{descriptor} descriptors are open"
        if self.total >= config.max_connections:
            return f"max.connections={config.max_connections}"
        limit = _overrides(config.max_connections_per_ip_overrides).get(address, config.max_connections_per_ip)
        if self._open[address] >= limit:
            return f"max.connections.per.ip={limit}"
        self._open[address] += 1
        self.total += 1
        return None

    def leave(self, address: str) -> None:
        """Counts one connection less, as an admitted one from `address` has ended."""
        self.total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


@cache
def _overrides(text: str) -> dict[str, int]:
    entries = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address.strip("[]").lower(): int(limit) for address, _, limit in entries}
