"""Configurations of topics, brokers and groups, described and changed (KIP-133, KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, asking_for
from millrace.wire.messages import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

if TYPE_CHECKING:
    from millrace.wire.messages.describe_configs import DescribeConfigsResult

SOURCES = {
    1: "topic",
    2: "broker, live",
    3: "all brokers, live",
    4: "broker, at its start",
    5: "default",
    6: "logger",
    8: "group",
}
SET, DELETE = 0, 1
Result = TypeVar("Result")


class ResourceKind(IntEnum):
    """The kinds of resource that have a configuration; BROKER with an empty name means the default of all brokers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a configuration; a secret's value is None."""

    name: str
    value: str | None
    source: str
    is_read_only: bool


class Configs:
    """Reads and changes the configurations of a cluster's topics, brokers, loggers and groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, kind: ResourceKind, name: str) -> list[Property]:
        """Returns all properties of a resource; raises UnknownTopicError or BrokerError."""
        return self._describe(kind, [name], None)[name]

    def describe_topics(
        self, names: Sequence[str], properties: Sequence[str] | None = None
    ) -> dict[str, dict[str, Property]]:
        """Returns these properties of each topic, or all, by one request; raises UnknownTopicError or BrokerError."""
        found = self._describe(ResourceKind.TOPIC, names, properties) if names else {}
        return {topic: {one.name: one for one in described} for topic, described in found.items()}

    def _describe(
        self, kind: ResourceKind, names: Sequence[str], properties: Sequence[str] | None
    ) -> dict[str, list[Property]]:
        ask = DESCRIBE_CONFIGS.ask(
            {
                "resources": [
                    {"resource_type": kind, "resource_name": name, "configuration_keys": properties} for name in names
                ],
                "include_synonyms": False,
                "include_documentation": False,
            }
        )

        def action(connection: Connection) -> dict[str, list[Property]]:
            results = connection.request(*ask).results
            for one in results:
                check(one.error_code, _subject(kind, one.resource_name), one.error_message)
            return {one.resource_name: _properties(one) for one in results}

        return self._run(kind, names[0], action)

    def change(
        self,
        kind: ResourceKind,
        name: str,
        values: Mapping[str, str],
        unset: Iterable[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets properties, and resets those in `unset`; raises InvalidConfigError, UnknownTopicError or BrokerError.

        With `validate_only` the cluster only checks whether it would change them.
        """
        changes = [*((key, SET, value) for key, value in values.items()), *((key, DELETE, None) for key in unset)]
        ask = INCREMENTAL_ALTER_CONFIGS.ask(
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": name,
                        "configs": [{"name": key, "config_operation": how, "value": to} for key, how, to in changes],
                    }
                ],
                "validate_only": validate_only,
            }
        )
        self._run(kind, name, asking_for(ask, lambda answer: answer.responses[0], _subject(kind, name)))

    def _run(self, kind: ResourceKind, name: str, action: Callable[[Connection], Result]) -> Result:
        """Runs `action` on broker `name`, if that one's configuration or loggers are meant; else on the controller."""
        if kind is ResourceKind.BROKER_LOGGER or (kind is ResourceKind.BROKER and name):
            return action(self._cluster.broker_connection(name))
        return self._cluster.on_controller(action)


def _properties(described: DescribeConfigsResult) -> list[Property]:
    found = (
        Property(one.name, one.value, SOURCES.get(one.config_source, "unknown"), one.read_only)
        for one in described.configs
    )
    return sorted(found, key=lambda one: one.name)


def _subject(kind: ResourceKind, name: str) -> str:
    return f"{kind.name.lower().replace('_', ' ')} {name}" if name else "all brokers"
