"""The command line of the broker (spec J), and the properties that say the same in a file.

    argument                    property
    --listen HOST:PORT          listeners=PLAINTEXT://HOST:PORT
    --data DIR (repeatable)     log.dirs=DIR,DIR
    --zookeeper HOST:PORT/…     zookeeper.connect
    --standalone                -
    --id N                      broker.id
    --admin HOST:PORT           -

An argument wins over the file, `--set` too. Every other property goes to the broker's or the log's table.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.config import MAX_INT, MAX_PORT, parse_assignments, read_properties, whole_number
from millrace.errors import InvalidConfigError
from millrace_broker.config import BROKER_CONFIG, BrokerConfig
from millrace_broker.group_config import CONSUMER_GROUP_CONFIG, GROUP_CONFIG, ConsumerGroupConfig, GroupConfig
from millrace_broker.storage.config import BROKER_CONFIG as LOG_CONFIG
from millrace_broker.storage.config import LogConfig
from millrace_broker.txn_config import TRANSACTION_CONFIG, TransactionConfig

logger = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_ADMIN = "127.0.0.1:0"
LISTENER_SCHEME = "PLAINTEXT://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT`, IPv6 hosts in brackets; InvalidConfigError else."""
        host, separator, port = text.removeprefix(LISTENER_SCHEME).rpartition(":")
        number = whole_number(port, MAX_PORT)
        if not separator or number is None:
            raise InvalidConfigError(f"{text!r}: expected HOST:PORT")
        return cls(host=host.strip("[]") or "0.0.0.0", port=number)  # noqa: S104  # an empty host means all, as in Kafka

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """All that a broker is told at its start."""

    listen: Address
    admin: Address
    data_dirs: tuple[str, ...]
    zookeeper: str | None
    broker_id: int
    broker: BrokerConfig
    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    transactions: TransactionConfig
    log_defaults: Mapping[str, str]
    properties: Mapping[str, str]


def argument_parser() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(prog="millrace broker", description="Store logs and speak the Kafka protocol.")
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"default {DEFAULT_LISTEN}; port 0: a free one")
    parser.add_argument("--data", metavar="DIR", action="append", help="where logs lie; may be given several times")
    coordination = parser.add_mutually_exclusive_group()
    coordination.add_argument("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="the cluster's ZooKeeper")
    coordination.add_argument("--standalone", action="store_true", help="one broker, no ZooKeeper, no JVM")
    parser.add_argument("--id", metavar="N", type=int, help="this broker's id, default 1")
    parser.add_argument("--config", metavar="FILE", type=Path, help="properties, by Kafka's names")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="one property")
    parser.add_argument("--admin", metavar="HOST:PORT", default=DEFAULT_ADMIN, help="health, metrics, maintenance")
    return parser


def parse_options(arguments: Sequence[str]) -> BrokerOptions:
    """Everything checked; InvalidConfigError names what is wrong. Usage errors exit as argparse does."""
    parsed = argument_parser().parse_args(arguments)
    file = read_properties(parsed.config) if parsed.config else {}
    given = parse_assignments(parsed.set)
    properties = _known(file, given)
    zookeeper = parsed.zookeeper or properties.pop("zookeeper.connect", "")
    if not zookeeper and not parsed.standalone:
        raise InvalidConfigError("give --zookeeper HOST:PORT, or --standalone for one broker without ZooKeeper")
    data_dirs = [one for one in parsed.data or properties.pop("log.dirs", "").split(",") if one]
    if not data_dirs:
        raise InvalidConfigError("give --data DIR, the folder for logs")
    listen = Address.parse(parsed.listen or properties.get("listeners", DEFAULT_LISTEN))
    broker_id = parsed.id if parsed.id is not None else _broker_id(properties.get("broker.id", "1"))
    directories = tuple(str(Path(one).absolute()) for one in data_dirs)
    properties |= {
        "listeners": f"{LISTENER_SCHEME}{listen}",
        "broker.id": str(broker_id),
        "log.dirs": ",".join(directories),
        **({"zookeeper.connect": zookeeper} if zookeeper and not parsed.standalone else {}),
    }
    log_defaults = {name: value for name, value in properties.items() if name in LOG_CONFIG.keys}
    LogConfig.from_properties(log_defaults, {})
    return BrokerOptions(
        listen=listen,
        admin=Address.parse(parsed.admin),
        data_dirs=directories,
        zookeeper=None if parsed.standalone else zookeeper,
        broker_id=broker_id,
        broker=BrokerConfig.from_properties({n: v for n, v in properties.items() if n in BROKER_CONFIG.keys}),
        groups=GroupConfig.from_properties({n: v for n, v in properties.items() if n in GROUP_CONFIG.keys}),
        consumer_groups=ConsumerGroupConfig.from_properties(
            {n: v for n, v in properties.items() if n in CONSUMER_GROUP_CONFIG.keys}
        ),
        transactions=TransactionConfig.from_properties(
            {n: v for n, v in properties.items() if n in TRANSACTION_CONFIG.keys}
        ),
        log_defaults=log_defaults,
        properties=properties,
    )


def _known(file: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    known = {
        *BROKER_CONFIG.keys,
        *GROUP_CONFIG.keys,
        *CONSUMER_GROUP_CONFIG.keys,
        *TRANSACTION_CONFIG.keys,
        *LOG_CONFIG.keys,
    }
    for name in given:
        if name not in known:
            raise InvalidConfigError(f"unknown property {name}")
    for name in file:
        if name not in known:
            logger.warning("property %s of the file has no meaning here and is passed over", name)
    return {name: value for name, value in {**file, **given}.items() if name in known}


def _broker_id(text: str) -> int:
    number = whole_number(text, MAX_INT)
    if number is None:
        raise InvalidConfigError(f"broker.id={text}: not a number from 0 to {MAX_INT}")
    return number
