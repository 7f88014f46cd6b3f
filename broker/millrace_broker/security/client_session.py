"""Who is at the other end of a connection, by which its requests are authorized and its quotas are found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from millrace_broker.security.authenticator import Authenticator

USER = "User"


class Principal(NamedTuple):
    """Somebody who is known by name, in Kafka's form `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class ClientSession:
    """One connection: the host it comes from, the listener it came by, and who has authenticated on it.

    `authenticator` is None where the listener does not ask for SASL. `is_by_token` says that the client has
    authenticated by a delegation token, which gives no right to further tokens.
    """

    host: str = ""
    listener: str = "PLAINTEXT"
    principal: Principal = ANONYMOUS
    authenticator: Authenticator | None = field(default=None, compare=False, repr=False)
    is_by_token: bool = False
