"""Parses `listeners` and `advertised.listeners` in Kafka's form: where the broker listens, and what clients are told.

    NAME://HOST:PORT     an IPv6 host in brackets; without a host, the broker listens on every address of the machine

`listener.security.protocol.map` gives the security protocol of a listener by its name; without an entry, the name is
that of the protocol. One listener is served, with PLAINTEXT. Where the broker listens on every address, clients can't
be told that, so `advertised.listeners` must say where they reach the broker.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from millrace.addresses import Address, parse_listen_address
from millrace.errors import InvalidConfigError

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<address>.*)")


class Listener(NamedTuple):
    """A listener's name and its address."""

    name: str
    address: Address


def parse_listener(text: str, protocols: str = "") -> Listener:
    """Returns the one listener of a list; `protocols` is `listener.security.protocol.map`.

    InvalidConfigError for another form, several listeners, and a listener that is not PLAINTEXT.
    """
    found = [one.strip() for one in text.split(",") if one.strip()]
    if not found:
        raise InvalidConfigError("Invalid value, expected PLAINTEXT://HOST:PORT")
    listeners = [_listener(one) for one in found]
    for name, _ in listeners:
        _check_protocol(name, protocols)
    if len(listeners) > 1:
        raise InvalidConfigError(f"Invalid value, {len(listeners)} listeners are given and one is served")
    return listeners[0]


def check_plaintext(text: str) -> None:
    """Raises InvalidConfigError for a list with a listener that has the name of another protocol."""
    for one in text.split(","):
        name = one.partition("://")[0].strip().upper()
        if name in PROTOCOLS:
            _check_protocol(name, "")


def check_protocol_map(text: str) -> None:
    """Raises InvalidConfigError where a listener would be encrypted or authenticated, or the map can't be read.

    The pairs of Kafka's default, such as SSL:SSL, restrict nothing as long as no listener has their name.
    """
    for name, protocol in _pairs(text).items():
        if protocol not in PROTOCOLS:
            raise InvalidConfigError(f"Invalid value, {protocol} is no security protocol")
        if protocol not in (PLAINTEXT, name):
            raise InvalidConfigError(
                f"Invalid value, listener {name} has the protocol {protocol}, and only PLAINTEXT is served"
            )


def _listener(text: str) -> Listener:
    match = LISTENER.fullmatch(text)
    if match is not None:
        try:
            return Listener(match["name"].upper(), parse_listen_address(match["address"]))
        except InvalidConfigError:
            pass
    raise InvalidConfigError("Invalid value, expected PLAINTEXT://HOST:PORT")


def _check_protocol(name: str, protocols: str) -> None:
    protocol = _pairs(protocols).get(name, name if name in PROTOCOLS else None)
    if protocol is None:
        raise InvalidConfigError(f"Invalid value, listener.security.protocol.map has no protocol for listener {name}")
    if protocol != PLAINTEXT:
        raise InvalidConfigError(
            f"Invalid value, listener {name} has the protocol {protocol}, and only PLAINTEXT is served"
        )


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for one in text.split(","):
        if one.strip():
            name, separator, protocol = (part.strip().upper() for part in one.partition(":"))
            if not separator or not name:
                raise InvalidConfigError("Invalid value, expected NAME:PROTOCOL,…")
            pairs[name] = protocol
    return pairs
