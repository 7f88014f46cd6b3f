"""What the three APIs of access control lists share: filters, and the bytes of version 0.

A number that is no resource type, pattern type, operation or permission is INVALID_REQUEST. Version 0 has literal
resources alone.
"""

from __future__ import annotations

from typing import Protocol

from millrace.errors import InvalidRequestError
from millrace.security.acls import AclFilter, AclOperation, PatternType, PermissionType, ResourceType

NO_AUTHORIZER = "No Authorizer is configured on the broker: see authorizer.class.name"


class FilterAsked(Protocol):
    """A filter in a request."""

    @property
    def resource_type_filter(self) -> int:
        """Returns the protocol's number for the type of the resource."""
        ...

    @property
    def resource_name_filter(self) -> str | None:
        """Returns the resource's name, None for all."""
        ...

    @property
    def pattern_type_filter(self) -> int:
        """Returns the protocol's number for how names match."""
        ...

    @property
    def principal_filter(self) -> str | None:
        """Returns the principal, None for all."""
        ...

    @property
    def host_filter(self) -> str | None:
        """Returns the client's address, None for all."""
        ...

    @property
    def operation(self) -> int:
        """Returns the protocol's number for the operation."""
        ...

    @property
    def permission_type(self) -> int:
        """Returns the protocol's number for whether it is allowed or denied."""
        ...


def filter_of(asked: FilterAsked) -> AclFilter:
    """Returns the filter in a request. Raises InvalidRequestError."""
    try:
        wanted = AclFilter(
            ResourceType(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            PermissionType(asked.permission_type),
        )
    except ValueError as error:
        raise InvalidRequestError(f"the filter has an unknown element: {error}") from None
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        raise InvalidRequestError("the filter has an unknown element")
    return wanted
