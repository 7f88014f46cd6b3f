"""SaslAuthenticate, versions 0 to 2 (KIP-152): a token of the mechanism that SaslHandshake has chosen.

v1 tells how long the session lasts (KIP-368); v2 flexible. A token that proves nothing is answered late, in words that
don't say whether the user exists, and then the connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, IllegalSaslStateError, SaslAuthenticationError, SecurityError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import SASL_AUTHENTICATE
from millrace_broker.handlers.api import UNGUARDED, Api, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_later

if TYPE_CHECKING:
    from millrace.wire.messages.sasl_authenticate import SaslAuthenticateResponseFields

FIRST_VERSION_WITH_LIFETIME = 1


def handle(services: Services, request: Request) -> Reply:
    """Takes a token, and answers with the mechanism's challenge."""
    message = SASL_AUTHENTICATE.decode_request(request.version, request.body)
    authenticator = request.session.authenticator
    if authenticator is None:
        nobody = IllegalSaslStateError("nobody authenticates on this listener")
        return respond(services, SASL_AUTHENTICATE, request.version, _refused(nobody))
    try:
        challenge = authenticator.authenticate(message.auth_bytes)
    except IllegalSaslStateError as illegal:
        return respond(services, SASL_AUTHENTICATE, request.version, _refused(illegal))
    except SaslAuthenticationError as failure:
        parts = respond(services, SASL_AUTHENTICATE, request.version, _refused(failure))
        return respond_later(parts, authenticator.failure_delay_ms)
    fields: SaslAuthenticateResponseFields = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "auth_bytes": challenge.token,
    }
    if request.version >= FIRST_VERSION_WITH_LIFETIME:
        fields["session_lifetime"] = challenge.session_lifetime_ms
    return respond(services, SASL_AUTHENTICATE, request.version, fields)


def _refused(error: SecurityError) -> SaslAuthenticateResponseFields:
    return {"error_code": error.code, "error_message": str(error), "auth_bytes": b""}


API = Api(
    ApiKey.SASL_AUTHENTICATE,
    VersionRange(0, 2),
    handle,
    refuses="tokens that prove nothing (SASL_AUTHENTICATION_FAILED); where none is expected (ILLEGAL_SASL_STATE)",
    guards=UNGUARDED,
)
