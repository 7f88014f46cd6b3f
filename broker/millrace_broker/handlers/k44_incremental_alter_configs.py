"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339); v1 flexible.

What is not named stays; the operations are `cluster.config_changes`'s.
"""

from __future__ import annotations

import asyncio
from typing import Any

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace.wire.encoder import Parts
from millrace_broker.cluster.config_changes import Operation, OperationType
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.config_resources import ResourceType, alter_each, unserved


def handle(services: Services, request: Request) -> Reply:
    """Alter each resource, or see whether it could be."""
    message = decode(ApiKey.INCREMENTAL_ALTER_CONFIGS, request.version, Direction.REQUEST, request.body)
    return asyncio.ensure_future(_answer(services, request.version, message))


async def _answer(services: Services, version: int, message: Any) -> Parts:
    results = await alter_each(
        message.resources,
        lambda resource: _alter(services, resource, validate_only=message.validate_only),
        null_is_allowed=lambda one: one.config_operation == OperationType.DELETE,
    )
    fields = {"throttle_time": 0, "responses": results}
    return answer(services, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, fields)


async def _alter(services: Services, resource: Any, *, validate_only: bool) -> None:
    operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
    match resource.resource_type:
        case ResourceType.TOPIC:
            await services.configs.change_topic(resource.resource_name, operations, validate_only=validate_only)
        case ResourceType.BROKER:
            await services.configs.change_broker(resource.resource_name, operations, validate_only=validate_only)
        case ResourceType.GROUP:
            await services.configs.change_group(resource.resource_name, operations, validate_only=validate_only)
        case number:
            raise unserved(number)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, VersionRange(0, 1), handle)
