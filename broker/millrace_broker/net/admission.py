"""Who may connect: so many connections in all, and so many from one address.

    max.connections                     in all
    max.connections.per.ip              from one address
    max.connections.per.ip.overrides    ADDRESS:N,ADDRESS:N: from that address instead

A connection above a limit is closed at once; those that are open never notice.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping

from millrace.errors import InvalidConfigError

Overrides = Mapping[str, int]


def parse_overrides(text: str) -> Overrides:
    """Limits by address from `ADDRESS:N,…`, IPv6 in brackets; InvalidConfigError for anything else."""
    limits = {}
    for entry in filter(None, (one.strip() for one in text.split(","))):
        address, _, limit = entry.rpartition(":")
        try:
            host = str(ipaddress.ip_address(address.strip("[]")))
        except ValueError:
            host = ""
        if not host or not limit.isdecimal():
            raise InvalidConfigError(f"max.connections.per.ip.overrides: {entry!r} is not ADDRESS:NUMBER")
        limits[host] = int(limit)
    return limits


class Admission:
    """Counts the open connections by address."""

    def __init__(self, max_connections: int, max_per_address: int, overrides: Overrides) -> None:
        self._max_connections = max_connections
        self._max_per_address = max_per_address
        self._overrides = overrides
        self._open: Counter[str] = Counter()
        self.total = 0

    def admit(self, address: str) -> str | None:
        """Count one more connection from `address`; or the limit that is reached, and nothing is counted."""
        if self.total >= self._max_connections:
            return f"max.connections={self._max_connections}"
        limit = self._overrides.get(address, self._max_per_address)
        if self._open[address] >= limit:
            return f"max.connections.per.ip={limit}"
        self._open[address] += 1
        self.total += 1
        return None

    def leave(self, address: str) -> None:
        """An admitted connection from `address` has ended."""
        self.total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
