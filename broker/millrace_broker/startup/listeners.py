"""The broker's listeners, from the properties that the operator gives; every error begins with the property's place.

Each listener of `listeners` has a security protocol, and clients are told where `advertised.listeners` says that they
reach it; a listener that is not among those is told to nobody. Without `advertised.listeners` clients are told where
the broker listens, which can't be every address of the machine.

Brokers reach each other by the listener that `inter.broker.listener.name` names, else by the one that has the name, or
at least the protocol, of `security.inter.broker.protocol`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from millrace.addresses import PLAINTEXT, Address
from millrace.errors import InvalidConfigError
from millrace.security.client_security import ClientSecurity
from millrace.security.protocols import JAAS, MECHANISM, SecurityProtocol
from millrace_broker.properties.listeners import (
    Listener,
    NamedAddress,
    Override,
    check_ports,
    override,
    own_properties,
    parse_listeners,
    parse_protocols,
    protocol_of,
)
from millrace_broker.properties.security_config import LOGIN, SASL_CONFIG, TLS_CONFIG
from millrace_broker.security.authentication.listener_security import ListenerSecurity, listener_security
from millrace_broker.startup.given import Given, value_of

DEFAULT_LISTEN = "127.0.0.1:9092"
LISTENERS, ADVERTISED, PROTOCOL_MAP = "listeners", "advertised.listeners", "listener.security.protocol.map"
INTER_BROKER_NAME, INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
INTER_BROKER_MECHANISM, MECHANISMS = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
OF_SERVERS = ("ssl.client.auth", "ssl.principal.mapping.rules")
OF_LISTENERS = {**TLS_CONFIG.keys, **SASL_CONFIG.keys}
RESTRICTING = ("ssl.client.auth", MECHANISMS, "connections.max.reauth.ms")
DEFAULTS = {
    LISTENERS: f"{PLAINTEXT}://{DEFAULT_LISTEN}",
    INTER_BROKER_PROTOCOL: PLAINTEXT,
    INTER_BROKER_MECHANISM: "GSSAPI",
}


def read_listeners(given: Mapping[str, Given]) -> tuple[Listener, ...]:
    """Returns the broker's listeners in the order of `listeners`. Raises InvalidConfigError for wrong properties."""
    with _blamed(PROTOCOL_MAP, given) as text:
        protocols = parse_protocols(text)
    with _blamed(LISTENERS, given) as text:
        named = parse_listeners(text)
        check_ports(named)
        secured = {name: protocol_of(name, protocols) for name, _ in named}
    _check_overrides(given, secured)
    _check_used(given, secured.values())
    told = _told(given, named)
    properties = {name: one.value for name, one in given.items()}
    listeners = tuple(
        Listener(
            name=name,
            address=address,
            protocol=secured[name],
            advertised=told.get(name),
            is_told=name in told,
            properties=own_properties(name, secured[name], properties),
        )
        for name, address in named
    )
    for one in listeners:
        if one.protocol.uses_tls:
            _check_certificates(one, given)
    return listeners


def authentications(given: Mapping[str, Given], listeners: Sequence[Listener]) -> dict[str, ListenerSecurity]:
    """Returns, by listener name, how clients authenticate by SASL. Raises InvalidConfigError for wrong properties."""
    found = {}
    for one in listeners:
        if one.protocol.uses_sasl:
            try:
                found[one.name] = listener_security(one.name, one.properties)
            except InvalidConfigError as error:
                place = _place_of(str(error), one, given) or _place_of(MECHANISMS, one, given)
                raise InvalidConfigError(f"{place}{error}") from None
    return found


def inter_broker_listener(given: Mapping[str, Given], listeners: Sequence[Listener], *, is_alone: bool) -> Listener:
    """Returns the listener by which brokers reach each other. Raises InvalidConfigError where there is none.

    A standalone broker (`is_alone`) has no others: its first listener is returned unless one is named.
    """
    told = {one.name: one for one in listeners if one.is_told}
    name = value_of(INTER_BROKER_NAME, given).upper()
    if not name and is_alone and INTER_BROKER_PROTOCOL not in given:
        return listeners[0]
    with _blamed(INTER_BROKER_NAME if name else INTER_BROKER_PROTOCOL, given) as text:
        if name and INTER_BROKER_PROTOCOL in given:
            raise InvalidConfigError(f"Invalid value, {INTER_BROKER_PROTOCOL} is given, too; leave one of them out")
        found = told.get(name) if name else _of_protocol(text.strip().upper(), told)
        if found is None:
            raise InvalidConfigError(
                f"Invalid value, no listener that clients are told has this {'name' if name else 'protocol'}, and "
                f"brokers reach each other by it; add one to {LISTENERS}, or give the name of another one as "
                f"{INTER_BROKER_NAME}"
            )
    return found


def inter_broker_security(given: Mapping[str, Given], listener: Listener) -> ClientSecurity:
    """Returns how this broker connects to others by the inter-broker listener. Raises InvalidConfigError.

    It shows the certificate of its own listener, and logs in as `sasl.jaas.config` of that listener's mechanism says.
    For OAUTHBEARER, the properties in `LOGIN` say where it gets its token.
    """
    properties = {"security.protocol": listener.protocol.name}
    if listener.protocol.uses_tls:
        own = listener.properties
        properties |= {name: own[name] for name in own if name in TLS_CONFIG.keys and name not in OF_SERVERS}
    if listener.protocol.uses_sasl:
        properties |= _login(given, listener)
    try:
        return ClientSecurity.from_properties(properties)
    except InvalidConfigError as error:
        said = str(error).replace(f"{MECHANISM}: ", f"{INTER_BROKER_MECHANISM}: ")
        place = _place_of(said, listener, given, properties.get(MECHANISM, ""))
        raise InvalidConfigError(
            f"{place}listener {listener.name}, by which brokers reach each other: {said}"
        ) from None


