"""AlterUserScramCredentials, version 0 (KIP-554). Each user succeeds or fails by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_USER_SCRAM_CREDENTIALS
from millrace_broker.cluster.config_manager import ConfigManager
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.security.authentication.credentials import user_entity
from millrace_broker.security.authentication.scram_changes import Change, Deletion, Upsertion, altered, by_user

if TYPE_CHECKING:
    from millrace.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponseFields,
        AlterUserScramCredentialsResultFields,
    )

GUARD = Guard(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AclOperation.ALTER, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Alters the credentials of each user."""
    message = ALTER_USER_SCRAM_CREDENTIALS.decode_request(request.version, request.body)
    users = by_user(_changes(message))
    if not GUARD.permits(services, request.session):
        denied = GUARD.denied()
        return _response(services, request.version, [_result(user, denied) for user in each(sorted(users))])
    return later(_respond(services, request.version, users))


async def _respond(services: Services, version: int, users: dict[str, list[Change]]) -> Parts:
    results = [await _alter(services.configs, user, changes) for user, changes in each(users.items())]
    return _response(services, version, results)


def _response(services: Services, version: int, results: list[AlterUserScramCredentialsResultFields]) -> Parts:
    fields: AlterUserScramCredentialsResponseFields = {"throttle_time": 0, "results": results}
    return respond(services, ALTER_USER_SCRAM_CREDENTIALS, version, fields)


async def _alter(configs: ConfigManager, user: str, changes: Sequence[Change]) -> AlterUserScramCredentialsResultFields:
    try:
        if user:
            await configs.change_client(user_entity(user), partial(altered, changes=changes), validate_only=False)
        else:
            altered({}, changes)  # which refuses it
    except MillraceError as error:
        return _result(user, error)
    return _result(user, None)


def _result(user: str, error: MillraceError | None) -> AlterUserScramCredentialsResultFields:
    if error is None:
        return {"user": user, "error_code": ErrorCode.NONE, "error_message": None}
    return {"user": user, "error_code": error.code, "error_message": str(error)}


def _changes(message: AlterUserScramCredentialsRequest) -> list[Change]:
    deletions = [Deletion(one.name, one.mechanism) for one in each(message.deletions)]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
        for one in each(message.upsertions)
    ]
    return [*deletions, *upsertions]


API = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    VersionRange(0, 0),
    handle,
    refuses="fewer than 4096 iterations or more than 16384, and users without a name (UNACCEPTABLE_CREDENTIAL)",
    guards=(GUARD,),
)
