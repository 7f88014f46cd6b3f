"""What a listener's properties say of SASL, checked and in the types that authentication uses.

    listener.name.LISTENER.MECHANISM.NAME    a property of one mechanism on one listener, in lower case
    listener.name.LISTENER.NAME              a property of one listener
    NAME                                     a property of all listeners

The first that is given counts. Users of PLAIN, and the rules for unsigned tokens, are options of the login module, so
`sasl.jaas.config` has to be given for a mechanism and a listener.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError
from millrace.security.sasl.jaas import LoginModule, parse_jaas
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.security.sasl.oauthbearer import OAUTHBEARER
from millrace.security.sasl.plain import PLAIN
from millrace_broker.security.authentication.token_rules import TokenRules, token_rules

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
MAX_REAUTH_MS = "connections.max.reauth.ms"
MAX_RECEIVE_SIZE = "sasl.server.max.receive.size"
FAILURE_DELAY_MS = "connection.failed.authentication.delay.ms"
USER_OPTION = "user_"
DEFAULT_MAX_RECEIVE_BYTES = 512 << 10
DEFAULT_FAILURE_DELAY_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How clients of one listener authenticate; passwords of PLAIN by user."""

    listener: str
    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: TokenRules | None = None
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES
    failure_delay_ms: int = DEFAULT_FAILURE_DELAY_MS


class ListenerProperties:
    """The properties that hold for one listener."""

    def __init__(self, listener: str, properties: Mapping[str, str]) -> None:
        self._prefix = f"listener.name.{listener.lower()}."
        self._properties = properties

    def of_mechanism(self, mechanism: str, name: str) -> tuple[str, str | None]:
        """Returns the full name of a mechanism's property, and its value, None where it is not given."""
        full_name = f"{self._prefix}{mechanism.lower()}.{name}"
        return full_name, self._properties.get(full_name)

    def get(self, name: str, mechanism: str | None = None) -> tuple[str, str | None]:
        """Returns the name under which a property is given, and its value; None where it is not given at all."""
        names = [self._prefix + name, name]
        if mechanism is not None:
            names.insert(0, self.of_mechanism(mechanism, name)[0])
        return next(((one, self._properties[one]) for one in names if one in self._properties), (name, None))

    def number(self, name: str, default: int, mechanism: str | None = None) -> int:
        """Returns a whole number; InvalidConfigError where it is none."""
        found, text = self.get(name, mechanism)
        value = default if text is None else whole_number(text.strip(), MAX_INT)
        if value is None:
            raise InvalidConfigError(f"{found}={text}: Invalid value, expected a number from 0 to {MAX_INT}")
        return value


def listener_security(listener: str, properties: Mapping[str, str]) -> ListenerSecurity:
    """Returns what holds for a listener with SASL; InvalidConfigError names the property that is missing or wrong."""
    of_listener = ListenerProperties(listener, properties)
    mechanisms = _mechanisms(of_listener)
    plain = _login(of_listener, PLAIN) if PLAIN in mechanisms else None
    tokens = _login(of_listener, OAUTHBEARER) if OAUTHBEARER in mechanisms else None
    return ListenerSecurity(
        listener=listener,
        mechanisms=mechanisms,
        passwords=_passwords(plain),
        tokens=None if tokens is None else token_rules(of_listener.get, tokens.options),
        max_reauth_ms={one: of_listener.number(MAX_REAUTH_MS, 0, one) for one in mechanisms},
        max_receive_bytes=of_listener.number(MAX_RECEIVE_SIZE, DEFAULT_MAX_RECEIVE_BYTES),
        failure_delay_ms=of_listener.number(FAILURE_DELAY_MS, DEFAULT_FAILURE_DELAY_MS),
    )


def _mechanisms(properties: ListenerProperties) -> tuple[str, ...]:
    name, text = properties.get(ENABLED)
    mechanisms = tuple(one.strip() for one in (text or "GSSAPI").split(",") if one.strip())
    unknown = [one for one in mechanisms if one not in LOGIN_MODULES]
    if unknown or not mechanisms:
        raise InvalidConfigError(
            f"{name}={text or 'GSSAPI'}: Invalid value, expected some of {', '.join(LOGIN_MODULES)}; "
            "Kerberos (GSSAPI), which Kafka offers by default, is not served here"
        )
    return mechanisms


def _login(properties: ListenerProperties, mechanism: str) -> LoginModule:
    name, text = properties.of_mechanism(mechanism, JAAS)
    if text is None:
        raise InvalidConfigError(f"{name} is missing: {mechanism} needs {LOGIN_MODULES[mechanism]} and its options")
    login = parse_jaas(text, name)
    if login.name != LOGIN_MODULES[mechanism]:
        raise InvalidConfigError(f"{name}: Invalid value, expected the login module {LOGIN_MODULES[mechanism]}")
    return login


def _passwords(login: LoginModule | None) -> dict[str, str]:
    options = {} if login is None else login.options
    return {name.removeprefix(USER_OPTION): value for name, value in options.items() if name.startswith(USER_OPTION)}
