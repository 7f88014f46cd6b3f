"""DescribeClientQuotas and AlterClientQuotas, versions 0 and 1 (KIP-546); v1 flexible.

A filter says which entities with quotas are told. Of those that are altered each succeeds or fails by itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.quotas.entities import Component, EntityQuotas, Operation, altered, check_filter, found, path_of

if TYPE_CHECKING:
    from millrace.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponseFields,
        EntryDataFields,
    )
    from millrace.wire.messages.describe_client_quotas import DescribeClientQuotasResponseFields
    from millrace.wire.messages.describe_client_quotas import EntryDataFields as EntityQuotasFields

DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_CLIENT_QUOTAS, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_GUARD = Guard(ApiKey.ALTER_CLIENT_QUOTAS, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeClientQuotas with the entities that the filter matches and their quotas, or with an error."""
    message = DESCRIBE_CLIENT_QUOTAS.decode_request(request.version, request.body)
    components = [Component(one.entity_type, one.match_type, one.match) for one in each(message.components)]
    fields: DescribeClientQuotasResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "entries": None,
    }
    try:
        DESCRIBE_GUARD.check(services, request.session)
        check_filter(components)
        configs = services.metadata.image.client_configs
        fields["entries"] = [_entry(one) for one in found(configs, components, is_strict=message.strict)]
    except MillraceError as error:
        fields |= {"error_code": error.code, "error_message": str(error)}
    return respond(services, DESCRIBE_CLIENT_QUOTAS, request.version, fields)


def _entry(one: EntityQuotas) -> EntityQuotasFields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in one.entity.items()],
        "values": [{"key": key, "value": value} for key, value in one.quotas.items()],
    }


def alter(services: Services, request: Request) -> Reply:
    """Handles AlterClientQuotas: alters the quotas of each entity, which has its own error in the response."""
    message = ALTER_CLIENT_QUOTAS.decode_request(request.version, request.body)
    denied = None if ALTER_GUARD.permits(services, request.session) else ALTER_GUARD.denied()
    return later(_alter_each(services, request.version, message, denied))


async def _alter_each(
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
            change = partial(altered, entity=entity, operations=operations)
            await services.configs.change_client(path_of(entity), change, validate_only=message.validate_only)
        except MillraceError as error:
            code, text = error.code, str(error)
        entries.append(
            {
                "error_code": code,
                "error_message": text,
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in each(entity.items())],
            }
        )
    fields: AlterClientQuotasResponseFields = {"throttle_time": 0, "entries": entries}
    return respond(services, ALTER_CLIENT_QUOTAS, version, fields)


APIS = (
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, VersionRange(0, 1), describe, guards=(DESCRIBE_GUARD,)),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        VersionRange(0, 1),
        alter,
        refuses="quotas below 0, and names of hosts in place of addresses (INVALID_REQUEST)",
        guards=(ALTER_GUARD,),
    ),
)
