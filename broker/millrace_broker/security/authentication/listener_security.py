"""What a listener's properties say of SASL, checked and in the types that authentication uses.

The given properties are those that hold for the listener: its own take the place of those of all listeners. Among them,
`MECHANISM.PROPERTY`, with the mechanism in lower case, holds for one mechanism. `sasl.jaas.config`, which has the users
of PLAIN and the rules for unsigned tokens, counts only in this form, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.config import Value
from millrace.errors import InvalidConfigError
from millrace.security.property_names import JAAS
from millrace.security.sasl.jaas import LoginModule, parse_jaas
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.security.sasl.names import OAUTHBEARER, PLAIN
from millrace_broker.properties.sasl_config import SASL_CONFIG, SaslConfig
from millrace_broker.security.authentication.token_rules import TokenRules, token_rules

ENABLED = "sasl.enabled.mechanisms"
USER_OPTION = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How clients of one listener authenticate; passwords of PLAIN by user."""

    listener: str
    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: TokenRules | None = None
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    max_receive_bytes: int = 512 << 10
    failure_delay_ms: int = 100
    max_login_ms: int = 30_000


def listener_security(listener: str, properties: Mapping[str, str]) -> ListenerSecurity:
    """Returns what holds for a listener with SASL.

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
    """Returns the properties that hold for a mechanism, or for all of them.

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
