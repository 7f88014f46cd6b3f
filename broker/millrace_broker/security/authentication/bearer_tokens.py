"""Checks tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519), signed or, where the rules allow it, not.

sub                 the user                      aud, iss            as the rules ask for
exp, iat            in seconds, both needed       nbf                 not before
scope               a text, or a list of texts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jwt

from millrace.clock import Clock
from millrace.errors import SaslAuthenticationError
from millrace.security.sasl.names import Authenticated
from millrace.times import SECOND_MS
from millrace_broker.security.authentication.listener_security import TokenRules

if TYPE_CHECKING:
    from jwt.types import Options

# Only those whose keys can be public: a secret of HMAC would let everyone who checks tokens make them.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
UNSIGNED = "none"
LAST_SECOND = 10**11  # in the year 5138
# Times are checked here, by the broker's clock.
OPTIONS: Options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}


class Keys(Protocol):
    """The public keys by which signed tokens are checked."""

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Returns the key with this id, or the only key for None; None where no such key is known."""
        ...


class NoKeys:
    """Takes the place of the keys on a listener that takes unsigned tokens."""

    def find(self, key_id: str | None) -> jwt.PyJWK | None:  # noqa: ARG002 -- there is none
        """Returns None, as there is no key."""
        return None


def token_check(rules: TokenRules, keys: Keys, clock: Clock) -> Callable[[str], Authenticated]:
    """Returns a function that checks a token as `check_token` does, at the time of its call."""
    return lambda token: check_token(token, rules, keys, clock.now_ms())


def check_token(token: str, rules: TokenRules, keys: Keys, now_ms: int) -> Authenticated:
    """Returns the user that a bearer token (JWT) names, and when the token expires.

    Raises SaslAuthenticationError, which says what is wrong with the token.
    """
    try:
        header = jwt.get_unverified_header(token)
        claims = _unsigned(token, header) if rules.keys_url is None else _signed(token, header, rules, keys)
    except jwt.PyJWTError as error:
        raise SaslAuthenticationError(f"the token is not valid: {error}") from None
    expires_ms = _check_times(claims, rules, now_ms)
    _check_scopes(claims, rules)
    user = claims.get(rules.sub_claim)
    if not isinstance(user, str) or not user.strip():
        raise SaslAuthenticationError(f"the token has no claim {rules.sub_claim} that names a user")
    return Authenticated(user.strip(), expires_ms)


def _signed(token: str, header: Mapping[str, Any], rules: TokenRules, keys: Keys) -> dict[str, Any]:
    key = keys.find(header.get("kid"))
    if key is None:
        raise SaslAuthenticationError("the key that the token names is not known")
    options: Options = {**OPTIONS, "verify_aud": bool(rules.audiences), "require": ["exp", "iat"]}
    return jwt.decode(token, key, ALGORITHMS, options=options, audience=rules.audiences or None, issuer=rules.issuer)


def _unsigned(token: str, header: Mapping[str, Any]) -> dict[str, Any]:
    if header.get("alg") != UNSIGNED or not token.endswith("."):
        raise SaslAuthenticationError("this listener takes only tokens that are not signed")
    options: Options = {**OPTIONS, "verify_signature": False, "require": ["exp"]}
    return jwt.decode(token, options=options)


def _check_times(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> int:
    expires_s, not_before_s = _seconds(claims.get("exp")), _seconds(claims.get("nbf", 0))
    now_s = now_ms / SECOND_MS
    if not not_before_s - rules.clock_skew_s <= now_s < expires_s + rules.clock_skew_s:
        raise SaslAuthenticationError("the token has expired, or is not yet good")
    return int(expires_s * SECOND_MS)


def _check_scopes(claims: Mapping[str, Any], rules: TokenRules) -> None:
    given = claims.get(rules.scope_claim) or ()
    scopes = given.split() if isinstance(given, str) else given
    if not isinstance(scopes, list | tuple) or not set(rules.required_scopes) <= {str(one) for one in scopes}:
        raise SaslAuthenticationError(f"the token's claim {rules.scope_claim} lacks a scope")


def _seconds(claim: object) -> float:
    if not isinstance(claim, int | float) or not 0 <= claim < LAST_SECOND:
        raise SaslAuthenticationError("a time of the token is not a number of seconds")
    return claim
