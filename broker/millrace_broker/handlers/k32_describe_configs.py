"""DescribeConfigs, versions 0 to 4 (KIP-133).

    v0  "is default" for a source      v1  source, synonyms (KIP-226)
    v3  type and documentation (KIP-569)      v4  flexible

Topics and this broker by name, all brokers by the empty broker name. Loggers have no levels to tell.
"""

from __future__ import annotations

from typing import Any

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import field
from millrace.wire.legacy_admin import decode_request, encode_response
from millrace_broker.cluster.config_sources import ConfigEntry
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.config_resources import ResourceType, unserved


def handle(services: Services, request: Request) -> Reply:
    """Describe each resource."""
    message = decode_request(ApiKey.DESCRIBE_CONFIGS, request.version, request.body)
    results = [_describe(services, message, resource) for resource in message.resources]
    fields = {"throttle_time": 0, "results": results}
    return [encode_response(ApiKey.DESCRIBE_CONFIGS, request.version, fields)]


def _describe(services: Services, message: Any, resource: Any) -> dict[str, Any]:
    entries: list[ConfigEntry] = []
    code, text = ErrorCode.NONE, ""
    try:
        entries = _entries(services, resource)
    except MillraceError as error:
        code, text = error.code, str(error)
    names = resource.configuration_keys
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [_config(message, entry) for entry in entries if not names or entry.key.name in names],
    }


def _entries(services: Services, resource: Any) -> list[ConfigEntry]:
    match resource.resource_type:
        case ResourceType.TOPIC:
            return services.configs.describe_topic(resource.resource_name)
        case ResourceType.BROKER:
            return services.configs.describe_broker(resource.resource_name)
        case ResourceType.BROKER_LOGGER:
            services.configs.describe_broker(resource.resource_name)
            return []
        case number:
            raise unserved(number)


def _config(message: Any, entry: ConfigEntry) -> dict[str, Any]:
    synonyms = entry.synonyms if field(message, "include_synonyms", False) else ()
    return {
        "name": entry.key.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": entry.key.is_secret,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source} for one in synonyms],
        "config_type": entry.type,
        "documentation": entry.key.doc if field(message, "include_documentation", False) else None,
    }


API = Api(ApiKey.DESCRIBE_CONFIGS, VersionRange(0, 4), handle)
