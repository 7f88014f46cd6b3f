"""SaslHandshake, versions 0 and 1 (KIP-43, KIP-152): a client chooses its mechanism. After v0, tokens are bare frames.

A mechanism that the listener does not offer is answered with those that it does, and then the connection is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, IllegalSaslStateError, UnsupportedSaslMechanismError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import SASL_HANDSHAKE
from millrace_broker.handlers.api import UNGUARDED, Api, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_later

if TYPE_CHECKING:
    from millrace.wire.messages.sasl_handshake import SaslHandshakeResponseFields


def handle(services: Services, request: Request) -> Reply:
    """Begins an authentication."""
    message = SASL_HANDSHAKE.decode_request(request.version, request.body)
    authenticator = request.session.authenticator
    if authenticator is None:
        return respond(services, SASL_HANDSHAKE, request.version, _fields(ErrorCode.ILLEGAL_SASL_STATE, ()))
    code, delay_ms = ErrorCode.NONE, 0
    try:
        authenticator.handshake(request.version, message.mechanism)
    except IllegalSaslStateError as error:
        code = error.code
    except UnsupportedSaslMechanismError as error:
        code, delay_ms = error.code, authenticator.failure_delay_ms
    parts = respond(services, SASL_HANDSHAKE, request.version, _fields(code, authenticator.mechanisms))
    return respond_later(parts, delay_ms) if delay_ms else parts


def _fields(code: ErrorCode, mechanisms: Sequence[str]) -> SaslHandshakeResponseFields:
    return {"error_code": code, "mechanisms": mechanisms}


API = Api(
    ApiKey.SASL_HANDSHAKE,
    VersionRange(0, 1),
    handle,
    refuses="mechanisms that the listener does not offer (UNSUPPORTED_SASL_MECHANISM); "
    "where no authentication may begin (ILLEGAL_SASL_STATE)",
    guards=UNGUARDED,
)
