r"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): a client shows a token that another server gave it.

client    n,[a=AUTHORIZATION ID],\1auth=Bearer TOKEN[\1EXTENSION=VALUE]…\1\1
server    nothing, or {"status":"invalid_token"}, to which the client answers \1 and the server with the failure
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.sasl.names import OAUTHBEARER, Authenticated, invalid_credentials

NAME = r"(?:[^\x00=,\x01]|=2C|=3D)+"
KEY = r"[A-Za-z]+"
VALUE = r"[\x21-\x7e \t\r\n]+"
INITIAL_RESPONSE = re.compile(rf"n,(?:a=(?P<authorization_id>{NAME}))?,\x01(?P<pairs>(?:{KEY}={VALUE}\x01)*)\x01")
AUTH = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)
AFTER_FAILURE = b"\x01"
INVALID_TOKEN = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An OAuth token as text, and the SASL extensions (RFC 7628) to send with it."""

    text: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class OAuthBearerClient:
    """A client's side of OAUTHBEARER, which sends a token."""

    name = OAUTHBEARER

    def __init__(self, token: BearerToken) -> None:
        for key, value in token.extensions.items():
            if key == "auth" or not re.fullmatch(KEY, key) or not re.fullmatch(VALUE, value):
                raise InvalidConfigError(f"sasl.jaas.config: {key} is no extension that RFC 7628 allows")
        if AUTH.fullmatch(f"Bearer {token.text}") is None:
            raise SaslAuthenticationError("the token has characters that RFC 6750 does not allow")
        self._token = token
        self.is_complete = False

    def initial_response(self) -> bytes:
        """Returns the client's first message, which has the token and its SASL extensions."""
        extensions = "".join(f"\x01{key}={value}" for key, value in self._token.extensions.items())
        return f"n,,\x01auth=Bearer {self._token.text}{extensions}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Returns b"" where the server accepts the token, else the message that asks the server for its error."""
        self.is_complete = not challenge
        return AFTER_FAILURE if challenge else b""


class OAuthBearerServer:
    """A broker's side of OAUTHBEARER; `validate` returns a token's user, or raises SaslAuthenticationError."""

    name = OAUTHBEARER

    def __init__(self, validate: Callable[[str], Authenticated]) -> None:
        self._validate = validate
        self._has_refused = False
        self.authenticated: Authenticated | None = None

    def respond(self, response: bytes) -> bytes:
        """Returns b"" for a valid token, else the error message that RFC 7628 has for an invalid one.

        Raises SaslAuthenticationError for a malformed message, for another user's authorization id, and for any
        message after the first.
        """
        if self._has_refused or self.authenticated is not None:
            raise invalid_credentials(OAUTHBEARER)
        authorization_id, token = parse_initial_response(response)
        try:
            authenticated = self._validate(token)
        except SaslAuthenticationError:
            self._has_refused = True
            return INVALID_TOKEN
        if authorization_id not in ("", authenticated.user):
            raise invalid_credentials(OAUTHBEARER)
        self.authenticated = authenticated
        return b""


def parse_initial_response(message: bytes) -> tuple[str, str]:
    """Returns the authorization id ("" for none) and the token in a client's `n,a=…,^Aauth=Bearer …^A^A`.

    Raises SaslAuthenticationError for another form.
    """
    try:
        match = INITIAL_RESPONSE.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    pairs = () if match is None else match["pairs"].split("\x01")
    auth = AUTH.fullmatch(dict(one.split("=", 1) for one in pairs if one).get("auth", ""))
    if match is None or auth is None:
        raise invalid_credentials(OAUTHBEARER)
    authorization_id = (match["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth["token"]
