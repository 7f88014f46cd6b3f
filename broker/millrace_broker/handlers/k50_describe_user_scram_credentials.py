"""DescribeUserScramCredentials, version 0 (KIP-554): mechanisms and iterations; no key leaves the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.error_codes import error_sentence
from millrace.errors import DuplicateResourceError, ErrorCode, MillraceError, ResourceNotFoundError
from millrace.security.acls import AclOperation, ResourceType
from millrace.security.sasl.scram import SCRAM_TYPES, parse_credential
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_USER_SCRAM_CREDENTIALS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.security.authentication.credentials import users_of

if TYPE_CHECKING:
    from millrace.wire.messages.describe_user_scram_credentials import (
        CredentialInfoFields,
        DescribeUserScramCredentialsResponseFields,
        DescribeUserScramCredentialsResultFields,
    )

Users = Mapping[str, Mapping[str, str]]
MECHANISMS = frozenset(SCRAM_TYPES.values())
GUARD = Guard(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Describes the users that are named, or all that have credentials."""
    message = DESCRIBE_USER_SCRAM_CREDENTIALS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        denied: DescribeUserScramCredentialsResponseFields = {
            "throttle_time": 0,
            "error_code": GUARD.error,
            "error_message": error_sentence(GUARD.error),
            "results": (),
        }
        return respond(services, DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, denied)
    users = users_of(services.metadata.image.client_configs)
    times = Counter(user.name for user in each(message.users or ()))
    if not times:
        times = Counter(sorted(user for user, config in users.items() if not config.keys().isdisjoint(MECHANISMS)))
    fields: DescribeUserScramCredentialsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [_result(user, count, users) for user, count in each(times.items())],
    }
    return respond(services, DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, fields)


def _result(user: str, times: int, users: Users) -> DescribeUserScramCredentialsResultFields:
    code, text = ErrorCode.NONE, None
    found: list[CredentialInfoFields] = []
    try:
        found = _infos(user, times, users.get(user, {}))
    except MillraceError as error:
        code, text = error.code, str(error)
    return {"user": user, "error_code": code, "error_message": text, "credential_infos": found}


def _infos(user: str, times: int, config: Mapping[str, str]) -> list[CredentialInfoFields]:
    if times > 1:
        raise DuplicateResourceError(f"user {user!r} is asked for {times} times")
    found: list[CredentialInfoFields] = [
        {"mechanism": number, "iterations": parse_credential(config[name]).iterations}
        for number, name in SCRAM_TYPES.items()
        if name in config
    ]
    if not found:
        raise ResourceNotFoundError(f"user {user!r} has no SCRAM credentials")
    return found


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, VersionRange(0, 0), handle, guards=(GUARD,))
