"""How somebody logs in with a delegation token: by SCRAM, its id as the name and its secret as the password.

The password is the secret in base64, and has 4,096 iterations, as the secret is random already (KIP-48). The credential
is made at the first login and kept for the next ones: so its salt stays the same, as that of an unknown token does.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache

from millrace.security.sasl.scram import ScramCredential, new_credential
from millrace.security.sasl.scram_server import Known
from millrace.security.sasl.server_mechanism import Authenticated
from millrace_broker.security.tokens.token import IssuedToken

KEPT_CREDENTIALS = 1024


def token_login(issued: IssuedToken, mechanism: str) -> Known:
    """Returns the credential that SCRAM checks for a login with a token, and the owner as whom the client logs in."""
    token = issued.token
    expires_ms = min(token.expiry_ms, token.max_ms)
    return Known(_credential(issued.hmac, mechanism), Authenticated(token.owner.name, expires_ms, is_by_token=True))


@lru_cache(maxsize=KEPT_CREDENTIALS)
def _credential(secret: bytes, mechanism: str) -> ScramCredential:
    return new_credential(mechanism, b64encode(secret).decode())
