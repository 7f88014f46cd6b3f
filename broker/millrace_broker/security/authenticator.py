"""What handlers ask of a connection on which somebody authenticates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Challenge(NamedTuple):
    """The answer to a token. `session_lifetime_ms` is 0 before the last one, and where the session is endless."""

    token: bytes
    session_lifetime_ms: int


class Authenticator(Protocol):
    """One connection of a listener that asks for SASL."""

    mechanisms: Sequence[str]
    failure_delay_ms: int

    def handshake(self, version: int, mechanism: str) -> None:
        """Takes the mechanism that a client chooses.

        Raises IllegalSaslStateError where it may not authenticate now, UnsupportedSaslMechanismError where it is not
        offered.
        """
        ...

    def authenticate(self, token: bytes) -> Challenge:
        """Takes a token.

        Raises SaslAuthenticationError where it proves nothing, IllegalSaslStateError where none may come.
        """
        ...
