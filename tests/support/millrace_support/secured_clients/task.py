"""What a secured client is to do: log in, produce values 0, 1, 2, …, and consume them as a group's member."""

from __future__ import annotations

from dataclasses import dataclass, field

USER, PASSWORD = "alice", "correct-horse-7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client reaches a broker, and who it is.

    Attributes:
        bootstrap: `HOST:PORT` of the listener.
        authority: The file in PEM with the authority that the client trusts.
        mechanism: The mechanism of SASL; without one there is TLS alone.
        user: The user's name, or the id of a delegation token.
        password: The user's password, or the secret of a delegation token.
        is_delegated: Whether the user is a delegation token.
        token: What OAUTHBEARER shows.
        token_url: Where a client that wants to ask for its token itself does so.
        certificate: The file in PEM with the client's certificate; empty where it shows none.
        key: The file in PEM with the key of that certificate.
        key_store: The file in PEM with both.
    """

    bootstrap: str
    authority: str
    mechanism: str = ""
    user: str = USER
    password: str = field(default=PASSWORD, repr=False)
    is_delegated: bool = False
    token: str = field(default="", repr=False)
    token_url: str = ""
    certificate: str = ""
    key: str = ""
    key_store: str = ""

    @property
    def protocol(self) -> str:
        """The security protocol."""
        return "SASL_SSL" if self.mechanism else "SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A login, and how many values go through a topic, with a pause after each; the group has the same name."""

    login: Login
    topic: str
    records: int = 20
    pause_ms: int = 0

    @property
    def values(self) -> list[str]:
        """The values that a client produces."""
        return [str(number) for number in range(self.records)]


class RefusedError(Exception):
    """A client is not served; the message is all that the client says about it."""
