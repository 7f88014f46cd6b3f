"""DeleteAcls, versions 0 to 3: deletes the entries that filters find from access control lists.

    v0  literal resources alone     v1  pattern types     v2  flexible     v3  resources of users

An entry that several filters find is in the response to the first of them. A broker without an authorizer answers
SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError, SecurityDisabledError
from millrace.security.acls import AclFilter, AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_ACLS
from millrace_broker.cluster.acl_manager import Deleted
from millrace_broker.handlers.acl_requests import NO_AUTHORIZER, filter_of
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.wire.messages.delete_acls import (
        DeleteAclsFilterResultFields,
        DeleteAclsMatchingAclFields,
        DeleteAclsResponseFields,
    )

GUARD = Guard(ApiKey.DELETE_ACLS, AclOperation.ALTER, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Deletes what is found, and answers once this broker has forgotten it."""
    asked = DELETE_ACLS.decode_request(request.version, request.body).filters
    try:
        GUARD.check(services, request.session)
        if services.authorizer is None:
            raise SecurityDisabledError(NO_AUTHORIZER)
        filters = [filter_of(one) for one in asked]
    except MillraceError as error:
        return _respond(services, request.version, [_failed(error)] * len(asked))
    return later(_delete(services, request.version, filters))


async def _delete(services: Services, version: int, filters: list[AclFilter]) -> Parts:
    deleted = await services.acls.delete(filters)
    results: list[DeleteAclsFilterResultFields] = [
        {"error_code": ErrorCode.NONE, "error_message": None, "matching_acls": [_matching(one) for one in found]}
        for found in deleted
    ]
    return _respond(services, version, results)


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


def _respond(services: Services, version: int, results: Sequence[DeleteAclsFilterResultFields]) -> Parts:
    fields: DeleteAclsResponseFields = {"throttle_time": 0, "filter_results": results}
    return respond(services, DELETE_ACLS, version, fields)


API = Api(
    ApiKey.DELETE_ACLS,
    VersionRange(0, 3),
    handle,
    refuses="all without an authorizer (SECURITY_DISABLED)",
    guards=(GUARD,),
)
