"""DescribeAcls, CreateAcls and DeleteAcls, versions 0 to 3: the entries of access control lists.

    v0  literal resources alone     v1  pattern types     v2  flexible     v3  resources of users

A broker without an authorizer answers SECURITY_DISABLED. A number that is no resource type, pattern type, operation or
permission is INVALID_REQUEST.

An entry that is created has to name one resource, one operation and one permission. The cluster's only name is
`kafka-cluster`, and no name may have a slash, as it becomes the name of a node in ZooKeeper. An entry that several
filters find is in the response to the first of them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError, SecurityDisabledError
from millrace.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from millrace.zk import paths
from millrace_broker.cluster.acl_manager import Deleted
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.wire.messages.create_acls import AclCreation, CreateAclsResponseFields
    from millrace.wire.messages.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsFilterResultFields,
        DeleteAclsMatchingAclFields,
        DeleteAclsResponseFields,
    )
    from millrace.wire.messages.describe_acls import (
        DescribeAclsRequest,
        DescribeAclsResourceFields,
        DescribeAclsResponseFields,
    )

DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_ACLS, AclOperation.DESCRIBE, ResourceType.CLUSTER)
CREATE_GUARD = Guard(ApiKey.CREATE_ACLS, AclOperation.ALTER, ResourceType.CLUSTER)
DELETE_GUARD = Guard(ApiKey.DELETE_ACLS, AclOperation.ALTER, ResourceType.CLUSTER)


def _check_access(guard: Guard, services: Services, request: Request) -> None:
    """Raises an AuthorizationError where the guard denies the client, SecurityDisabledError without an authorizer."""
    guard.check(services, request.session)
    if services.authorizer is None:
        raise SecurityDisabledError("No Authorizer is configured on the broker: see authorizer.class.name")


def _filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the ACL filter of a request; raises InvalidRequestError where one of its enum numbers is unknown."""
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


def describe_acls(services: Services, request: Request) -> Reply:
    """Responds to DescribeAcls with the ACL entries that match the request's filter, grouped by resource."""
    asked = DESCRIBE_ACLS.decode_request(request.version, request.body)
    fields: DescribeAclsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resources": (),
    }
    try:
        _check_access(DESCRIBE_GUARD, services, request)
        fields["resources"] = _found(services, asked)
    except MillraceError as error:
        fields |= {"error_code": error.code, "error_message": str(error)}
    return respond(services, DESCRIBE_ACLS, request.version, fields)


def _found(services: Services, asked: DescribeAclsRequest) -> list[DescribeAclsResourceFields]:
    found = services.acls.find(_filter_of(asked))
    return [
        {
            "resource_type": pattern.resource_type,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern_type,
            "acls": [
                {
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission,
                }
                for _, acl in some
            ],
        }
        for pattern, some in groupby(found, lambda one: one.pattern)
    ]


def create_acls(services: Services, request: Request) -> Reply:
    """Handles CreateAcls: adds the request's ACL entries; responds once this broker applies them."""
    creations = CREATE_ACLS.decode_request(request.version, request.body).creations
    try:
        _check_access(CREATE_GUARD, services, request)
    except MillraceError as error:
        return _created(services, request.version, [error] * len(creations))
    return later(_create(services, request.version, [_binding(one) for one in each(creations)]))


async def _create(services: Services, version: int, asked: list[AclBinding | MillraceError]) -> Parts:
    failed = await services.acls.create({one for one in asked if isinstance(one, AclBinding)})
    return _created(services, version, [failed.get(one) if isinstance(one, AclBinding) else one for one in asked])


def _created(services: Services, version: int, outcomes: Sequence[MillraceError | None]) -> Parts:
    fields: CreateAclsResponseFields = {
        "throttle_time": 0,
        "results": [
            {
                "error_code": ErrorCode.NONE if error is None else error.code,
                "error_message": None if error is None else str(error),
            }
            for error in each(outcomes)
        ],
    }
    return respond(services, CREATE_ACLS, version, fields)


def _binding(asked: AclCreation) -> AclBinding | MillraceError:
    """Returns the ACL entry that a request asks to create, or the error where that entry can't be created."""
    try:
        pattern = ResourcePattern(
            ResourceType(asked.resource_type), asked.resource_name, PatternType(asked.resource_pattern_type)
        )
        acl = Acl(asked.principal, asked.host, AclOperation(asked.operation), PermissionType(asked.permission_type))
    except ValueError as error:
        return InvalidRequestError(f"the ACL has an unknown element: {error}")
    vague = (
        pattern.resource_type <= ResourceType.ANY
        or pattern.pattern_type <= PatternType.MATCH
        or acl.operation <= AclOperation.ANY
        or acl.permission <= PermissionType.ANY
    )
    kind, _, name = acl.principal.partition(":")
    if vague:
        return InvalidRequestError(
            "an ACL needs one type of resource, literal or prefixed, one operation, allow or deny"
        )
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return InvalidRequestError(f"the only valid name of the Cluster resource is {CLUSTER_NAME}")
    if not paths.is_name(pattern.name):
        return InvalidRequestError(f"{pattern.name!r} can't be the name of a resource: it is empty, or has a slash")
    if not kind or not name or not acl.host:
        return InvalidRequestError(f"{acl.principal!r} from host {acl.host!r}: expected User:NAME, and an address or *")
    return AclBinding(pattern, acl)


def delete_acls(services: Services, request: Request) -> Reply:
    """Handles DeleteAcls: deletes the entries that match a filter; responds once this broker no longer applies them."""
    asked = DELETE_ACLS.decode_request(request.version, request.body).filters
    try:
        _check_access(DELETE_GUARD, services, request)
        filters = [_filter_of(one) for one in asked]
    except MillraceError as error:
        return _deleted(services, request.version, [_failed(error)] * len(asked))
    return later(_delete(services, request.version, filters))


async def _delete(services: Services, version: int, filters: list[AclFilter]) -> Parts:
    deleted = await services.acls.delete(filters)
    results: list[DeleteAclsFilterResultFields] = [
        {"error_code": ErrorCode.NONE, "error_message": None, "matching_acls": [_matching(one) for one in found]}
        for found in deleted
    ]
    return _deleted(services, version, results)


def _failed(error: MillraceError) -> DeleteAclsFilterResultFields:
    return {"error_code": error.code, "error_message": str(error), "matching_acls": ()}


def _matching(deleted: Deleted) -> DeleteAclsMatchingAclFields:
    (pattern, acl), error = deleted
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else str(error),
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _deleted(services: Services, version: int, results: Sequence[DeleteAclsFilterResultFields]) -> Parts:
    fields: DeleteAclsResponseFields = {"throttle_time": 0, "filter_results": results}
    return respond(services, DELETE_ACLS, version, fields)


APIS = tuple(
    Api(
        guard.api,
        VersionRange(0, 3),
        handle,
        refuses="all without an authorizer (SECURITY_DISABLED)",
        guards=(guard,),
    )
    for guard, handle in (
        (DESCRIBE_GUARD, describe_acls),
        (CREATE_GUARD, create_acls),
        (DELETE_GUARD, delete_acls),
    )
)
