"""What the three APIs of access control lists share: filters.

A number that is no resource type, pattern type, operation or permission is INVALID_REQUEST. Version 0 has literal
resources alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import InvalidRequestError
from millrace.security.acls import AclFilter, AclOperation, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from millrace.wire.messages.delete_acls import DeleteAclsFilter
    from millrace.wire.messages.describe_acls import DescribeAclsRequest

NO_AUTHORIZER = "No Authorizer is configured on the broker: see authorizer.class.name"


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
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
