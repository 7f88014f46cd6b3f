"""Configurations of topics, brokers and groups, described and changed (KIP-133, KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.wire.messages import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

if TYPE_CHECKING:
    from millrace.wire.messages.describe_configs import DescribeConfigsRequestFields
    from millrace.wire.messages.incremental_alter_configs import (
        AlterableConfigFields,
        IncrementalAlterConfigsRequestFields,
    )

SOURCES = {1: "topic", 2: "broker, live", 3: "all brokers, live", 4: "broker, at its start", 5: "default", 8: "group"}
SET, DELETE = 0, 1


class ResourceKind(IntEnum):
    """What has a configuration; the empty broker name means all brokers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Property:
    """One property; the value of a secret is None."""

    name: str
    value: str | None
    source: str
    is_read_only: bool


class Configs:
    """The configurations of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, kind: ResourceKind, name: str) -> list[Property]:
        """Returns every property by name; UnknownTopicError, BrokerError."""
        fields: DescribeConfigsRequestFields = {
            "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
            "include_synonyms": False,
            "include_documentation": False,
        }
        found: list[Property] = []

        def action(connection: Connection) -> None:
            answer = connection.request(DESCRIBE_CONFIGS, fields).results[0]
            check(answer.error_code, _subject(kind, name), answer.error_message)
            found[:] = [
                Property(one.name, one.value, SOURCES.get(one.config_source, "unknown"), one.read_only)
                for one in answer.configs
            ]

        self._run(kind, name, action)
        return sorted(found, key=lambda one: one.name)

    def change(self, kind: ResourceKind, name: str, values: Mapping[str, str], unset: Iterable[str] = ()) -> None:
        """Sets properties, and unsets others; InvalidConfigError, UnknownTopicError, BrokerError."""
        operations: list[AlterableConfigFields] = [
            {"name": key, "config_operation": SET, "value": value} for key, value in values.items()
        ]
        operations += [{"name": key, "config_operation": DELETE, "value": None} for key in unset]
        fields: IncrementalAlterConfigsRequestFields = {
            "resources": [{"resource_type": kind, "resource_name": name, "configs": operations}],
            "validate_only": False,
        }

        def action(connection: Connection) -> None:
            answer = connection.request(INCREMENTAL_ALTER_CONFIGS, fields).responses[0]
            check(answer.error_code, _subject(kind, name), answer.error_message)

        self._run(kind, name, action)

    def _run(self, kind: ResourceKind, name: str, action: Callable[[Connection], None]) -> None:
        """Runs an action where it can be done: a broker describes and changes its own configuration only."""
        if kind is ResourceKind.BROKER and name:
            action(self._cluster.broker_connection(name))
        else:
            self._cluster.on_controller(action)


def _subject(kind: ResourceKind, name: str) -> str:
    return f"{kind.name.lower()} {name}" if name else "all brokers"
