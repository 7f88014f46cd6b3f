"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339); v1 flexible.

A property that is not named stays as it is. Loggers have levels (KIP-412), which AlterConfigs does not change.
`cluster.config_changes` has the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.security import acls
from millrace.security.acls import AclOperation
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import INCREMENTAL_ALTER_CONFIGS
from millrace_broker.cluster.config_changes import Operation, OperationType
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.config_resources import (
    ConfigGuards,
    Resource,
    ResourceType,
    alter_each,
    check_access,
    unserved,
)
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponseFields,
    )

GUARD = Guard(ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.CLUSTER)
TOPIC_GUARD = Guard(ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.TOPIC)
GROUP_GUARD = Guard(ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.GROUP)
GUARDS = ConfigGuards(GUARD, TOPIC_GUARD, GROUP_GUARD)


def handle(services: Services, request: Request) -> Reply:
    """Alters each resource, or only checks whether it could be altered."""
    message = INCREMENTAL_ALTER_CONFIGS.decode_request(request.version, request.body)
    return later(_respond(services, request.without_body(), message))


async def _respond(services: Services, request: Request, message: IncrementalAlterConfigsRequest) -> Parts:
    results = await alter_each(
        message.resources,
        lambda resource: _alter(services, request.session, resource, validate_only=message.validate_only),
        null_is_allowed=lambda one: one.config_operation == OperationType.DELETE,
    )
    fields: IncrementalAlterConfigsResponseFields = {"throttle_time": 0, "responses": results}
    return respond(services, INCREMENTAL_ALTER_CONFIGS, request.version, fields)


async def _alter(
    services: Services, session: ClientSession, resource: Resource[AlterableConfig], *, validate_only: bool
) -> None:
    check_access(GUARDS, services, session, resource)
    operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
    match resource.resource_type:
        case ResourceType.TOPIC:
            await services.configs.change_topic(resource.resource_name, operations, validate_only=validate_only)
        case ResourceType.BROKER:
            await services.configs.change_broker(resource.resource_name, operations, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER:
            services.configs.change_loggers(resource.resource_name, operations, validate_only=validate_only)
        case ResourceType.GROUP:
            await services.configs.change_group(resource.resource_name, operations, validate_only=validate_only)
        case number:
            raise unserved(number)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, VersionRange(0, 1), handle, guards=GUARDS)
