"""DescribeClientQuotas, versions 0 and 1 (KIP-546); v1 flexible. A filter says which entities with quotas are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_CLIENT_QUOTAS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.quotas.filters import Component, EntityQuotas, check_filter, found

if TYPE_CHECKING:
    from millrace.wire.messages.describe_client_quotas import DescribeClientQuotasResponseFields, EntryDataFields

GUARD = Guard(ApiKey.DESCRIBE_CLIENT_QUOTAS, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the entities that the filter finds, or its error."""
    message = DESCRIBE_CLIENT_QUOTAS.decode_request(request.version, request.body)
    components = [Component(one.entity_type, one.match_type, one.match) for one in each(message.components)]
    fields: DescribeClientQuotasResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "entries": None,
    }
    try:
        GUARD.check(services, request.session)
        check_filter(components)
        configs = services.metadata.image.client_configs
        fields["entries"] = [_entry(one) for one in found(configs, components, is_strict=message.strict)]
    except MillraceError as error:
        fields |= {"error_code": error.code, "error_message": str(error)}
    return respond(services, DESCRIBE_CLIENT_QUOTAS, request.version, fields)


def _entry(one: EntityQuotas) -> EntryDataFields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in one.entity.items()],
        "values": [{"key": key, "value": value} for key, value in one.quotas.items()],
    }


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, VersionRange(0, 1), handle, guards=(GUARD,))
