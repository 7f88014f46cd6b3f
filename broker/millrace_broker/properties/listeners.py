"""Parses what Kafka's properties say of listeners: where each is, what clients are told of it, how it is secured.

    listeners, advertised.listeners   NAME://HOST:PORT,…   an IPv6 host in brackets; without a host, the broker listens
                                                           on every address of the machine
    listener.security.protocol.map    NAME:PROTOCOL,…      without an entry, the name is that of the protocol
    listener.name.NAME.PROPERTY       the property for this listener alone, in place of PROPERTY
    listener.name.NAME.MECHANISM.PROPERTY   the same for one mechanism of SASL on it

Names are taken in any case and are written in capitals. Two listeners differ in their names and in their ports, except
that one of IPv4 and one of IPv6 may share a port. Errors say what is wrong with a value; the caller names the property
and its place.

`ConnectionLimits` says how many connections a broker takes, and each of its listeners (KIP-402, KIP-612):

max.connections                 open at one time
max.connection.creation.rate    opened per second
listener.name.NAME.PROPERTY     the same of one listener; the broker's limit unless it is set
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from millrace.addresses import FREE_PORT, PLAINTEXT, Address, parse_listen_address
from millrace.config import MAX_INT
from millrace.errors import InvalidConfigError
from millrace.security.protocols import JAAS, SecurityProtocol
from millrace_broker.properties.broker_config import BROKER_CONFIG, BrokerConfig
from millrace_broker.properties.security_config import CLIENT_AUTH, RENEWALS, SASL_CONFIG, TLS_CONFIG

LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<address>.*)")
FORM = f"{PLAINTEXT}://HOST:PORT"
OVERRIDE = re.compile(
    r"listener\.name\.(?P<listener>[^.]+)\."
    r"(?:(?P<mechanism>plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?(?P<property>.+)"
)
SECURING = frozenset((*TLS_CONFIG.keys, *SASL_CONFIG.keys))
"""The properties that secure a listener."""
MAX_CONNECTIONS, CREATION_RATE = "max.connections", "max.connection.creation.rate"
OF_ALL_BROKERS = frozenset((MAX_CONNECTIONS, CREATION_RATE, "num.network.threads"))
"""The properties that a listener may have for itself on all brokers at once; the last one has no effect here."""


class NamedAddress(NamedTuple):
    """One listener's name and address, as text `NAME://HOST:PORT`."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class Override(NamedTuple):
    """The parts of `listener.name.LISTENER.[MECHANISM.]NAME`, a property for one listener; mechanisms in lower case."""

    listener: str
    name: str
    mechanism: str = ""

    @property
    def is_known(self) -> bool:
        """Returns whether this property may be given for one listener, or for one mechanism on it."""
        if self.mechanism:
            return self.name in SASL_CONFIG.keys or self.name in RENEWALS or self.name == JAAS
        return self.name in SECURING | RENEWALS | OF_ALL_BROKERS

    @property
    def secures(self) -> bool:
        """Returns whether the property secures the listener, and so is changed live only for one broker by its id."""
        return bool(self.mechanism) or self.name not in OF_ALL_BROKERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address at which the broker takes connections, with its name and security.

    `advertised` is where clients are told to connect, None for where the broker listens. A listener that clients are
    not told of (`is_told` is false) serves those who know it. `properties` are those that secure it, and include
    secrets.
    """

    name: str
    address: Address
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    advertised: Address | None = None
    is_told: bool = True
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_listeners(text: str) -> tuple[NamedAddress, ...]:
    """Returns the names and addresses in a list of listeners, `NAME://HOST:PORT,…`.

    Raises InvalidConfigError for any other text, and for a name that comes twice.
    """
    found = tuple(_listener(one.strip()) for one in text.split(",") if one.strip())
    if not found:
        raise InvalidConfigError(f"Invalid value, expected {FORM}")
    for name, times in Counter(one.name for one in found).items():
        if times > 1:
            raise InvalidConfigError(f"Invalid value, two listeners have the name {name}")
    return found


def check_ports(listeners: Iterable[NamedAddress]) -> None:
    """Raises InvalidConfigError where two listeners have one port, unless one of them has IPv4 and the other IPv6."""
    taken: set[tuple[int, bool]] = set()
    for _, (host, port) in listeners:
        if (port, ":" in host) in taken:
            raise InvalidConfigError(f"Invalid value, two listeners have the port {port}")
        if port != FREE_PORT:
            taken.add((port, ":" in host))


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Returns the security protocols in `NAME:PROTOCOL,…` by listener name. Raises InvalidConfigError for others."""
    protocols = {}
    for one in text.split(","):
        if not one.strip():
            continue
        name, separator, protocol = (part.strip().upper() for part in one.partition(":"))
        if not separator or not name:
            raise InvalidConfigError("Invalid value, expected NAME:PROTOCOL,…")
        if protocol not in SecurityProtocol.__members__:
            raise InvalidConfigError(f"Invalid value, {protocol} is no security protocol")
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def protocol_of(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """Returns the security protocol of the listener `name`: that in `protocols`, or the one of the same name.

    Raises InvalidConfigError where there is neither.
    """
    protocol = protocols.get(name, SecurityProtocol.__members__.get(name))
    if protocol is None:
        raise InvalidConfigError(f"Invalid value, listener.security.protocol.map has no protocol for listener {name}")
    return protocol


def override(name: str) -> Override | None:
    """Returns the parts of a property's name `listener.name.LISTENER.[MECHANISM.]NAME`; None for any other name."""
    match = OVERRIDE.fullmatch(name)
    return None if match is None else Override(match["listener"].upper(), match["property"], match["mechanism"] or "")


def own_properties(name: str, protocol: SecurityProtocol, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the security properties of the listener `name`: general ones, replaced by those for it alone.

    On a SASL_SSL listener `ssl.client.auth` counts only where it is given for this listener, as in Kafka (KIP-684).
    """
    own = {key: value for key, value in properties.items() if key in SECURING}
    if protocol is SecurityProtocol.SASL_SSL:
        own.pop(CLIENT_AUTH, None)
    for key, value in properties.items():
        found = override(key)
        if found is not None and found.listener == name and found.secures:
            own[f"{found.mechanism}.{found.name}" if found.mechanism else found.name] = value
    return own


def _listener(text: str) -> NamedAddress:
    match = LISTENER.fullmatch(text)
    if match is not None:
        try:
            return NamedAddress(match["name"].upper(), parse_listen_address(match["address"]))
        except InvalidConfigError:
            pass
    raise InvalidConfigError(f"Invalid value, expected {FORM}")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The broker's limits of connections, and those that listeners have for themselves, by (listener, property)."""

    broker: BrokerConfig
    own: Mapping[tuple[str, str], int]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ConnectionLimits:
        """Returns the limits that a broker's properties give. Raises InvalidConfigError for a bad value."""
        own = {
            (one.listener, one.name): cast("int", BROKER_CONFIG.keys[one.name].parse(text))
            for name, text in properties.items()
            if (one := override(name)) is not None and not one.secures and one.name in BROKER_CONFIG.keys
        }
        return cls(BrokerConfig.from_properties(properties), own)

    def open(self, listener: str) -> int:
        """Returns how many connections of a listener may be open at the same time."""
        return self.own.get((listener, MAX_CONNECTIONS), self.broker.max_connections)

    def per_second(self, listener: str) -> float | None:
        """Returns how many connections of a listener may be opened per second; None where that is not limited."""
        rate = self.own.get((listener, CREATION_RATE), self.broker.max_connection_creation_rate)
        return None if rate == MAX_INT else rate
