"""DescribeUserScramCredentials and AlterUserScramCredentials, version 0 (KIP-554).

Mechanisms and iterations are described; no key leaves the broker. Each user that is altered succeeds or fails alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from millrace.error_codes import error_sentence
from millrace.errors import DuplicateResourceError, ErrorCode, MillraceError, ResourceNotFoundError
from millrace.security.acls import AclOperation, ResourceType
from millrace.security.sasl.scram import SCRAM_TYPES, parse_credential
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from millrace_broker.cluster.config_manager import ConfigManager
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.security.authentication.credentials import (
    Change,
    Deletion,
    Upsertion,
    altered,
    by_user,
    user_entity,
    users_of,
)

if TYPE_CHECKING:
    from millrace.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponseFields,
        AlterUserScramCredentialsResultFields,
    )
    from millrace.wire.messages.describe_user_scram_credentials import (
        CredentialInfoFields,
        DescribeUserScramCredentialsResponseFields,
        DescribeUserScramCredentialsResultFields,
    )

Users = Mapping[str, Mapping[str, str]]
MECHANISMS = frozenset(SCRAM_TYPES.values())
DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, AclOperation.DESCRIBE, ResourceType.CLUSTER)
ALTER_GUARD = Guard(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AclOperation.ALTER, ResourceType.CLUSTER)


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeUserScramCredentials with the mechanisms and iterations of the named users, or of all."""
    message = DESCRIBE_USER_SCRAM_CREDENTIALS.decode_request(request.version, request.body)
    fields: DescribeUserScramCredentialsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": (),
    }
    if not DESCRIBE_GUARD.permits(services, request.session):
        fields |= {"error_code": DESCRIBE_GUARD.error, "error_message": error_sentence(DESCRIBE_GUARD.error)}
        return respond(services, DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, fields)
    users = users_of(services.metadata.image.client_configs)
    times = Counter(user.name for user in each(message.users or ()))
    if not times:
        times = Counter(sorted(user for user, config in users.items() if not config.keys().isdisjoint(MECHANISMS)))
    fields["results"] = [_described(user, count, users) for user, count in each(times.items())]
    return respond(services, DESCRIBE_USER_SCRAM_CREDENTIALS, request.version, fields)


def _described(user: str, times: int, users: Users) -> DescribeUserScramCredentialsResultFields:
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


def alter(services: Services, request: Request) -> Reply:
    """Handles AlterUserScramCredentials: sets or deletes SCRAM credentials; the response has an error for each user."""
    message = ALTER_USER_SCRAM_CREDENTIALS.decode_request(request.version, request.body)
    users = by_user(_changes(message))
    if not ALTER_GUARD.permits(services, request.session):
        denied = ALTER_GUARD.denied()
        return _respond(services, request.version, [_altered(user, denied) for user in each(sorted(users))])
    return later(_alter_each(services, request.version, users))


async def _alter_each(services: Services, version: int, users: dict[str, list[Change]]) -> Parts:
    results = [await _alter(services.configs, user, changes) for user, changes in each(users.items())]
    return _respond(services, version, results)


def _respond(services: Services, version: int, results: list[AlterUserScramCredentialsResultFields]) -> Parts:
    fields: AlterUserScramCredentialsResponseFields = {"throttle_time": 0, "results": results}
    return respond(services, ALTER_USER_SCRAM_CREDENTIALS, version, fields)


async def _alter(configs: ConfigManager, user: str, changes: Sequence[Change]) -> AlterUserScramCredentialsResultFields:
    try:
        if user:
            await configs.change_client(user_entity(user), partial(altered, changes=changes), validate_only=False)
        else:
            altered({}, changes)  # which refuses it
    except MillraceError as error:
        return _altered(user, error)
    return _altered(user, None)


def _altered(user: str, error: MillraceError | None) -> AlterUserScramCredentialsResultFields:
    code, text = (ErrorCode.NONE, None) if error is None else (error.code, str(error))
    return {"user": user, "error_code": code, "error_message": text}


def _changes(message: AlterUserScramCredentialsRequest) -> list[Change]:
    deletions = [Deletion(one.name, one.mechanism) for one in each(message.deletions)]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
        for one in each(message.upsertions)
    ]
    return [*deletions, *upsertions]


APIS = (
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, VersionRange(0, 0), describe, guards=(DESCRIBE_GUARD,)),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        VersionRange(0, 0),
        alter,
        refuses="fewer than 4096 iterations or more than 16384, and users without a name (UNACCEPTABLE_CREDENTIAL)",
        guards=(ALTER_GUARD,),
    ),
)
