"""What a listener's properties say of SASL, checked and in the types that authentication uses.

The given properties are those that hold for the listener: its own take the place of those of all listeners. Among them,
`MECHANISM.PROPERTY`, with the mechanism in lower case, holds for one mechanism. `sasl.jaas.config`, which has the users
of PLAIN and the rules for unsigned tokens, counts only in this form, as in Kafka.

Which tokens of OAUTHBEARER a listener takes (KIP-255, KIP-768):

    sasl.oauthbearer.jwks.endpoint.url       tokens that one of the keys found there has signed
    sasl.server.callback.handler.class       with Kafka's unsecured handler: tokens that nobody has signed

One of both must be given: Kafka takes unsigned tokens where nothing is said, and this broker does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from millrace.config import MAX_INT, Value, whole_number
from millrace.errors import InvalidConfigError
from millrace.security.protocols import JAAS
from millrace.security.sasl.jaas import LoginModule, parse_jaas
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.security.sasl.names import OAUTHBEARER, PLAIN
from millrace.times import SECOND_MS
from millrace_broker.properties.security_config import SASL_CONFIG, SaslConfig

OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_HANDLERS = (
    f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
HANDLER = "sasl.server.callback.handler.class"
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED_OPTION = "unsecuredValidator"
ENABLED = "sasl.enabled.mechanisms"
USER_OPTION = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What an OAUTHBEARER token must have to be accepted. Without `keys_url`, it need not be signed."""

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
    """Returns the rules for OAUTHBEARER tokens; raises InvalidConfigError where a property is missing or wrong."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How the clients of one listener authenticate by SASL; `passwords` are those of the mechanism PLAIN, by user."""

    listener: str
    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: TokenRules | None = None
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    max_receive_bytes: int = 512 << 10
    failure_delay_ms: int = 100
    max_login_ms: int = 30_000


def listener_security(listener: str, properties: Mapping[str, str]) -> ListenerSecurity:
    """Returns how clients authenticate by SASL on a listener that has these `properties`.

    Raises InvalidConfigError, which names the property that is missing or wrong.
    """
    config = sasl_config(properties)
    mechanisms = _mechanisms(config)
    logins = {one: _login(listener, one, properties) for one in mechanisms if one in (PLAIN, OAUTHBEARER)}
    by_mechanism = {one: sasl_config(properties, one) for one in mechanisms}
    tokens = None
    if OAUTHBEARER in mechanisms:
        tokens = token_rules(by_mechanism[OAUTHBEARER], logins[OAUTHBEARER].options)
    return ListenerSecurity(
        listener=listener,
        mechanisms=mechanisms,
        passwords=_passwords(logins[PLAIN]) if PLAIN in logins else {},
        tokens=tokens,
        max_reauth_ms={one: own.connections_max_reauth_ms for one, own in by_mechanism.items()},
        max_receive_bytes=config.sasl_server_max_receive_size,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        max_login_ms=config.connections_max_login_ms,
    )


def sasl_config(properties: Mapping[str, str], mechanism: str = "") -> SaslConfig:
    """Returns the SASL properties for a mechanism or, if it is "", those for all mechanisms.

    Raises InvalidConfigError for a bad value.
    """
    values: dict[str, Value] = {}
    for name, key in SASL_CONFIG.keys.items():
        text = properties.get(f"{mechanism.lower()}.{name}", properties.get(name))
        if text is not None:
            values[name.replace(".", "_")] = key.parse(text)
    return SaslConfig(**values)  # type: ignore[arg-type]  # each has the type of its key's default


def _mechanisms(config: SaslConfig) -> tuple[str, ...]:
    mechanisms = tuple(one for one in config.sasl_enabled_mechanisms.split(",") if one)
    if not mechanisms or not set(mechanisms) <= set(LOGIN_MODULES):
        raise InvalidConfigError(
            f"{ENABLED}={config.sasl_enabled_mechanisms}: Invalid value, expected some of {', '.join(LOGIN_MODULES)}; "
            "Kerberos (GSSAPI), which Kafka offers where nothing is said, is not served here"
        )
    return mechanisms


def _login(listener: str, mechanism: str, properties: Mapping[str, str]) -> LoginModule:
    name = f"{mechanism.lower()}.{JAAS}"
    full_name = f"listener.name.{listener.lower()}.{name}"
    if name not in properties:
        raise InvalidConfigError(
            f"{full_name} is missing: {mechanism} needs {LOGIN_MODULES[mechanism]} and its options"
        )
    login = parse_jaas(properties[name], full_name)
    if login.name != LOGIN_MODULES[mechanism]:
        raise InvalidConfigError(f"{full_name}: Invalid value, expected the login module {LOGIN_MODULES[mechanism]}")
    return login


def _passwords(login: LoginModule) -> dict[str, str]:
    users = (name for name in login.options if name.startswith(USER_OPTION))
    return {name.removeprefix(USER_OPTION): login.options[name] for name in users}