def _login(given: Mapping[str, Given], listener: Listener) -> dict[str, str]:
    """Returns the properties to log in with; the mechanism's replace the listener's. Raises InvalidConfigError."""
    own = listener.properties
    with _blamed(INTER_BROKER_MECHANISM, given) as text:
        mechanism = text.strip()
        jaas = f"{mechanism.lower()}.{JAAS}"
        if jaas not in own:
            raise InvalidConfigError(
                f"Invalid value, listener.name.{listener.name.lower()}.{jaas} is missing, by which this broker "
                "logs in to others"
            )
    found = {name: own.get(f"{mechanism.lower()}.{name}", own.get(name, "")) for name in LOGIN}
    return {MECHANISM: mechanism, JAAS: own[jaas], **{name: value for name, value in found.items() if value.strip()}}


def _of_protocol(protocol: str, listeners: Mapping[str, Listener]) -> Listener | None:
    of_protocol = (one for one in listeners.values() if one.protocol.name == protocol)
    return listeners.get(protocol) or next(of_protocol, None)


def _told(given: Mapping[str, Given], named: Sequence[NamedAddress]) -> dict[str, Address | None]:
    """Returns each advertised listener's address, None for the bound one. Raises InvalidConfigError for a bad one."""
    if not value_of(ADVERTISED, given):
        with _blamed(LISTENERS, given):
            for name, address in named:
                _check_can_be_told(name, address)
        return dict.fromkeys(name for name, _ in named)
    names = {name for name, _ in named}
    with _blamed(ADVERTISED, given) as text:
        advertised = parse_listeners(text)
        for name, address in advertised:
            if name not in names:
                raise InvalidConfigError(f"Invalid value, {LISTENERS} has no listener {name}")
            if address.is_every_address or not address.port:
                raise InvalidConfigError("Invalid value, no client can connect to it; give a host and a port")
    return dict(advertised)


def _check_can_be_told(name: str, address: Address) -> None:
    if address.is_every_address:
        raise InvalidConfigError(
            "Invalid value, the broker listens on every address and can't tell clients which to use; "
            f"give {ADVERTISED}={name}://HOST:PORT, where clients reach this broker"
        )


def _check_overrides(given: Mapping[str, Given], names: Mapping[str, SecurityProtocol]) -> None:
    for name, (_, place) in given.items():
        found = override(name)
        if found is None:
            continue
        protocol = names.get(found.listener)
        if protocol is None:
            raise InvalidConfigError(f"{place}{name}: Invalid value, {LISTENERS} has no listener {found.listener}")
        if found.secures and not _can_obey(found.name, protocol):
            raise InvalidConfigError(
                f"{place}{name}: Invalid value, listener {found.listener} has the protocol {protocol.name}"
            )


def _check_used(given: Mapping[str, Given], protocols: Collection[SecurityProtocol]) -> None:
    """Raises InvalidConfigError for a property of TLS or SASL that restricts access where no listener uses that."""
    for name in RESTRICTING:
        value, place = given.get(name, Given(""))
        key = OF_LISTENERS[name]
        if not value.strip() or key.parse(value) == key.default or any(_can_obey(name, one) for one in protocols):
            continue
        raise InvalidConfigError(
            f"{place}{name}={value}: Invalid value, no listener has {'TLS' if name in TLS_CONFIG.keys else 'SASL'}, "
            "so everyone who reaches the broker would be served"
        )


def _can_obey(name: str, protocol: SecurityProtocol) -> bool:
    return protocol.uses_tls if name in TLS_CONFIG.keys else protocol.uses_sasl


def _check_certificates(listener: Listener, given: Mapping[str, Given]) -> None:
    """Raises InvalidConfigError where a listener's certificates or mapping rules can't be used."""
    # A broker without TLS is spared the time and memory of what reads certificates.
    from millrace.security.tls import server_context  # noqa: PLC0415
    from millrace_broker.security import certificate_names  # noqa: PLC0415

    try:
        server_context(listener.properties)
        certificate_names.parse_rules(listener.properties.get(certificate_names.PROPERTY, "DEFAULT"))
    except InvalidConfigError as error:
        place = _place_of(str(error), listener, given)
        raise InvalidConfigError(f"{place}listener {listener.name}: {error}") from None


def _place_of(said: str, listener: Listener, given: Mapping[str, Given], mechanism: str = "") -> str:
    """Returns where (`FILE:LINE: `) the property is given whose name begins the error `said`; "" if it is not."""
    name = re.split("[=:]", said)[0]
    wanted = override(name) or Override(listener.name, name, mechanism.lower())
    own = (key for one in (wanted, wanted._replace(mechanism="")) for key in given if override(key) == one)
    return next((given[key].place for key in (*own, name) if key in given), "")


@contextmanager
def _blamed(name: str, given: Mapping[str, Given]) -> Iterator[str]:
    """Yields a property's value; an InvalidConfigError meanwhile is raised again with the property and its place."""
    value, place = given.get(name, Given(DEFAULTS.get(name, "")))
    try:
        yield value
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{place}{name}={value}: {error}") from None
