"""Reads and checks the properties that the operator gives, in a file and by `--set`.

`--set` overrides the file. `zk.connect` means `zookeeper.connect`, and `node.id` means `broker.id`. Every error names
the place, the property and its value, unless that is a secret: `FILE:LINE: NAME=VALUE: reason`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace.config import parse_assignments, read_properties
from millrace.errors import InvalidConfigError
from millrace.suggestions import nearest
from millrace_broker.cluster.config_sources import BROKER_KEYS, broker_key, known_key
from millrace_broker.properties.restrictions import RESTRICTIONS, check_unrestricted, restriction, restricts

logger = logging.getLogger(__name__)

OTHER_NAMES = {"zk.connect": "zookeeper.connect", "node.id": "broker.id"}
NEW_FORM = "PLAINTEXT://HOST:PORT takes its place since Kafka 3.0"
# Properties that ask for what is not served, and without which their configuration would be half obeyed.
UNSERVED = {
    "process.roles": "this file is of a KRaft node, and this broker is coordinated by ZooKeeper; remove process.roles, "
    "controller.* and the controller's listener, and give zookeeper.connect, or --standalone for one broker by itself",
    "zookeeper.metadata.migration.enable": "there is no KRaft controller to migrate to",
    "remote.log.storage.system.enable": "there is no tiered storage",
    **dict.fromkeys(("port", "host.name"), f"listeners={NEW_FORM}"),
    **dict.fromkeys(("advertised.port", "advertised.host.name"), f"advertised.listeners={NEW_FORM}"),
}
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


class Given(NamedTuple):
    """A property's value, and where it is given, as errors begin: `FILE:LINE: `, "" for `--set`."""

    value: str
    place: str = ""


def read_given(file: Path | None, assignments: Iterable[str]) -> dict[str, Given]:
    """Returns the known properties of a file and of NAME=VALUE texts, by name. Raises InvalidConfigError for errors."""
    typed = {name: Given(value) for name, value in parse_assignments(assignments).items()}
    written = {} if file is None else {
        name: Given(one.value, f"{file}:{one.line}: ") for name, one in read_properties(file).items()
    }  # fmt: skip
    for name, (value, place) in (*written.items(), *typed.items()):
        _check_served(name, value, place)
    known = {**_by_kafkas_names(written), **_by_kafkas_names(typed)}
    for name, (value, place) in tuple(known.items()):
        if broker_key(name) is None:
            if restriction(name) is None:
                _ignore(name, place)
            del known[name]
        else:
            _check_value(name, value, place)
    return known


def value_of(name: str, given: Mapping[str, Given]) -> str:
    """Returns a property's value without blanks around it; "" where it is not given."""
    return given.get(name, Given("")).value.strip()


def broker_id_of(given: Mapping[str, Given]) -> int | None:
    """Returns `broker.id`, None where it is missing or -1. Raises InvalidConfigError where Kafka would refuse it."""
    value, place = given.get("broker.id", Given("-1"))
    number = int(value)
    generates = given.get("broker.id.generation.enable", Given("true")).value.strip().lower() == "true"
    highest = int(given.get("reserved.broker.max.id", Given("1000")).value)
    if number == -1 and not generates:
        place = given["broker.id.generation.enable"].place
        raise InvalidConfigError(f"{place}broker.id.generation.enable=false: Invalid value, no broker.id is given")
    if number > highest and generates:
        raise InvalidConfigError(
            f"{place}broker.id={value}: Invalid value, ids above reserved.broker.max.id={highest} are kept for brokers "
            "that are given theirs; take a lower one, or raise that limit"
        )
    return None if number == -1 else number


def _check_served(name: str, value: str, place: str) -> None:
    asks = value.strip().lower() not in ("", "false")
    try:
        check_unrestricted(name, value)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{place}{error}") from None
    if name in UNSERVED and asks:
        raise InvalidConfigError(f"{place}{name}={value}: Invalid value, {UNSERVED[name]}")


def _by_kafkas_names(given: Mapping[str, Given]) -> dict[str, Given]:
    named: dict[str, Given] = {}
    for name, one in given.items():
        kafkas = OTHER_NAMES.get(name, name)
        other = given.get(kafkas)
        if kafkas != name and other is not None and other.value.strip() != one.value.strip():
            raise InvalidConfigError(
                f"{one.place}{name}={one.value}: Invalid value, {kafkas} is given as {other.value} and means the same"
            )
        named[kafkas] = one
    return named


def _check_value(name: str, value: str, place: str) -> None:
    try:
        known_key(name).parse(value)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{place}{error}") from None


def check_single_replicas(given: Mapping[str, Given]) -> None:
    """Raises InvalidConfigError where a replication factor is above 1, as a standalone broker has no others."""
    for name in REPLICATION_FACTORS:
        value, place = given.get(name, Given("1"))
        if int(value) > 1:
            raise InvalidConfigError(
                f"{place}{name}={value}: Invalid value, a standalone broker has one replica of a partition; "
                "set 1 or remove this"
            )


def _ignore(name: str, place: str) -> None:
    """Warns that a property is ignored, as in Kafka, because neither Kafka nor Millrace knows its name.

    Raises InvalidConfigError instead where it was given by `--set`, or may be a misspelt property that restricts
    access.
    """
    near = nearest(name, [*BROKER_KEYS, *RESTRICTIONS])
    hint = f"; did you mean {near}?" if near else ""
    if not place or restricts(name) or (near and restricts(near)):
        raise InvalidConfigError(f"{place}unknown property {name}{hint}")
    logger.warning("%sunknown property %s is ignored%s", place, name, hint)
