"""The names of the mechanisms of SASL, apart from what they do, and what a broker learns by them.

To check a property nothing of the mechanisms themselves is loaded.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.errors import SaslAuthenticationError

PLAIN = "PLAIN"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class Authenticated(NamedTuple):
    """An authenticated user, when that expires (ms since the epoch; None: never), and whether by a delegation token."""

    user: str
    expires_ms: int | None = None
    is_by_token: bool = False


def invalid_credentials(mechanism: str) -> SaslAuthenticationError:
    """Returns the error for a failed authentication, the same for each cause, so as to tell an attacker nothing."""
    return SaslAuthenticationError(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
