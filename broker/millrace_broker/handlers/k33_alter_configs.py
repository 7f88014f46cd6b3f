"""AlterConfigs, versions 0 to 2 (KIP-133); v2 flexible.

A resource's configuration is replaced: a property that is not named gets the value of the layer below.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_CONFIGS
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.config_resources import Property, Resource, ResourceType, alter_each, unserved

if TYPE_CHECKING:
    from millrace.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponseFields


def handle(services: Services, request: Request) -> Reply:
    """Alters each resource, or only checks whether it could be altered."""
    message = ALTER_CONFIGS.decode_request(request.version, request.body)
    return asyncio.ensure_future(_answer(services, request.version, message))


async def _answer(services: Services, version: int, message: AlterConfigsRequest) -> Parts:
    results = await alter_each(
        message.resources,
        lambda resource: _alter(services, resource, validate_only=message.validate_only),
        null_is_allowed=lambda _: False,
    )
    fields: AlterConfigsResponseFields = {"throttle_time": 0, "responses": results}
    return answer(services, ALTER_CONFIGS, version, fields)


async def _alter(services: Services, resource: Resource[Property], *, validate_only: bool) -> None:
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


API = Api(ApiKey.ALTER_CONFIGS, VersionRange(0, 2), handle)
