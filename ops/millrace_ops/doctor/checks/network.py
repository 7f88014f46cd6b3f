"""What the facts of listeners mean: whether the broker can listen there, and clients find it."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.addresses import Address, is_loopback
from millrace_ops.doctor.facts.network import ListenerFacts
from millrace_ops.doctor.findings import Finding, Level, judged


def check_listener(facts: ListenerFacts, *, broker_runs: bool) -> Iterator[Finding]:
    """Yields the findings of a listener; the port may be in use while a broker holds the data folders."""
    yield check_address(facts, broker_runs=broker_runs)
    if facts.unresolved is not None:
        yield Finding(
            Level.PROBLEM,
            f"advertised address of {facts.name}",
            f"{facts.unresolved} has no address here",
            "a host that every client, and every broker, finds",
            f"advertised.listeners={facts.name}://HOST:{facts.address.port}, or an entry in DNS or /etc/hosts",
        )


def check_address(facts: ListenerFacts, *, broker_runs: bool) -> Finding:
    """Returns whether an address can be listened on."""
    in_use = "in use, as a broker runs" if broker_runs else "in use"
    return judged(
        f"{facts.name} at {facts.address}",
        facts.trouble or (in_use if facts.is_in_use else "free"),
        "free, or the running broker's",
        "stop what listens there (ss -ltnp shows it), or choose another address: --listen, listeners, --admin",
        is_well=facts.trouble is None and (not facts.is_in_use or broker_runs),
        otherwise=Level.PROBLEM,
    )


def check_admin(admin: Address, *, has_token: bool, has_tls: bool) -> Iterator[Finding]:
    """Yields the findings of an admin endpoint that others than this machine reach: a token and TLS."""
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
