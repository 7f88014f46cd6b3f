"""Parses the command line of the broker, and the properties that mean the same in a file.

    argument                    property
    --listen HOST:PORT          listeners=PLAINTEXT://HOST:PORT, in place of all of them; or NAME://HOST:PORT
    --data DIR (repeatable)     log.dirs=DIR,DIR, else log.dir
    --zookeeper HOST:PORT/…     zookeeper.connect
    --standalone                -
    --id N                      broker.id
    --cluster-id ID             -
    --admin HOST:PORT           -

Arguments override the file, and so does `--set`. Every other property is parsed by the table that declares it.

Each listener of `listeners` has a security protocol, and clients are told where `advertised.listeners` says that they
reach it; a listener that is not among those is told to nobody. Without `advertised.listeners` clients are told where
the broker listens, which can't be every address of the machine. An error about a listener begins with the place of the
property.

Brokers reach each other by the listener that `inter.broker.listener.name` names, else by the one that has the name, or
at least the protocol, of `security.inter.broker.protocol`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace import __version__, kernel
from millrace.addresses import PLAINTEXT, Address, parse_listen_address
from millrace.errors import InvalidConfigError, MalformedValueError
from millrace.security.client_security import ClientSecurity
from millrace.security.protocols import JAAS, MECHANISM, SecurityProtocol
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.coordinator_config import (
    ConsumerGroupConfig,
    GroupConfig,
    TransactionConfig,
)
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
from millrace_broker.startup.console import ConsoleOptions, console_options
from millrace_broker.startup.given import Given, broker_id_of, check_single_replicas, read_given, value_of
from millrace_broker.storage.config import BROKER_CONFIG as LOG_CONFIG
from millrace_broker.storage.config import BROKER_SYNONYMS, LogConfig
from millrace_broker.storage.retention import check_policies

DEFAULT_ADMIN = "127.0.0.1:0"
ADMIN_PROTOCOL = "admin.security.protocol"
CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,249}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of a broker at its start, checked.

    `inter_broker_listener` is the name of the listener by which brokers reach each other, `inter_broker_security` is
    how this broker reaches the others. `authentications` say, by listener name, how clients authenticate by SASL.
    `broker_id` is None where the data directories or the cluster have it; an error about it begins with
    `broker_id_place`. `cluster_id` is for the cluster that the broker makes where there is none, None for a new id.
    """

    listeners: tuple[Listener, ...]
    inter_broker_listener: str
    inter_broker_security: ClientSecurity
    authentications: Mapping[str, ListenerSecurity]
    admin: Address
    console: ConsoleOptions | None
    data_dirs: tuple[str, ...]
    zookeeper: str | None
    broker_id: int | None
    broker_id_place: str
    cluster_id: str | None
    broker: BrokerConfig
    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    transactions: TransactionConfig
    log_defaults: Mapping[str, str]
    properties: Mapping[str, str] = field(repr=False)

    @property
    def listen(self) -> Address:
        """Returns the address of the first listener."""
        return self.listeners[0].address

    @property
    def spared_listener(self) -> str | None:
        """Returns the name of the listener of other brokers, which the broker-wide limits of connections spare.

        None where there are no other brokers, or where clients use the same listener.
        """
        return self.inter_broker_listener if self.zookeeper is not None and len(self.listeners) > 1 else None

    @property
    def admin_tls(self) -> Mapping[str, str] | None:
        """Returns the TLS properties of the admin endpoint, with secrets; None where it uses no TLS."""
        return TLS_CONFIG.known(self.properties) if self.broker.admin_security_protocol == "SSL" else None


