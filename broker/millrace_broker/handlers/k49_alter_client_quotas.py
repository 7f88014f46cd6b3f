"""AlterClientQuotas, versions 0 and 1 (KIP-546); v1 flexible. Each entity succeeds or fails by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_CLIENT_QUOTAS
from millrace_broker.cluster.config_manager import ConfigManager
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.quotas.alterations import Operation, altered
from millrace_broker.quotas.entities import Entity, path_of

if TYPE_CHECKING:
    from millrace.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponseFields,
        EntityDataFields,
        EntryDataFields,
    )

GUARD = Guard(ApiKey.ALTER_CLIENT_QUOTAS, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Alters the quotas of each entity."""
    message = ALTER_CLIENT_QUOTAS.decode_request(request.version, request.body)
    denied = None if GUARD.permits(services, request.session) else GUARD.denied()
    return later(_respond(services, request.version, message, denied))


async def _respond(
    services: Services, version: int, message: AlterClientQuotasRequest, denied: MillraceError | None
) -> Parts:
    entries: list[EntryDataFields] = []
    for entry in each(message.entries):
        entity = {one.entity_type: one.entity_name for one in each(entry.entity)}
        operations = [Operation(one.key, None if one.remove else one.value) for one in each(entry.ops)]
        code, text = ErrorCode.NONE, None
        try:
            if denied is not None:
                raise denied
            await _alter(services.configs, entity, operations, validate_only=message.validate_only)
        except MillraceError as error:
            code, text = error.code, str(error)
        named: list[EntityDataFields] = [
            {"entity_type": kind, "entity_name": name} for kind, name in each(entity.items())
        ]
        entries.append({"error_code": code, "error_message": text, "entity": named})
    fields: AlterClientQuotasResponseFields = {"throttle_time": 0, "entries": entries}
    return respond(services, ALTER_CLIENT_QUOTAS, version, fields)


async def _alter(
    configs: ConfigManager, entity: Entity, operations: Sequence[Operation], *, validate_only: bool
) -> None:
    change = partial(altered, entity=entity, operations=operations)
    await configs.change_client(path_of(entity), change, validate_only=validate_only)


API = Api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    VersionRange(0, 1),
    handle,
    refuses="quotas below 0, and names of hosts in place of addresses (INVALID_REQUEST)",
    guards=(GUARD,),
)
