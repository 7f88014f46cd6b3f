"""ExpireDelegationToken, versions 0 to 2 (KIP-48); v1 is v0, v2 flexible.

The token ends after a period, or with a negative one at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import EXPIRE_DELEGATION_TOKEN
from millrace_broker.handlers.api import UNGUARDED, Api, Reply, Request, Services
from millrace_broker.handlers.delegation_tokens import expiry_or_error
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponseFields,
    )


def handle(services: Services, request: Request) -> Reply:
    """Says when the token expires now, or why it does not."""
    message = EXPIRE_DELEGATION_TOKEN.decode_request(request.version, request.body)
    return later(_respond(services, request.version, request.session, message))


async def _respond(
    services: Services, version: int, session: ClientSession, message: ExpireDelegationTokenRequest
) -> Parts:
    tokens, wanted_ms = services.tokens, message.expiry_time_period
    code, expiry = await expiry_or_error(session, lambda: tokens.expire(session.principal, message.hmac, wanted_ms))
    fields: ExpireDelegationTokenResponseFields = {
        "error_code": code,
        "expiry_timestamp": expiry,
        "throttle_time": 0,
    }
    return respond(services, EXPIRE_DELEGATION_TOKEN, version, fields)


# Whoever has the secret of a token, and owns it or renews it, may do this.
API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, VersionRange(0, 2), handle, guards=UNGUARDED)
