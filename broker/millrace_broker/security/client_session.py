"""Who is at the other end of a connection, by which its requests are authorized and its quotas are found.

`Gate` holds back the requests of a connection until somebody has authenticated, and `Authenticator` is what handlers
ask of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

USER = "User"


class Gate(Protocol):
    """Holds a connection's requests back until its client has logged in by SASL."""

    def admits(self, frame: memoryview) -> bool:
        """Returns whether a frame is a request to handle; answers other frames itself. A WireError disconnects."""
        ...

    def close(self) -> None:
        """Ends the wait for a login when the connection has ended."""
        ...


class Challenge(NamedTuple):
    """The answer to a SASL token; `session_lifetime_ms` is 0 before the last token and for a session without end."""

    token: bytes
    session_lifetime_ms: int


class Authenticator(Protocol):
    """The SASL login on one connection, as the handlers of its requests use it."""

    mechanisms: Sequence[str]
    failure_delay_ms: int

    def handshake(self, version: int, mechanism: str) -> None:
        """Takes the mechanism that a client chooses.

        Raises IllegalSaslStateError where no login may begin, UnsupportedSaslMechanismError where it is not offered.
        """
        ...

    def authenticate(self, token: bytes) -> Challenge:
        """Takes a SASL token, and returns the answer to it.

        Raises SaslAuthenticationError where it proves no identity, IllegalSaslStateError where no token may come now.
        """
        ...


class Principal(NamedTuple):
    """A name by which rights are given, as text `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class ClientSession:
    """What handlers know of a connection: the client's host, the listener, and who has authenticated.

    `authenticator` is None where the listener does not ask for SASL. `is_by_token` says that the client has
    authenticated by a delegation token, which gives no right to further tokens.
    """

    host: str = ""
    listener: str = "PLAINTEXT"
    principal: Principal = ANONYMOUS
    authenticator: Authenticator | None = field(default=None, compare=False, repr=False)
    is_by_token: bool = False
