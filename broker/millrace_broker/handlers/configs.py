"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

    DescribeConfigs          v0 to v4   KIP-133; v0  whether a value is the default    v1  source, synonyms (KIP-226)
                                        v3  type and documentation (KIP-569)    v4  flexible
    AlterConfigs             v0 to v2   KIP-133; a resource's configuration is replaced: a property that is not named
                                        gets the value of the layer below; v2  flexible
    IncrementalAlterConfigs  v0, v1     KIP-339; a property that is not named stays as it is; `cluster.config_changes`
                                        has the operations; v1  flexible
    ListConfigResources      v0, v1     KIP-714, KIP-1142; v0  client metrics alone, of which there are none    v1  all,
                                        or the types that are asked for; any other type is UNSUPPORTED_VERSION

Topics, groups, this broker and its loggers (KIP-412) go by name, all brokers by the empty broker name. Loggers have
levels, which AlterConfigs does not change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError
from millrace.security import acls
from millrace.security.acls import AclOperation
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import Answered
from millrace.wire.describe_configs import (
    ConfigDescribed,
    ResourceDescribed,
    SynonymDescribed,
    encode_describe_configs_response,
)
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES
from millrace_broker.cluster.config_manager import Alter
from millrace_broker.cluster.config_sources import ConfigEntry, Operation, OperationType, apply_operations
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import count_errors, respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.alter_configs import (
        AlterConfigsResource,
        AlterConfigsResourceResponseFields,
        AlterConfigsResponseFields,
    )
    from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from millrace.wire.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
    from millrace.wire.messages.list_config_resources import ListConfigResourcesResponseFields

    Resource = AlterConfigsResource | ChangedResource | DescribeConfigsResource


class ResourceType(IntEnum):
    """The types of resources whose configuration can be described or altered, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


ResourceT = TypeVar("ResourceT", bound="Resource")


class ConfigGuards(NamedTuple):
    """The rights that one API needs for the configurations of brokers and their loggers, of topics, and of groups."""

    cluster: Guard
    topic: Guard
    group: Guard

    @classmethod
    def of(cls, api: ApiKey, operation: AclOperation) -> ConfigGuards:
        """Returns the guards of an API that needs the right to `operation` on the cluster, on a topic or on a group."""
        types = (acls.ResourceType.CLUSTER, acls.ResourceType.TOPIC, acls.ResourceType.GROUP)
        return cls(*(Guard(api, operation, one) for one in types))

    def check(self, services: Services, session: ClientSession, resource: Resource) -> None:
        """Raises an AuthorizationError where the client may not do the operation on the resource's configuration."""
        match resource.resource_type:
            case ResourceType.TOPIC:
                self.topic.check(services, session, resource.resource_name)
            case ResourceType.GROUP:
                self.group.check(services, session, resource.resource_name)
            case _:
                self.cluster.check(services, session)


RESOURCES_AT_ONCE = 20
DESCRIBE_GUARDS = ConfigGuards.of(ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
ALTER_GUARDS = ConfigGuards.of(ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS)
CHANGE_GUARDS = ConfigGuards.of(ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS)
FIRST_VERSION_WITH_TYPES = 1
CLIENT_METRICS = 16
LISTED = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, CLIENT_METRICS, ResourceType.GROUP)
LIST_GUARD = Guard(ApiKey.LIST_CONFIG_RESOURCES, AclOperation.DESCRIBE_CONFIGS, acls.ResourceType.CLUSTER)


def _unserved(number: int) -> InvalidRequestError:
    """Returns the InvalidRequestError for a resource of a type that the request can't describe or alter."""
    try:
        name = ResourceType(number).name.lower()
    except ValueError:
        name = f"type {number}"
    return InvalidRequestError(f"a resource of {name} can't be configured here")


async def _alter_each(
    services: Services,
    api: Answered[AlterConfigsResponseFields],
    version: int,
    resources: Sequence[ResourceT],
    alter: Callable[[ResourceT], Awaitable[None]],
) -> Parts:
    """Calls `alter` for each resource; returns the response with the errors. A resource that comes twice is refused."""
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    results: list[AlterConfigsResourceResponseFields] = []
    for resource in resources:
        code, message = ErrorCode.NONE, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(f"duplicate resource: {resource.resource_name!r} is named more than once")
            await alter(resource)
        except MillraceError as error:
            code, message = error.code, str(error)
        results.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    fields: AlterConfigsResponseFields = {"throttle_time": 0, "responses": results}
    return respond(services, api, version, fields)


