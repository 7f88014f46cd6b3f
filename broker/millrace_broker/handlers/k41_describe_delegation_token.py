"""DescribeDelegationToken, versions 0 to 3 (KIP-48); v1 is v0, v2 flexible; v3 tells who asked for a token (KIP-373).

Tokens that somebody may not see are left out. An empty list of owners asks for nothing, none asks for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.error_codes import ErrorCode
from millrace.errors import MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_DELEGATION_TOKEN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.delegation_tokens import check_allowed
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession, Principal
from millrace_broker.security.tokens.token import DelegationToken, IssuedToken

if TYPE_CHECKING:
    from millrace.wire.messages.describe_delegation_token import (
        DescribedDelegationTokenFields,
        DescribeDelegationTokenResponseFields,
    )

GUARD = Guard(ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, is_silent=True)
OWNER_GUARD = Guard(ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, is_silent=True)


def handle(services: Services, request: Request) -> Reply:
    """Gives tokens with their secrets, or says why none can be seen."""
    message = DESCRIBE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    owners = message.owners
    named = None if owners is None else [Principal(one.principal_type, one.principal_name) for one in owners]
    try:
        code, tokens = ErrorCode.NONE, _tokens(services, request.session, named)
    except MillraceError as error:
        code, tokens = error.code, []
    fields: DescribeDelegationTokenResponseFields = {
        "error_code": code,
        "tokens": [_fields(one) for one in tokens],
        "throttle_time": 0,
    }
    return respond(services, DESCRIBE_DELEGATION_TOKEN, request.version, fields)


def _tokens(services: Services, session: ClientSession, owners: Sequence[Principal] | None) -> list[IssuedToken]:
    check_allowed(session)

    def may_describe(token: DelegationToken) -> bool:
        return GUARD.permits(services, session, token.token_id) or OWNER_GUARD.permits(
            services, session, str(token.owner)
        )

    return services.tokens.describe(session.principal, owners, may_describe)


def _fields(issued: IssuedToken) -> DescribedDelegationTokenFields:
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


API = Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, VersionRange(0, 3), handle, guards=(GUARD, OWNER_GUARD))
