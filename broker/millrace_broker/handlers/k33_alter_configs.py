"""AlterConfigs, versions 0 to 2 (KIP-133); v2 flexible.

A resource's configuration is replaced: a property that is not named gets the value of the layer below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.security import acls
from millrace.security.acls import AclOperation
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_CONFIGS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.config_resources import (
    ConfigGuards,
    Property,
    Resource,
    ResourceType,
    alter_each,
    check_access,
    unserved,
)
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponseFields

GUARD = Guard(ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.CLUSTER)
TOPIC_GUARD = Guard(ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.TOPIC)
GROUP_GUARD = Guard(ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, acls.ResourceType.GROUP)
GUARDS = ConfigGuards(GUARD, TOPIC_GUARD, GROUP_GUARD)


def handle(services: Services, request: Request) -> Reply:
    """Alters each resource, or only checks whether it could be altered."""
    message = ALTER_CONFIGS.decode_request(request.version, request.body)
    return later(_respond(services, request.without_body(), message))


async def _respond(services: Services, request: Request, message: AlterConfigsRequest) -> Parts:
    results = await alter_each(
        message.resources,
        lambda resource: _alter(services, request.session, resource, validate_only=message.validate_only),
        null_is_allowed=lambda _: False,
    )
    fields: AlterConfigsResponseFields = {"throttle_time": 0, "responses": results}
    return respond(services, ALTER_CONFIGS, request.version, fields)


async def _alter(
    services: Services, session: ClientSession, resource: Resource[Property], *, validate_only: bool
) -> None:
    check_access(GUARDS, services, session, resource)
    config = {one.name: one.value for one in resource.configs if one.value is not None}
    match resource.resource_type:
        case ResourceType.TOPIC:
            await services.configs.replace_topic(resource.resource_name, config, validate_only=validate_only)
        case ResourceType.BROKER:
            await services.configs.replace_broker(resource.resource_name, config, validate_only=validate_only)
        case ResourceType.GROUP:
            await services.configs.replace_group(resource.resource_name, config, validate_only=validate_only)
        case number:
            raise unserved(number)


API = Api(ApiKey.ALTER_CONFIGS, VersionRange(0, 2), handle, guards=GUARDS)
