"""DescribeUserScramCredentials, version 0 (KIP-554). No user has credentials: one that is named is not found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_USER_SCRAM_CREDENTIALS
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponseFields,
        DescribeUserScramCredentialsResultFields,
    )


def handle(services: Services, request: Request) -> Reply:  # noqa: ARG001  # every handler has the same signature
    """Returns an error for each user that is named, and an empty list for all users."""
    message = DESCRIBE_USER_SCRAM_CREDENTIALS.decode_request(request.version, request.body)
    named = Counter(user.name for user in message.users or ())
    fields: DescribeUserScramCredentialsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [_result(user, times) for user, times in named.items()],
    }
    return [DESCRIBE_USER_SCRAM_CREDENTIALS.encode_response(request.version, fields)]


def _result(user: str, times: int) -> DescribeUserScramCredentialsResultFields:
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is asked for {times} times"
    else:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials"
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": ()}


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, VersionRange(0, 0), handle)
