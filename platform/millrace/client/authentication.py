"""A client's authentication by SASL, for connections of every kind: what to ask, and what the answers mean.

    SaslHandshake v1 ──► SaslAuthenticate, as often as the mechanism has something to say ──► the session's lifetime

Where the broker gives the session a lifetime, the client authenticates again on the same connection before it ends
(KIP-368): after 85 to 95 percent of it, so that many clients don't come at once. Sends and waits for nothing itself.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.errors import (
    ErrorCode,
    IllegalSaslStateError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from millrace.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from millrace.security.sasl.mechanisms import ClientMechanism
    from millrace.wire.api_messages import Called

RENEWAL_EARLIEST, RENEWAL_LATEST = 0.85, 0.95


class Ask(NamedTuple):
    """A request to send; its decoded answer is sent back into the generator."""

    api: Called[Any, Any]
    fields: Any


def authentication(mechanism: ClientMechanism, peer: str) -> Generator[Ask, Any, float | None]:
    """Yields what to ask, and returns the seconds after which to authenticate again; None for never.

    Raises UnsupportedSaslMechanismError, IllegalSaslStateError or SaslAuthenticationError; `peer` is the broker in
    their words.
    """
    offered = yield Ask(SASL_HANDSHAKE, {"mechanism": mechanism.name})
    if offered.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise IllegalSaslStateError(
            f"{peer} takes no authentication now: its listener has no SASL, or it had one just now"
        )
    if offered.error_code != ErrorCode.NONE:
        others = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{peer} does not offer sasl.mechanism={mechanism.name}; it offers {others}"
        )
    response = mechanism.initial_response()
    while True:
        answer = yield Ask(SASL_AUTHENTICATE, {"auth_bytes": response})
        if answer.error_code != ErrorCode.NONE:
            said = answer.error_message or "authentication failed"
            raise SaslAuthenticationError(f"{peer} does not accept the credentials of sasl.jaas.config: {said}")
        response = mechanism.respond(answer.auth_bytes)
        if not response:
            break
    if not mechanism.is_complete:
        raise SaslAuthenticationError(f"{peer} has not proven that it knows the user's password")
    return renewal_s(answer.session_lifetime.total_seconds())


def renewal_s(lifetime_s: float) -> float | None:
    """Returns after how many seconds of a session's lifetime to authenticate again; a lifetime of 0 has no end."""
    share = random.uniform(RENEWAL_EARLIEST, RENEWAL_LATEST)  # noqa: S311 -- spreads clients, and guards nothing
    return lifetime_s * share if lifetime_s > 0 else None
