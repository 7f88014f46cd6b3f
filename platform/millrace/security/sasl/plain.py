r"""The mechanism PLAIN (RFC 4616): name and password in one message, so only for a connection that is encrypted.

[authorization id] \0 name \0 password
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256

from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.sasl.names import PLAIN, Authenticated, invalid_credentials


class PlainClient:
    """A client's side of PLAIN, which sends its name and password."""

    name = PLAIN

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username + password:
            raise InvalidConfigError("sasl.jaas.config: PLAIN can't send a name or password with the character NUL")
        self._message = f"\0{username}\0{password}".encode()
        self.is_complete = False

    def initial_response(self) -> bytes:
        """Returns the client's only message, which has the name and the password."""
        self.is_complete = True
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        """Returns b"", as PLAIN has only one message; raises SaslAuthenticationError for a non-empty challenge."""
        if challenge:
            raise SaslAuthenticationError("the server asks for more than PLAIN has to say")
        return b""


class PlainServer:
    """A broker's side of PLAIN, with a password by user; it takes as long for an unknown user as for a known one."""

    name = PLAIN

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.authenticated: Authenticated | None = None

    def respond(self, response: bytes) -> bytes:
        """Returns b"" if the client's message has a user's right password; else raises SaslAuthenticationError."""
        try:
            authorization_id, user, password = response.decode().split("\0")
        except ValueError:
            raise invalid_credentials(PLAIN) from None
        is_right = hmac.compare_digest(_digest(password), _digest(self._passwords.get(user, "")))
        if not (is_right and password and user in self._passwords and authorization_id in ("", user)):
            raise invalid_credentials(PLAIN)
        self.authenticated = Authenticated(user)
        return b""


def _digest(password: str) -> bytes:
    """Returns the SHA-256 of a password, so that comparisons of passwords of any length take the same time."""
    return sha256(password.encode()).digest()
