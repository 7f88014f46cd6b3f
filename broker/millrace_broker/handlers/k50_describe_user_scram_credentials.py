"""DescribeUserScramCredentials, version 0 (KIP-554). No user has any: a user who is asked for by name is not found."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.handlers.api import Api, Reply, Request, Services


def handle(services: Services, request: Request) -> Reply:  # noqa: ARG001  # every handler has the same signature
    """One result for each user that is named; none for all users."""
    message = decode(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, Direction.REQUEST, request.body)
    named = Counter(user.name for user in message.users or ())
    fields: dict[str, Any] = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [_result(user, times) for user, times in named.items()],
    }
    return [encode(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, Direction.RESPONSE, fields)]


def _result(user: str, times: int) -> dict[str, Any]:
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is asked for {times} times"
    else:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials"
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": ()}


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, VersionRange(0, 0), handle)
