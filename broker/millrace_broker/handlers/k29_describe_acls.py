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
from millrace.wire.encoder import Parts
from millrace.wire.legacy_acls import decode_describe_acls, encode_describe_acls
from millrace.wire.messages import DESCRIBE_ACLS
from millrace_broker.handlers.acl_requests import NO_AUTHORIZER, FilterAsked, filter_of
from millrace_broker.handlers.answers import answer, count_errors
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.describe_acls import DescribeAclsResourceFields, DescribeAclsResponseFields

GUARD = Guard(ApiKey.DESCRIBE_ACLS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the entries that are found, by resource."""
    asked: FilterAsked
    if request.version == 0:
        asked = decode_describe_acls(request.body)
    else:
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
    return _answer(services, request.version, fields)


def _answer(services: Services, version: int, fields: DescribeAclsResponseFields) -> Parts:
    if version > 0:
        return answer(services, DESCRIBE_ACLS, version, fields)
    count_errors(services, ApiKey.DESCRIBE_ACLS, (fields["error_code"],))
    return encode_describe_acls(fields)


def _found(services: Services, asked: FilterAsked) -> list[DescribeAclsResourceFields]:
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
