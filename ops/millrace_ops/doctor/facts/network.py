"""Tries whether the addresses of listeners can be listened on, and whether what clients are told has an address."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millrace.addresses import FREE_PORT, Address
from millrace_broker.properties.listeners import Listener
from millrace_ops.supervisor.ports import try_to_listen


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFacts:
    """A listener. `trouble` is why its address can't be listened on, None where it can, or is in use.

    `unresolved` is the host that clients are told and that has no address here.
    """

    name: str
    address: Address
    is_in_use: bool = False
    trouble: str | None = None
    unresolved: str | None = None


def read_listeners(listeners: Iterable[Listener], admin: Address) -> Iterator[ListenerFacts]:
    """Yields the facts of the broker's listeners and of its admin endpoint."""
    for one in listeners:
        told = (one.advertised or one.address).host
        yield _read(one.name, one.address, None if _has_address(told) else told)
    yield _read("admin endpoint", admin, None)


def _read(name: str, address: Address, unresolved: str | None) -> ListenerFacts:
    try:
        if address.port != FREE_PORT:
            try_to_listen(address)
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        reason = None if is_in_use else os.strerror(error.errno) if error.errno else str(error)
        return ListenerFacts(name=name, address=address, is_in_use=is_in_use, trouble=reason, unresolved=unresolved)
    return ListenerFacts(name=name, address=address, unresolved=unresolved)


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False
