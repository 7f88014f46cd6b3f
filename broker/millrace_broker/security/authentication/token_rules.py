"""Which tokens of OAUTHBEARER a listener takes (KIP-255, KIP-768), by its properties.

    sasl.oauthbearer.jwks.endpoint.url       tokens that one of the keys found there has signed
    sasl.server.callback.handler.class       with Kafka's unsecured handler: tokens that nobody has signed

One of both must be given: Kafka takes unsigned tokens where nothing is said, and this broker does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError

OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_HANDLERS = (
    f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
HANDLER = "sasl.server.callback.handler.class"
PREFIX = "sasl.oauthbearer."
KEYS_URL = f"{PREFIX}jwks.endpoint.url"
UNSECURED_OPTION = "unsecuredValidator"
MILLISECONDS = 1000

Get = Callable[[str, str | None], tuple[str, str | None]]  # by a property's name and a mechanism: its full name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must have. Without `keys_url`, nobody needs to have signed it."""

    keys_url: str | None
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    required_scopes: tuple[str, ...] = ()
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    clock_skew_s: float = 30.0
    refresh_s: float = 3600.0
    retry_s: float = 0.1
    retry_max_s: float = 10.0


def token_rules(get: Get, options: Mapping[str, str]) -> TokenRules:
    """Returns the rules; InvalidConfigError where a property is missing or wrong."""
    handler_name, handler = get(HANDLER, "OAUTHBEARER")
    keys_name, keys_url = get(KEYS_URL, "OAUTHBEARER")
    handler, keys_url = (handler or "").strip(), (keys_url or "").strip()
    if handler == UNSECURED_HANDLER:
        return _unsecured(options)
    if handler and handler not in SIGNED_HANDLERS:
        raise InvalidConfigError(f"{handler_name}={handler}: Invalid value, classes of Java can't be loaded here")
    if urlsplit(keys_url).scheme not in ("http", "https", "file"):
        raise InvalidConfigError(
            f"{keys_name}={keys_url}: Invalid value, expected the https, http or file address of the keys by which "
            f"tokens are checked; {HANDLER}={UNSECURED_HANDLER} takes tokens that nobody has signed"
        )
    return _signed(get, keys_url)


def _unsecured(options: Mapping[str, str]) -> TokenRules:
    skew_ms = options.get(f"{UNSECURED_OPTION}AllowableClockSkewMs", "0")
    return TokenRules(
        keys_url=None,
        required_scopes=tuple(options.get(f"{UNSECURED_OPTION}RequiredScope", "").split()),
        scope_claim=options.get(f"{UNSECURED_OPTION}ScopeClaimName", "scope"),
        sub_claim=options.get(f"{UNSECURED_OPTION}PrincipalClaimName", "sub"),
        clock_skew_s=_number(f"{UNSECURED_OPTION}AllowableClockSkewMs", skew_ms) / MILLISECONDS,
    )


def _signed(get: Get, keys_url: str) -> TokenRules:
    def text(name: str, default: str) -> str:
        return (get(PREFIX + name, "OAUTHBEARER")[1] or "").strip() or default

    def seconds(name: str, default_ms: str) -> float:
        return _number(PREFIX + name, text(name, default_ms)) / MILLISECONDS

    return TokenRules(
        keys_url=keys_url,
        issuer=text("expected.issuer", "") or None,
        audiences=tuple(one.strip() for one in text("expected.audience", "").split(",") if one.strip()),
        scope_claim=text("scope.claim.name", "scope"),
        sub_claim=text("sub.claim.name", "sub"),
        clock_skew_s=_number(f"{PREFIX}clock.skew.seconds", text("clock.skew.seconds", "30")),
        refresh_s=seconds("jwks.endpoint.refresh.ms", "3600000"),
        retry_s=seconds("jwks.endpoint.retry.backoff.ms", "100"),
        retry_max_s=seconds("jwks.endpoint.retry.backoff.max.ms", "10000"),
    )


def _number(name: str, text: str) -> int:
    number = whole_number(text.strip(), MAX_INT)
    if number is None:
        raise InvalidConfigError(f"{name}={text}: Invalid value, expected a number from 0 to {MAX_INT}")
    return number
