"""The four messages of SCRAM (RFC 5802, section 7), without channel binding, which Kafka does not offer.

    client first    n,[a=AUTHORIZATION ID],n=NAME,r=NONCE[,tokenauth=true]
    server first    r=NONCE AND SERVER'S NONCE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE AND SERVER'S NONCE,p=PROOF
    server final    v=SIGNATURE, or e=ERROR

Both sides sign the `auth message`: the first three messages, without the beginning of the first, `n,…,`, and without
the proof of the third.
In names "," is written =2C and "=" is written =3D. An extension that is not known is ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from millrace.errors import SaslAuthenticationError

VALUE = r"[^\x00,]+"
NAME = r"(?:[^\x00=,]|=2C|=3D)+"
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
BASE64 = r"[A-Za-z0-9+/]*={0,2}"
EXTENSIONS = rf"(?:,[A-Za-z]+={VALUE})*"
CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{NAME}))?,(?P<bare>(?:m={VALUE},)?n=(?P<name>{NAME}),r=(?P<nonce>{NONCE})"
    rf"(?P<extensions>{EXTENSIONS}))"
)
SERVER_FIRST = re.compile(
    rf"(?:m={VALUE},)?r=(?P<nonce>{NONCE}),s=(?P<salt>{BASE64}),i=(?P<iterations>[0-9]{{1,9}}){EXTENSIONS}"
)
CLIENT_FINAL = re.compile(rf"(?P<bare>c=(?P<channel>{BASE64}),r=(?P<nonce>{NONCE}){EXTENSIONS}),p=(?P<proof>{BASE64})")
SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{VALUE})|v=(?P<signature>{BASE64})){EXTENSIONS}")
GS2_HEADER = "n,,"
CHANNEL = base64.b64encode(GS2_HEADER.encode()).decode()
TOKEN_EXTENSION = "tokenauth"  # noqa: S105 -- an extension's name


class ClientFirst(NamedTuple):
    """A client's first message; `bare` is the part that is signed."""

    bare: str
    name: str
    authorization_id: str
    nonce: str
    is_by_token: bool


class ServerFirst(NamedTuple):
    """A server's first message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """A client's last message; `bare` is the part that is signed."""

    bare: str
    nonce: str
    proof: bytes


class ServerFinal(NamedTuple):
    """A server's last message: its signature, or its error."""

    signature: bytes
    error: str | None


def client_first(name: str, nonce: str, *, is_by_token: bool) -> str:
    """Returns the part of a client's first message that is signed."""
    sasl_name = name.replace("=", "=3D").replace(",", "=2C")
    return f"n={sasl_name},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if is_by_token else "")


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """Returns a server's first message."""
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def client_final(nonce: str) -> str:
    """Returns the part of a client's last message that is signed."""
    return f"c={CHANNEL},r={nonce}"


def auth_message(first: str, challenge: str, final: str) -> bytes:
    """Returns what both sides sign."""
    return f"{first},{challenge},{final}".encode()


def parse_client_first(message: bytes) -> ClientFirst:
    """Returns a client's first message; raises SaslAuthenticationError for another form, as in the parsers below."""
    match = _match(CLIENT_FIRST, message)
    extensions = dict(one.split("=", 1) for one in match["extensions"].split(",") if one)
    return ClientFirst(
        match["bare"],
        _name(match["name"]),
        _name(match["authorization_id"] or ""),
        match["nonce"],
        extensions.get(TOKEN_EXTENSION, "").lower() == "true",
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Returns a server's first message."""
    match = _match(SERVER_FIRST, message)
    return ServerFirst(match[0], match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def parse_client_final(message: bytes) -> ClientFinal:
    """Returns a client's last message."""
    match = _match(CLIENT_FINAL, message)
    return ClientFinal(match["bare"], match["nonce"], _decoded(match["proof"]))


def parse_server_final(message: bytes) -> ServerFinal:
    """Returns a server's last message."""
    match = _match(SERVER_FINAL, message)
    return ServerFinal(_decoded(match["signature"] or ""), match["error"])


def encoded(prefix: str, value: bytes) -> bytes:
    """Returns the end of a message: its letter and a value in base 64."""
    return f"{prefix}={base64.b64encode(value).decode()}".encode()


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationError("a message of SCRAM has another form than RFC 5802 gives it")
    return match


def _name(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationError("a value of a message of SCRAM is not in base 64") from None
