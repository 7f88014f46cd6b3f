"""Whether a broker can listen at its addresses, which is tried, and whether clients find what they are told."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millrace.addresses import FREE_PORT, Address, is_loopback
from millrace.ports import try_to_listen
from millrace_broker.properties.listeners import Listener
from millrace_ops.doctor.findings import DoctorFinding, Level, judged


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFacts:
    """A listener. `trouble` says why its address can't be listened on; None where it can, or is in use.

    `unresolved` is the advertised host, where it can't be resolved on this machine.
    """

    name: str
    address: Address
    is_in_use: bool = False
    trouble: str | None = None
    unresolved: str | None = None


def read_listeners(listeners: Iterable[Listener], admin: Address) -> Iterator[ListenerFacts]:
    """Yields the state of the broker's listeners and of its admin endpoint."""
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


def check_listener(facts: ListenerFacts, *, broker_runs: bool) -> Iterator[DoctorFinding]:
    """Yields a problem where a listener's port is taken, unless `broker_runs`, or its advertised host is not found."""
    in_use = "in use, as a broker runs" if broker_runs else "in use"
    yield judged(
        f"{facts.name} at {facts.address}",
        facts.trouble or (in_use if facts.is_in_use else "free"),
        "free, or the running broker's",
        "stop what listens there (ss -ltnp shows it), or choose another address: --listen, listeners, --admin",
        is_well=facts.trouble is None and (not facts.is_in_use or broker_runs),
        otherwise=Level.PROBLEM,
    )
    if facts.unresolved is not None:
        yield DoctorFinding(
            Level.PROBLEM,
            f"advertised address of {facts.name}",
            f"{facts.unresolved} has no address here",
            "a host that every client, and every broker, finds",
            f"advertised.listeners={facts.name}://HOST:{facts.address.port}, or an entry in DNS or /etc/hosts",
        )


def check_admin(admin: Address, *, has_token: bool, has_tls: bool) -> Iterator[DoctorFinding]:
    """Yields the findings about an admin endpoint that other machines can reach: whether it has a token and TLS."""
    if is_loopback(admin.host):
        return
    yield judged(
        "admin.token",
        "set" if has_token else "not set",
        "set, as the admin endpoint is reached from other machines",
        "admin.token=… in the file of --config, or --admin 127.0.0.1:9644",
        is_well=has_token,
        otherwise=Level.PROBLEM,
    )
    yield judged(
        "admin.security.protocol",
        "SSL" if has_tls else "PLAINTEXT: the token can be read on its way",
        "SSL, as the admin endpoint is reached from other machines",
        "admin.security.protocol=SSL, with ssl.keystore.location",
        is_well=has_tls,
    )
