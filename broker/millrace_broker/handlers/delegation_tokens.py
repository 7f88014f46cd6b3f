"""The four requests about delegation tokens (KIP-48).

    CreateDelegationToken    v0 to v3    v3 names an owner (KIP-373)
    RenewDelegationToken     v0 to v2    the token lives on for a period from now, at most for its life
    ExpireDelegationToken    v0 to v2    the token ends after a period, or with a negative one at once
    DescribeDelegationToken  v0 to v3    v3 tells who asked for a token (KIP-373)

v1 is v0, and v2 is flexible. Tokens that somebody may not see are left out of a description; an empty list of owners
asks for nothing, none asks for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from millrace.error_codes import ErrorCode
from millrace.errors import DelegationTokenRequestNotAllowedError, InvalidPrincipalTypeError, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import Answered
from millrace.wire.encoder import Parts
from millrace.wire.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from millrace_broker.handlers.api import UNGUARDED, Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ANONYMOUS, ClientSession, Principal
from millrace_broker.security.tokens import DelegationToken, IssuedToken, TokenRequest

if TYPE_CHECKING:
    from millrace.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponseFields,
    )
    from millrace.wire.messages.describe_delegation_token import (
        DescribedDelegationTokenFields,
        DescribeDelegationTokenResponseFields,
    )
    from millrace.wire.messages.renew_delegation_token import RenewDelegationTokenResponseFields

NO_TIME_MS = -1
CREATE_GUARD = Guard(ApiKey.CREATE_DELEGATION_TOKEN, AclOperation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_GUARD = Guard(
    ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, is_silent=True
)
OWNER_GUARD = Guard(ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, is_silent=True)


def _check_allowed(session: ClientSession) -> None:
    """Raises DelegationTokenRequestNotAllowedError for an anonymous client, or one that logged in by such a token."""
    if session.principal == ANONYMOUS or session.is_by_token:
        raise DelegationTokenRequestNotAllowedError("delegation tokens need a login that is not one by a token")


def create(services: Services, request: Request) -> Reply:
    """Handles CreateDelegationToken: responds with a new token and its secret, the HMAC, or with an error."""
    message = CREATE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    return later(_create(services, request.version, request.session, message))


async def _create(
    services: Services, version: int, session: ClientSession, message: CreateDelegationTokenRequest
) -> Parts:
    asked = _asked(session.principal, message)
    try:
        _check(services, session, asked)
        fields = _created(await services.tokens.create(asked))
    except MillraceError as error:
        fields = {**_created(_no_token(asked)), "error_code": error.code}
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
    _check_allowed(session)
    if asked.owner != asked.requester:
        CREATE_GUARD.check(services, session, str(asked.owner))
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


def _created(issued: IssuedToken) -> CreateDelegationTokenResponseFields:
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


def renew(services: Services, request: Request) -> Reply:
    """Handles RenewDelegationToken: renews the token of the request's HMAC; responds with its expiry or an error."""
    message = RENEW_DELEGATION_TOKEN.decode_request(request.version, request.body)
    principal = request.session.principal
    change = partial(services.tokens.renew, principal, message.hmac, message.renew_period)
    return later(_change_expiry(services, request.without_body(), RENEW_DELEGATION_TOKEN, change))


def expire(services: Services, request: Request) -> Reply:
    """Handles ExpireDelegationToken: lets a token expire after a period; responds with that time or an error."""
    message = EXPIRE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    principal = request.session.principal
    change = partial(services.tokens.expire, principal, message.hmac, message.expiry_time_period)
    return later(_change_expiry(services, request.without_body(), EXPIRE_DELEGATION_TOKEN, change))


async def _change_expiry(
    services: Services,
    request: Request,
    api: Answered[RenewDelegationTokenResponseFields],
    change: Callable[[], Awaitable[int]],
) -> Parts:
    """Calls `change`, and responds with the expiry (ms since 1970) that it returns, or with the code of its error."""
    fields: RenewDelegationTokenResponseFields = {
        "error_code": ErrorCode.NONE,
        "expiry_timestamp": NO_TIME_MS,
        "throttle_time": 0,
    }
    try:
        _check_allowed(request.session)
        fields["expiry_timestamp"] = await change()
    except MillraceError as error:
        fields["error_code"] = error.code
    return respond(services, api, request.version, fields)


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeDelegationToken with the tokens that the client may see and their secrets, or an error."""
    message = DESCRIBE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    owners = message.owners
    named = None if owners is None else [Principal(one.principal_type, one.principal_name) for one in owners]
    try:
        code, tokens = ErrorCode.NONE, _tokens(services, request.session, named)
    except MillraceError as error:
        code, tokens = error.code, []
    fields: DescribeDelegationTokenResponseFields = {
        "error_code": code,
        "tokens": [_described(one) for one in tokens],
        "throttle_time": 0,
    }
    return respond(services, DESCRIBE_DELEGATION_TOKEN, request.version, fields)


def _tokens(services: Services, session: ClientSession, owners: Sequence[Principal] | None) -> list[IssuedToken]:
    _check_allowed(session)

    def may_describe(token: DelegationToken) -> bool:
        return DESCRIBE_GUARD.permits(services, session, token.token_id) or OWNER_GUARD.permits(
            services, session, str(token.owner)
        )

    return services.tokens.describe(session.principal, owners, may_describe)


def _described(issued: IssuedToken) -> DescribedDelegationTokenFields:
    token = issued.token
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": issued.hmac,
        "renewers": [{"principal_type": one.type, "principal_name": one.name} for one in token.renewers],
    }


APIS = (
    Api(ApiKey.CREATE_DELEGATION_TOKEN, VersionRange(0, 3), create, guards=(CREATE_GUARD,)),
    # Whoever has the secret of a token, and owns it or renews it, may renew it and let it expire.
    Api(ApiKey.RENEW_DELEGATION_TOKEN, VersionRange(0, 2), renew, guards=UNGUARDED),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, VersionRange(0, 2), expire, guards=UNGUARDED),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, VersionRange(0, 3), describe, guards=(DESCRIBE_GUARD, OWNER_GUARD)),
)