def argument_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line of `millrace broker`."""
    parser = argparse.ArgumentParser(prog="millrace broker", description="Store logs and speak the Kafka protocol.")
    version = f"millrace {__version__} (record kernel: {kernel.description})"
    parser.add_argument("-V", "--version", action="version", version=version, help="show the version and exit")
    parser.add_argument("--listen", metavar="[NAME://]HOST:PORT", help=f"default {DEFAULT_LISTEN}; port 0: a free one")
    parser.add_argument("--data", metavar="DIR", action="append", help="where logs lie; may be given several times")
    coordination = parser.add_mutually_exclusive_group()
    coordination.add_argument("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="the cluster's ZooKeeper")
    coordination.add_argument("--standalone", action="store_true", help="one broker, no ZooKeeper, no JVM")
    parser.add_argument("--id", metavar="N", type=int, help="this broker's id, default that of its folders")
    parser.add_argument("--cluster-id", metavar="ID", help="makes the cluster of this id where ZooKeeper has none yet")
    parser.add_argument("--config", metavar="FILE", type=Path, help="properties, by Kafka's names")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="one property")
    parser.add_argument("--admin", metavar="HOST:PORT", default=DEFAULT_ADMIN, help="health, metrics, maintenance")
    return parser


def parse_options(arguments: Sequence[str]) -> BrokerOptions:
    """Returns the checked options that the command line and its properties file give.

    Raises InvalidConfigError, which says what is wrong; for a wrong command line the process exits, as by argparse.
    """
    parsed = argument_parser().parse_args(arguments)
    given = read_given(parsed.config, [*parsed.set, *([] if parsed.id is None else [f"broker.id={parsed.id}"])])
    zookeeper = None if parsed.standalone else parsed.zookeeper or value_of("zookeeper.connect", given)
    if not zookeeper and not parsed.standalone:
        raise MalformedValueError(
            "give --zookeeper HOST:PORT or zookeeper.connect, or --standalone for one broker without ZooKeeper"
        )
    if parsed.standalone:
        check_single_replicas(given)
    directories = _data_dirs(parsed.data, given)
    if parsed.listen is not None:
        name, _, address = parsed.listen.rpartition("://")
        given[LISTENERS] = Given(f"{name or PLAINTEXT}://{parse_listen_address(address)}")
    admin = parse_listen_address(parsed.admin)
    listeners = read_listeners(given)
    properties = {name: one.value for name, one in given.items() if name not in ("zookeeper.connect", "log.dir")}
    properties |= {
        LISTENERS: ",".join(str(NamedAddress(one.name, one.address)) for one in listeners),
        "log.dirs": ",".join(directories),
        **({"zookeeper.connect": zookeeper} if zookeeper else {}),
    }
    log_defaults = LOG_CONFIG.known(properties)
    try:
        defaults = LogConfig.from_properties(log_defaults, {})
        defaults.check()
        check_policies(defaults)
        _check_admin(properties)
        between = inter_broker_listener(given, listeners, is_alone=zookeeper is None)
        broker = BrokerConfig.from_properties(properties)
        return BrokerOptions(
            listeners=listeners,
            inter_broker_listener=between.name,
            inter_broker_security=(
                ClientSecurity.PLAINTEXT if zookeeper is None else inter_broker_security(given, between)
            ),
            authentications=authentications(given, listeners),
            admin=admin,
            console=console_options(broker, listeners),
            data_dirs=directories,
            zookeeper=zookeeper,
            broker_id=broker_id_of(given),
            broker_id_place=given.get("broker.id", Given("")).place,
            cluster_id=_cluster_id(parsed.cluster_id),
            broker=broker,
            groups=GroupConfig.from_properties(properties),
            consumer_groups=ConsumerGroupConfig.from_properties(properties),
            transactions=TransactionConfig.from_properties(properties),
            log_defaults=log_defaults,
            properties=properties,
        )
    except InvalidConfigError as error:  # of two properties that don't go together
        name = re.split("[= ]", str(error), maxsplit=1)[0]
        names = (name, *(one.name for one in BROKER_SYNONYMS.get(name, ())))
        place = next((given[one].place for one in names if one in given), "")
        raise InvalidConfigError(f"{place}{error}") from None


def _check_admin(properties: Mapping[str, str]) -> None:
    """Raises InvalidConfigError where the admin endpoint uses TLS, and its certificate or settings can't be used."""
    if properties.get(ADMIN_PROTOCOL, "").strip() != "SSL":
        return
    # A broker without TLS is spared the time and memory of what reads certificates.
    from millrace.security.tls import server_context  # noqa: PLC0415

    try:
        server_context(TLS_CONFIG.known(properties))
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{ADMIN_PROTOCOL}=SSL: {error}") from None


def _data_dirs(arguments: Sequence[str] | None, given: Mapping[str, Given]) -> tuple[str, ...]:
    named = arguments or (value_of("log.dirs", given) or value_of("log.dir", given)).split(",")
    directories = tuple(str(Path(one.strip()).absolute()) for one in named if one.strip())
    if not directories:
        raise MalformedValueError("give --data DIR or log.dirs, the folder for logs")
    return directories


def _cluster_id(text: str | None) -> str | None:
    if text is not None and not CLUSTER_ID.fullmatch(text):
        raise InvalidConfigError(
            f"--cluster-id={text}: Invalid value, an id is what cluster.id of meta.properties says: letters, digits, "
            "'-' and '_', 22 as a rule"
        )
    return text


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
