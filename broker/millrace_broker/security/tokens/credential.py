"""How somebody logs in with a delegation token: by SCRAM, its id as the name and its secret as the password.

    password      the secret in base64
    iterations    4,096, as the secret is random already
    salted        PBKDF2-HMAC(password, salt, iterations)
    stored key    H(HMAC(salted, "Client Key"))
    server key    HMAC(salted, "Server Key")                                                                 (RFC 5802)

The credential is made of the secret whenever it is needed, with a salt of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64encode
from dataclasses import dataclass, field

from millrace_broker.security.tokens.token import IssuedToken

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 4096
SALT_BYTES = 20


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """What a server has to know to judge a login by SCRAM."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = ITERATIONS


def token_credential(issued: IssuedToken, mechanism: str, salt: bytes | None = None) -> TokenCredential:
    """Returns the credential of a token for SCRAM-SHA-256 or SCRAM-SHA-512, with a new salt unless one is given."""
    digest, salt = DIGESTS[mechanism], salt or secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, b64encode(issued.hmac), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return TokenCredential(salt, hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest))
