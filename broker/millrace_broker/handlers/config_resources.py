"""The resources that the configuration APIs name, and the checks that their requests share (KIP-133, KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypedDict, TypeVar

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError
from millrace_broker.handlers.api import Guard, Services
from millrace_broker.security.client_session import ClientSession


class ResourceType(IntEnum):
    """The resource types that are served, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


def unserved(number: int) -> InvalidRequestError:
    """Returns the refusal of a resource whose type has no configuration here."""
    try:
        name = ResourceType(number).name.lower()
    except ValueError:
        name = f"type {number}"
    return InvalidRequestError(f"a resource of {name} can't be configured here")


class ConfigGuards(NamedTuple):
    """What a client needs for the configuration of brokers, of topics, and of groups."""

    cluster: Guard
    topic: Guard
    group: Guard


class Named(Protocol):
    """A resource, in a request of any of these APIs."""

    @property
    def resource_type(self) -> int:
        """Returns the number by which the protocol names the resource's type."""
        ...

    @property
    def resource_name(self) -> str:
        """The name."""
        ...


def check_access(guards: ConfigGuards, services: Services, session: ClientSession, resource: Named) -> None:
    """Raises an AuthorizationError where the client may not do to a resource's configuration what it asks for."""
    match resource.resource_type:
        case ResourceType.TOPIC:
            guards.topic.check(services, session, resource.resource_name)
        case ResourceType.GROUP:
            guards.group.check(services, session, resource.resource_name)
        case _:
            guards.cluster.check(services, session)


class Property(Protocol):
    """A property to alter, in a request of either API."""

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def value(self) -> str | None:
        """The new value."""
        ...


PropertyT = TypeVar("PropertyT", bound=Property)
PropertyT_co = TypeVar("PropertyT_co", bound=Property, covariant=True)


class Resource(Named, Protocol[PropertyT_co]):
    """A resource to alter, in a request of either API."""

    @property
    def configs(self) -> Sequence[PropertyT_co]:
        """The properties to alter."""
        ...


class ResourceAltered(TypedDict):
    """The result for one resource, as the responses of both APIs hold it."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


async def alter_each(
    resources: Sequence[Resource[PropertyT]],
    alter: Callable[[Resource[PropertyT]], Awaitable[None]],
    *,
    null_is_allowed: Callable[[PropertyT], bool],
) -> list[ResourceAltered]:
    """Alters each resource by itself, and returns the results for AlterConfigs and IncrementalAlterConfigs."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results: list[ResourceAltered] = []
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


def _check_configs(resource: Resource[PropertyT], null_is_allowed: Callable[[PropertyT], bool]) -> None:
    names = Counter(config.name for config in resource.configs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidRequestError(f"duplicate config keys: {', '.join(twice)}")
    nulls = [config.name for config in resource.configs if config.value is None and not null_is_allowed(config)]
    if nulls:
        raise InvalidRequestError(f"null value not supported for {', '.join(nulls)}")