async def _alter(services: Services, resource: Resource, change: Alter, *, validate_only: bool) -> None:
    """Applies `change` to the configuration of a topic, broker or group; raises InvalidRequestError for other types."""
    match resource.resource_type:
        case ResourceType.TOPIC:
            await services.configs.alter_topic(resource.resource_name, change, validate_only=validate_only)
        case ResourceType.BROKER:
            await services.configs.alter_broker(resource.resource_name, change, validate_only=validate_only)
        case ResourceType.GROUP:
            await services.configs.alter_group(resource.resource_name, change, validate_only=validate_only)
        case number:
            raise _unserved(number)


def _check_properties(names: Sequence[str], nulls: Sequence[str]) -> None:
    """Raises InvalidRequestError where a name comes twice, or `nulls` has any: properties whose value is missing."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidRequestError(f"duplicate config keys: {', '.join(twice)}")
    if nulls:
        raise InvalidRequestError(f"null value not supported for {', '.join(nulls)}")


def describe_configs(services: Services, request: Request) -> Reply:
    """Responds to DescribeConfigs with the properties of each resource, and lets other requests run in between."""
    message = DESCRIBE_CONFIGS.decode_request(request.version, request.body)
    return later(_describe_each(services, request.without_body(), message))


async def _describe_each(services: Services, request: Request, message: DescribeConfigsRequest) -> Parts:
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
        DESCRIBE_GUARDS.check(services, request.session, resource)
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
            raise _unserved(number)


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


def alter_configs(services: Services, request: Request) -> Reply:
    """Handles AlterConfigs: replaces each resource's configuration; with `validate_only` only checks the new one."""
    message = ALTER_CONFIGS.decode_request(request.version, request.body)
    replace = partial(_replace, services, request.session, validate_only=message.validate_only)
    return later(_alter_each(services, ALTER_CONFIGS, request.version, message.resources, replace))


async def _replace(
    services: Services, session: ClientSession, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    _check_properties(
        [one.name for one in resource.configs], [one.name for one in resource.configs if one.value is None]
    )
    ALTER_GUARDS.check(services, session, resource)
    config = {one.name: one.value for one in resource.configs if one.value is not None}
    await _alter(services, resource, lambda *_: config, validate_only=validate_only)


def incremental_alter_configs(services: Services, request: Request) -> Reply:
    """Handles IncrementalAlterConfigs: changes properties of each resource; with `validate_only` only checks them."""
    message = INCREMENTAL_ALTER_CONFIGS.decode_request(request.version, request.body)
    change = partial(_change, services, request.session, validate_only=message.validate_only)
    return later(_alter_each(services, INCREMENTAL_ALTER_CONFIGS, request.version, message.resources, change))


async def _change(
    services: Services, session: ClientSession, resource: ChangedResource, *, validate_only: bool
) -> None:
    sets = [one for one in resource.configs if one.config_operation != OperationType.DELETE]
    _check_properties([one.name for one in resource.configs], [one.name for one in sets if one.value is None])
    CHANGE_GUARDS.check(services, session, resource)
    operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        services.configs.change_loggers(resource.resource_name, operations, validate_only=validate_only)
    else:
        change = partial(apply_operations, operations=operations)
        await _alter(services, resource, change, validate_only=validate_only)


def list_config_resources(services: Services, request: Request) -> Reply:
    """Responds to ListConfigResources with the name and type of each resource of the requested types."""
    message = LIST_CONFIG_RESOURCES.decode_request(request.version, request.body)
    types = message.resource_types if request.version >= FIRST_VERSION_WITH_TYPES else (CLIENT_METRICS,)
    asked = set(types or LISTED)
    error = ErrorCode.NONE if asked.issubset(LISTED) else ErrorCode.UNSUPPORTED_VERSION
    if not LIST_GUARD.permits(services, request.session):
        error = LIST_GUARD.error
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


APIS = (
    Api(ApiKey.DESCRIBE_CONFIGS, VersionRange(0, 4), describe_configs, guards=DESCRIBE_GUARDS),
    Api(ApiKey.ALTER_CONFIGS, VersionRange(0, 2), alter_configs, guards=ALTER_GUARDS),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, VersionRange(0, 1), incremental_alter_configs, guards=CHANGE_GUARDS),
    Api(ApiKey.LIST_CONFIG_RESOURCES, VersionRange(0, 1), list_config_resources, guards=(LIST_GUARD,)),
)
