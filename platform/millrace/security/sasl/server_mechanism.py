"""What the broker's side of an authentication does, whatever its mechanism, and what comes of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from millrace.errors import SaslAuthenticationError


class Authenticated(NamedTuple):
    """Who has proven its identity: the user, until when (ms since the epoch; None: for good), and by which token."""

    user: str
    expires_ms: int | None = None
    is_by_token: bool = False


class ServerMechanism(Protocol):
    """The broker's side of one authentication."""

    name: str

    @property
    def authenticated(self) -> Authenticated | None:
        """The user, as soon as nothing is left to prove."""
        ...

    def respond(self, response: bytes) -> bytes:
        """Returns the challenge to a client's message; SaslAuthenticationError if it proves nothing."""
        ...


def invalid_credentials(mechanism: str) -> SaslAuthenticationError:
    """Returns the one error of a mechanism: it is the same for an unknown user, a wrong password and odd bytes."""
    return SaslAuthenticationError(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
