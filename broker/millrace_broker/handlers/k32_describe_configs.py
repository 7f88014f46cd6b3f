"""DescribeConfigs, versions 0 to 4 (KIP-133).

    v0  whether a value is the default      v1  source, synonyms (KIP-226)
    v3  type and documentation (KIP-569)      v4  flexible

Topics, groups, this broker and its loggers (KIP-412) go by name, all brokers by the empty broker name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security import acls
from millrace.security.acls import AclOperation
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.describe_configs import (
    ConfigDescribed,
    ResourceDescribed,
    SynonymDescribed,
    encode_describe_configs_response,
)
from millrace.wire.encoder import Parts
from millrace.wire.messages import DESCRIBE_CONFIGS
from millrace_broker.cluster.config_sources import ConfigEntry
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.config_resources import ConfigGuards, ResourceType, check_access, unserved
from millrace_broker.handlers.responses import count_errors

if TYPE_CHECKING:
    from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

RESOURCES_AT_ONCE = 20
GUARD = Guard(ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, acls.ResourceType.CLUSTER)
TOPIC_GUARD = Guard(ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, acls.ResourceType.TOPIC)
GROUP_GUARD = Guard(ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, acls.ResourceType.GROUP)
GUARDS = ConfigGuards(GUARD, TOPIC_GUARD, GROUP_GUARD)


def handle(services: Services, request: Request) -> Reply:
    """Describes each resource, and lets other requests have their turn now and then."""
    message = DESCRIBE_CONFIGS.decode_request(request.version, request.body)
    return later(_respond(services, request.without_body(), message))


async def _respond(services: Services, request: Request, message: DescribeConfigsRequest) -> Parts:
    results = []
    asked = {(one.resource_type, one.resource_name): one for one in message.resources}  # each is answered once
    for index, resource in enumerate(asked.values(), 1):
        results.append(_describe(services, request, message, resource))
        if index % RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    count_errors(services, ApiKey.DESCRIBE_CONFIGS, (result.error_code for result in results))
    return [await asyncio.to_thread(encode_describe_configs_response, request.version, results)]


def _describe(
    services: Services, request: Request, message: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> ResourceDescribed:
    entries: Sequence[ConfigEntry] = ()
    code, text = ErrorCode.NONE, ""
    try:
        check_access(GUARDS, services, request.session, resource)
        entries = _entries(services, resource)
    except MillraceError as error:
        code, text = error.code, str(error)
    names = resource.configuration_keys
    configs = [_config(message, entry) for entry in entries if not names or entry.key.name in names]
    return ResourceDescribed(code, text, resource.resource_type, resource.resource_name, configs)


def _entries(services: Services, resource: DescribeConfigsResource) -> Sequence[ConfigEntry]:
    match resource.resource_type:
        case ResourceType.TOPIC:
            return services.configs.describe_topic(resource.resource_name)
        case ResourceType.BROKER:
            return services.configs.describe_broker(resource.resource_name)
        case ResourceType.BROKER_LOGGER:
            return services.configs.describe_loggers(resource.resource_name)
        case ResourceType.GROUP:
            return services.configs.describe_group(resource.resource_name)
        case number:
            raise unserved(number)


def _config(message: DescribeConfigsRequest, entry: ConfigEntry) -> ConfigDescribed:
    return ConfigDescribed(
        entry.key.name,
        entry.value,
        entry.is_read_only,
        entry.source,
        entry.key.is_secret,
        [SynonymDescribed(*one) for one in entry.synonyms] if message.include_synonyms else (),
        entry.type,
        entry.key.doc if message.include_documentation else None,
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, VersionRange(0, 4), handle, guards=GUARDS)
