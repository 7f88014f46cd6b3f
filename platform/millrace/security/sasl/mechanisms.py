"""What a client's side of an authentication does, whatever its mechanism, and the choice of the mechanism.

client                              broker
initial_response()  ───────────▶    respond(response)
respond(challenge)  ◀───────────    the challenge, and so on until both are complete

A client's side is complete once the server has proven its own identity, if the mechanism has a proof of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from millrace.errors import InvalidConfigError
from millrace.security.protocols import JAAS, MECHANISM
from millrace.security.sasl.jaas import LoginModule, parse_jaas
from millrace.security.sasl.names import OAUTHBEARER, PLAIN
from millrace.security.sasl.oauthbearer import BearerToken, OAuthBearerClient
from millrace.security.sasl.plain import PlainClient
from millrace.security.sasl.scram import SCRAM_HASHES, ScramClient

KAFKA_SECURITY = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    PLAIN: f"{KAFKA_SECURITY}.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_HASHES, f"{KAFKA_SECURITY}.scram.ScramLoginModule"),
    OAUTHBEARER: f"{KAFKA_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}


ClientMechanism: TypeAlias = PlainClient | ScramClient | OAuthBearerClient


def client_mechanism(properties: Mapping[str, str]) -> ClientMechanism:
    """Returns the client's side of a new SASL authentication, by `sasl.mechanism` and `sasl.jaas.config`.

    Raises InvalidConfigError, which names a missing or wrong property. OAUTHBEARER may block while it asks the token
    endpoint; raises SaslAuthenticationError if that gives no token.
    """
    name, login = _login(properties)
    return BUILDERS[name](name, login, properties)


def check_login(properties: Mapping[str, str]) -> None:
    """Raises InvalidConfigError for properties that `client_mechanism` would refuse; requests no token."""
    name, login = _login(properties)
    if name == OAUTHBEARER:
        _token_supply(login, properties)
    else:
        BUILDERS[name](name, login, properties)


def _login(properties: Mapping[str, str]) -> tuple[str, LoginModule]:
    name = properties.get(MECHANISM, "").strip()
    if name not in BUILDERS:
        raise InvalidConfigError(f"{MECHANISM}={name}: expected one of {', '.join(BUILDERS)}")
    login = parse_jaas(properties.get(JAAS, ""), JAAS)
    if login.name != LOGIN_MODULES[name]:
        raise InvalidConfigError(f"{JAAS}: {login.name} does not log in by {name}; use {LOGIN_MODULES[name]}")
    return name, login


def _plain(_name: str, login: LoginModule, _properties: Mapping[str, str]) -> ClientMechanism:
    return PlainClient(_option(login, "username"), _option(login, "password"))


def _scram(name: str, login: LoginModule, _properties: Mapping[str, str]) -> ClientMechanism:
    is_by_token = login.options.get("tokenauth", "").lower() == "true"
    return ScramClient(name, _option(login, "username"), _option(login, "password"), is_by_token=is_by_token)


def _oauthbearer(_name: str, login: LoginModule, properties: Mapping[str, str]) -> ClientMechanism:
    return OAuthBearerClient(_token_supply(login, properties)())


def _token_supply(login: LoginModule, properties: Mapping[str, str]) -> Callable[[], BearerToken]:
    from millrace.security.sasl.oauth_login import token_supply  # noqa: PLC0415 -- a broker without tokens needs none of it

    return token_supply(login, properties)


def _option(login: LoginModule, name: str) -> str:
    value = login.options.get(name)
    if not value:
        raise InvalidConfigError(f"{JAAS}: the option {name} of {login.name} is missing")
    return value


Builder = Callable[[str, LoginModule, Mapping[str, str]], ClientMechanism]
BUILDERS: Mapping[str, Builder] = {PLAIN: _plain, **dict.fromkeys(SCRAM_HASHES, _scram), OAUTHBEARER: _oauthbearer}
