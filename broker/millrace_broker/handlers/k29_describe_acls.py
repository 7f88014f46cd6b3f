"""DescribeAcls, versions 0 to 3: the access control lists that a filter finds.

    v0  literal resources alone     v1  pattern types     v2  flexible     v3  resources of users

A broker without an authorizer answers SECURITY_DISABLED.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError, SecurityDisabledError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_ACLS
from millrace_broker.handlers.acl_requests import NO_AUTHORIZER, filter_of
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.describe_acls import (
        DescribeAclsRequest,
        DescribeAclsResourceFields,
        DescribeAclsResponseFields,
    )

GUARD = Guard(ApiKey.DESCRIBE_ACLS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the entries that are found, by resource."""
    asked = DESCRIBE_ACLS.decode_request(request.version, request.body)
    fields: DescribeAclsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resources": (),
    }
    try:
        GUARD.check(services, request.session)
        if services.authorizer is None:
            raise SecurityDisabledError(NO_AUTHORIZER)
        fields["resources"] = _found(services, asked)
    except MillraceError as error:
        fields |= {"error_code": error.code, "error_message": str(error)}
    return respond(services, DESCRIBE_ACLS, request.version, fields)


def _found(services: Services, asked: DescribeAclsRequest) -> list[DescribeAclsResourceFields]:
    found = services.acls.find(filter_of(asked))
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


API = Api(
    ApiKey.DESCRIBE_ACLS,
    VersionRange(0, 3),
    handle,
    refuses="all without an authorizer (SECURITY_DISABLED)",
    guards=(GUARD,),
)
