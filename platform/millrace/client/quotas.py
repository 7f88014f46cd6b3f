"""Quotas of users, clients and addresses, described and altered (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.wire.messages import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

if TYPE_CHECKING:
    from millrace.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequestFields,
        EntityDataFields,
        OpDataFields,
    )
    from millrace.wire.messages.describe_client_quotas import DescribeClientQuotasRequestFields

USER, CLIENT_ID, ADDRESS = "user", "client-id", "ip"

Entity = Mapping[str, str | None]  # names by type; None is the default user, client or address


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """An entity and its quotas by property."""

    entity: Entity
    quotas: Mapping[str, float]


class Quotas:
    """The quotas of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> list[EntityQuotas]:
        """Returns all entities that have quotas. Raises BrokerError."""
        fields: DescribeClientQuotasRequestFields = {"components": (), "strict": False}

        def action(connection: Connection) -> list[EntityQuotas]:
            answer = connection.request(DESCRIBE_CLIENT_QUOTAS, fields)
            check(answer.error_code, "quotas", answer.error_message)
            return [
                EntityQuotas(
                    {one.entity_type: one.entity_name for one in entry.entity},
                    {one.key: one.value for one in entry.values},
                )
                for entry in answer.entries or ()
            ]

        return self._cluster.on_controller(action)

    def alter(self, entity: Entity, values: Mapping[str, float], unset: Iterable[str] = ()) -> None:
        """Sets quotas of an entity, and unsets others. Raises InvalidRequestError or BrokerError."""
        operations: list[OpDataFields] = [
            {"key": key, "value": value, "remove": False} for key, value in values.items()
        ]
        operations += [{"key": key, "value": 0.0, "remove": True} for key in unset]
        named: list[EntityDataFields] = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        fields: AlterClientQuotasRequestFields = {
            "entries": [{"entity": named, "ops": operations}],
            "validate_only": False,
        }

        def action(connection: Connection) -> None:
            answer = connection.request(ALTER_CLIENT_QUOTAS, fields).entries[0]
            check(answer.error_code, "quotas", answer.error_message)

        self._cluster.on_controller(action)
