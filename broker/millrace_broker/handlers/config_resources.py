"""The resources that configuration APIs name, and the checks that their requests share (KIP-133, KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Any

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError


class ResourceType(IntEnum):
    """The protocol's numbers of the resources that are served."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


def unserved(number: int) -> InvalidRequestError:
    """The refusal of any other resource."""
    try:
        name = ResourceType(number).name.lower()
    except ValueError:
        name = f"type {number}"
    return InvalidRequestError(f"a resource of {name} can't be configured here")


async def alter_each(
    resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]], *, null_is_allowed: Callable[[Any], bool]
) -> list[dict[str, Any]]:
    """Alter each resource by itself; the answers of AlterConfigs and IncrementalAlterConfigs."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results = []
    for resource in resources:
        code, message = ErrorCode.NONE, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(f"duplicate resource: {resource.resource_name!r} is named more than once")
            _check_configs(resource, null_is_allowed)
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
    return results


def _check_configs(resource: Any, null_is_allowed: Callable[[Any], bool]) -> None:
    names = Counter(config.name for config in resource.configs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidRequestError(f"duplicate config keys: {', '.join(twice)}")
    nulls = [config.name for config in resource.configs if config.value is None and not null_is_allowed(config)]
    if nulls:
        raise InvalidRequestError(f"null value not supported for {', '.join(nulls)}")
