"""CreateDelegationToken, versions 0 to 3 (KIP-48); v1 is v0, v2 flexible; v3 names an owner (KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import InvalidPrincipalTypeError, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_DELEGATION_TOKEN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.delegation_tokens import NO_TIME_MS, check_allowed
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession, Principal
from millrace_broker.security.tokens.token import DelegationToken, IssuedToken, TokenRequest

if TYPE_CHECKING:
    from millrace.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponseFields,
    )

GUARD = Guard(ApiKey.CREATE_DELEGATION_TOKEN, AclOperation.CREATE_TOKENS, ResourceType.USER)


def handle(services: Services, request: Request) -> Reply:
    """Gives the token with its secret, or says why there is none."""
    message = CREATE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    return later(_respond(services, request.version, request.session, message))


async def _respond(
    services: Services, version: int, session: ClientSession, message: CreateDelegationTokenRequest
) -> Parts:
    asked = _asked(session.principal, message)
    try:
        _check(services, session, asked)
        fields = _fields(await services.tokens.create(asked))
    except MillraceError as error:
        fields = {**_fields(_no_token(asked)), "error_code": error.code}
    return respond(services, CREATE_DELEGATION_TOKEN, version, fields)


def _asked(principal: Principal, message: CreateDelegationTokenRequest) -> TokenRequest:
    name = message.owner_principal_name
    return TokenRequest(
        requester=principal,
        owner=Principal(message.owner_principal_type or "", name) if name else principal,
        renewers=tuple(Principal(one.principal_type, one.principal_name) for one in each(message.renewers)),
        max_lifetime_ms=message.max_lifetime,
    )


def _check(services: Services, session: ClientSession, asked: TokenRequest) -> None:
    check_allowed(session)
    if asked.owner != asked.requester:
        GUARD.check(services, session, str(asked.owner))
    if not asked.has_only_users:
        raise InvalidPrincipalTypeError("renewers of a delegation token are users")


def _no_token(asked: TokenRequest) -> IssuedToken:
    return IssuedToken(
        DelegationToken(
            token_id="",
            owner=asked.owner,
            requester=asked.requester,
            renewers=(),
            issue_ms=NO_TIME_MS,
            max_ms=NO_TIME_MS,
            expiry_ms=NO_TIME_MS,
        ),
        b"",
    )


def _fields(issued: IssuedToken) -> CreateDelegationTokenResponseFields:
    token = issued.token
    return {
        "error_code": 0,
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": issued.hmac,
        "throttle_time": 0,
    }


API = Api(ApiKey.CREATE_DELEGATION_TOKEN, VersionRange(0, 3), handle, guards=(GUARD,))
