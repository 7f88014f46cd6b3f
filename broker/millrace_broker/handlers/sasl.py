"""SaslHandshake and SaslAuthenticate: a client chooses its mechanism, and then sends the tokens of that mechanism.

    SaslHandshake     v0, v1      KIP-43, KIP-152; after v0, tokens are bare frames
    SaslAuthenticate  v0 to v2    KIP-152; v1 tells how long the session lasts (KIP-368), v2 flexible

A mechanism that the listener does not offer is answered with those that it does. A token that proves nothing is
answered late, in words that don't say whether the user exists. Then the connection is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import (
    ErrorCode,
    IllegalSaslStateError,
    SaslAuthenticationError,
    SecurityError,
    UnsupportedSaslMechanismError,
)
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE
from millrace_broker.handlers.api import UNGUARDED, Api, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_later

if TYPE_CHECKING:
    from millrace.wire.messages.sasl_authenticate import SaslAuthenticateResponseFields
    from millrace.wire.messages.sasl_handshake import SaslHandshakeResponseFields

FIRST_VERSION_WITH_LIFETIME = 1


def handshake(services: Services, request: Request) -> Reply:
    """Handles SaslHandshake: keeps the client's mechanism, or responds with the mechanisms that the listener offers."""
    message = SASL_HANDSHAKE.decode_request(request.version, request.body)
    authenticator = request.session.authenticator
    if authenticator is None:
        return respond(services, SASL_HANDSHAKE, request.version, _handshaken(ErrorCode.ILLEGAL_SASL_STATE, ()))
    code, delay_ms = ErrorCode.NONE, 0
    try:
        authenticator.handshake(request.version, message.mechanism)
    except IllegalSaslStateError as error:
        code = error.code
    except UnsupportedSaslMechanismError as error:
        code, delay_ms = error.code, authenticator.failure_delay_ms
    parts = respond(services, SASL_HANDSHAKE, request.version, _handshaken(code, authenticator.mechanisms))
    return respond_later(parts, delay_ms) if delay_ms else parts


def _handshaken(code: ErrorCode, mechanisms: Sequence[str]) -> SaslHandshakeResponseFields:
    return {"error_code": code, "mechanisms": mechanisms}


def authenticate(services: Services, request: Request) -> Reply:
    """Handles SaslAuthenticate: passes the token to the login; responds with a challenge, or an error after a delay."""
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


APIS = (
    Api(
        ApiKey.SASL_HANDSHAKE,
        VersionRange(0, 1),
        handshake,
        refuses="mechanisms that the listener does not offer (UNSUPPORTED_SASL_MECHANISM); "
        "where no authentication may begin (ILLEGAL_SASL_STATE)",
        guards=UNGUARDED,
    ),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        VersionRange(0, 2),
        authenticate,
        refuses="tokens that prove nothing (SASL_AUTHENTICATION_FAILED); where none is expected (ILLEGAL_SASL_STATE)",
        guards=UNGUARDED,
    ),
)
