"""ListConfigResources, versions 0 and 1 (KIP-714, KIP-1142): the names of the resources that can have a configuration.

v0 lists client metrics alone, of which there are none. v1 lists topics, brokers, their loggers, client metrics and
groups, or the types that are asked for; any other type is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security import acls
from millrace.security.acls import AclOperation
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import LIST_CONFIG_RESOURCES
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.config_resources import ResourceType
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.list_config_resources import ListConfigResourcesResponseFields

FIRST_VERSION_WITH_TYPES = 1
CLIENT_METRICS = 16
LISTED = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, CLIENT_METRICS, ResourceType.GROUP)
GUARD = Guard(ApiKey.LIST_CONFIG_RESOURCES, AclOperation.DESCRIBE_CONFIGS, acls.ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Lists the resources with their names and types."""
    message = LIST_CONFIG_RESOURCES.decode_request(request.version, request.body)
    types = message.resource_types if request.version >= FIRST_VERSION_WITH_TYPES else (CLIENT_METRICS,)
    asked = set(types or LISTED)
    error = ErrorCode.NONE if asked.issubset(LISTED) else ErrorCode.UNSUPPORTED_VERSION
    if not GUARD.permits(services, request.session):
        error = GUARD.error
    fields: ListConfigResourcesResponseFields = {
        "throttle_time": 0,
        "error_code": error,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in LISTED
            if not error and kind in asked
            for name in _names(services, kind)
        ],
    }
    return respond(services, LIST_CONFIG_RESOURCES, request.version, fields)


def _names(services: Services, kind: int) -> Iterable[str]:
    image = services.metadata.image
    if kind == ResourceType.TOPIC:
        return image.topics
    if kind == ResourceType.GROUP:
        return [name for name, config in image.group_configs.items() if config]
    return map(str, image.brokers) if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) else ()


API = Api(ApiKey.LIST_CONFIG_RESOURCES, VersionRange(0, 1), handle, guards=(GUARD,))
