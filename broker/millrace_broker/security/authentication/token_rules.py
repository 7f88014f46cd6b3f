"""Which tokens of OAUTHBEARER a listener takes (KIP-255, KIP-768), by its properties.

    sasl.oauthbearer.jwks.endpoint.url       tokens that one of the keys found there has signed
    sasl.server.callback.handler.class       with Kafka's unsecured handler: tokens that nobody has signed

One of both must be given: Kafka takes unsigned tokens where nothing is said, and this broker does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError
from millrace.times import SECOND_MS
from millrace_broker.properties.sasl_config import SaslConfig

OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_HANDLERS = (
    f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
HANDLER = "sasl.server.callback.handler.class"
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED_OPTION = "unsecuredValidator"


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


def token_rules(config: SaslConfig, options: Mapping[str, str]) -> TokenRules:
    """Returns the rules; raises InvalidConfigError where a property is missing or wrong."""
    handler, keys_url = config.sasl_server_callback_handler_class, config.sasl_oauthbearer_jwks_endpoint_url
    if handler == UNSECURED_HANDLER:
        return _unsecured(options)
    if handler and handler not in SIGNED_HANDLERS:
        raise InvalidConfigError(f"{HANDLER}={handler}: Invalid value, classes of Java can't be loaded here")
    if urlsplit(keys_url).scheme not in ("http", "https", "file"):
        raise InvalidConfigError(
            f"{KEYS_URL}={keys_url}: Invalid value, expected the https, http or file address of the keys by which "
            f"tokens are checked; {HANDLER}={UNSECURED_HANDLER} takes tokens that nobody has signed"
        )
    return TokenRules(
        keys_url=keys_url,
        issuer=config.sasl_oauthbearer_expected_issuer or None,
        audiences=tuple(one for one in config.sasl_oauthbearer_expected_audience.split(",") if one),
        scope_claim=config.sasl_oauthbearer_scope_claim_name,
        sub_claim=config.sasl_oauthbearer_sub_claim_name,
        clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
        refresh_s=config.sasl_oauthbearer_jwks_endpoint_refresh_ms / SECOND_MS,
        retry_s=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / SECOND_MS,
        retry_max_s=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / SECOND_MS,
    )


def _unsecured(options: Mapping[str, str]) -> TokenRules:
    name = f"{UNSECURED_OPTION}AllowableClockSkewMs"
    skew_ms = whole_number(options.get(name, "0").strip(), MAX_INT)
    if skew_ms is None:
        raise InvalidConfigError(f"sasl.jaas.config: the option {name} is not a number from 0 to {MAX_INT}")
    return TokenRules(
        keys_url=None,
        required_scopes=tuple(options.get(f"{UNSECURED_OPTION}RequiredScope", "").split()),
        scope_claim=options.get(f"{UNSECURED_OPTION}ScopeClaimName", "scope"),
        sub_claim=options.get(f"{UNSECURED_OPTION}PrincipalClaimName", "sub"),
        clock_skew_s=skew_ms / SECOND_MS,
    )
