"""CreateAcls, versions 0 to 3: adds entries to access control lists.

    v0  literal resources alone     v1  pattern types     v2  flexible     v3  resources of users

An entry has to name one resource, one operation and one permission. The cluster's only name is `kafka-cluster`, and no
name may have a slash, as it becomes the name of a node in ZooKeeper. A broker without an authorizer answers
SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError, SecurityDisabledError
from millrace.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_ACLS
from millrace.zk import paths
from millrace_broker.handlers.acl_requests import NO_AUTHORIZER
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.wire.messages.create_acls import AclCreation, CreateAclsResponseFields

GUARD = Guard(ApiKey.CREATE_ACLS, AclOperation.ALTER, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Adds each entry, and answers once this broker obeys them."""
    creations = CREATE_ACLS.decode_request(request.version, request.body).creations
    try:
        GUARD.check(services, request.session)
        if services.authorizer is None:
            raise SecurityDisabledError(NO_AUTHORIZER)
    except MillraceError as error:
        return _respond(services, request.version, [error] * len(creations))
    return later(_create(services, request.version, [_binding(one) for one in each(creations)]))


async def _create(services: Services, version: int, asked: list[AclBinding | MillraceError]) -> Parts:
    failed = await services.acls.create({one for one in asked if isinstance(one, AclBinding)})
    return _respond(services, version, [failed.get(one) if isinstance(one, AclBinding) else one for one in asked])


def _respond(services: Services, version: int, outcomes: Sequence[MillraceError | None]) -> Parts:
    fields: CreateAclsResponseFields = {
        "throttle_time": 0,
        "results": [
            {"error_code": ErrorCode.NONE, "error_message": None}
            if error is None
            else {"error_code": error.code, "error_message": str(error)}
            for error in each(outcomes)
        ],
    }
    return respond(services, CREATE_ACLS, version, fields)


def _binding(asked: AclCreation) -> AclBinding | MillraceError:
    """Returns the entry, or the error of one that can't be created."""
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


API = Api(
    ApiKey.CREATE_ACLS,
    VersionRange(0, 3),
    handle,
    refuses="all without an authorizer (SECURITY_DISABLED)",
    guards=(GUARD,),
)
