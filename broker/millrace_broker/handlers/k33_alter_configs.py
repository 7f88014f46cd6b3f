"""AlterConfigs, versions 0 to 2 (KIP-133); v2 flexible.

A resource's configuration is replaced: what is not named goes back to the layer below.
"""

from __future__ import annotations

import asyncio
from typing import Any

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace.wire.encoder import Parts
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.config_resources import ResourceType, alter_each, unserved


def handle(services: Services, request: Request) -> Reply:
    """Alter each resource, or see whether it could be."""
    message = decode(ApiKey.ALTER_CONFIGS, request.version, Direction.REQUEST, request.body)
    return asyncio.ensure_future(_answer(services, request.version, message))


async def _answer(services: Services, version: int, message: Any) -> Parts:
    results = await alter_each(
        message.resources,
        lambda resource: _alter(services, resource, validate_only=message.validate_only),
        null_is_allowed=lambda _: False,
    )
    fields = {"throttle_time": 0, "responses": results}
    return answer(services, ApiKey.ALTER_CONFIGS, version, fields)


async def _alter(services: Services, resource: Any, *, validate_only: bool) -> None:
    config = {one.name: one.value for one in resource.configs}
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
