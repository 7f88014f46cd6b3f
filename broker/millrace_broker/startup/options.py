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
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace import __version__, kernel
from millrace.addresses import PLAINTEXT, Address, parse_listen_address
from millrace.errors import InvalidConfigError
from millrace.security.client_security import ClientSecurity
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.coordinator_config import (
    ConsumerGroupConfig,
    GroupConfig,
    TransactionConfig,
)
from millrace_broker.properties.listeners import Listener, NamedAddress
from millrace_broker.properties.security_config import TLS_CONFIG
from millrace_broker.security.authentication.listener_security import ListenerSecurity
from millrace_broker.startup.console import ConsoleOptions, console_options
from millrace_broker.startup.given import Given, broker_id_of, check_single_replicas, read_given, value_of
from millrace_broker.startup.listeners import (
    DEFAULT_LISTEN,
    LISTENERS,
    authentications,
    inter_broker_listener,
    inter_broker_security,
    read_listeners,
)
from millrace_broker.storage.config import BROKER_CONFIG as LOG_CONFIG
from millrace_broker.storage.config import BROKER_SYNONYMS, LogConfig
from millrace_broker.storage.retention import check_policies

DEFAULT_ADMIN = "127.0.0.1:0"
ADMIN_PROTOCOL = "admin.security.protocol"
CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,249}")


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
        raise InvalidConfigError(
            "give --zookeeper HOST:PORT or zookeeper.connect, or --standalone for one broker without ZooKeeper"
        )
    if parsed.standalone:
        check_single_replicas(given)
    directories = _data_dirs(parsed.data, given)
    if parsed.listen is not None:
        name, _, address = parsed.listen.rpartition("://")
        given[LISTENERS] = Given(f"{name or PLAINTEXT}://{parse_listen_address(address)}")
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
            admin=parse_listen_address(parsed.admin),
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
        raise InvalidConfigError("give --data DIR or log.dirs, the folder for logs")
    return directories


def _cluster_id(text: str | None) -> str | None:
    if text is not None and not CLUSTER_ID.fullmatch(text):
        raise InvalidConfigError(
            f"--cluster-id={text}: Invalid value, an id is what cluster.id of meta.properties says: letters, digits, "
            "'-' and '_', 22 as a rule"
        )
    return text
