"""Where a client's token comes from (KIP-768): a token endpoint, a file, or the options of the login module.

    sasl.oauthbearer.token.endpoint.url=https://…   OAuth's client credentials: options clientId, clientSecret, scope
    sasl.oauthbearer.token.endpoint.url=file:///…   the text of a file, which something else renews
    unsecuredLoginStringClaim_sub="alice"           a token that nobody signs, which a broker takes only for tests

A token of an endpoint serves all connections of the process with the same settings, until 80 % of its life have passed.
The timeouts of a request to the endpoint are `sasl.login.connect.timeout.ms` and `.read.timeout.ms`; failed requests
are repeated as `sasl.login.retry.backoff.ms` and `.retry.backoff.max.ms` say.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millrace.clock import Clock, SystemClock
from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.sasl.jaas import LoginModule
from millrace.security.sasl.oauthbearer import BearerToken
from millrace.security.sasl.token_endpoint import TokenEndpoint, token_source
from millrace.times import SECOND_MS

ENDPOINT_URL = "sasl.oauthbearer.token.endpoint.url"
UNSECURED = "unsecuredLogin"
STRING_CLAIM, NUMBER_CLAIM, LIST_CLAIM = (f"{UNSECURED}{kind}Claim_" for kind in ("String", "Number", "List"))
UNSECURED_EXTENSION = f"{UNSECURED}Extension_"
ENDPOINT_EXTENSION = "extension_"
DEFAULT_LIFETIME_SECONDS = "3600"
CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
BACKOFF_MS, BACKOFF_MAX_MS = "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"
DEFAULTS_MS = {READ_TIMEOUT_MS: "10000", BACKOFF_MS: "100", BACKOFF_MAX_MS: "10000"}
MAX_TOKEN_BYTES = 256 << 10


def token_supply(login: LoginModule, properties: Mapping[str, str]) -> Callable[[], BearerToken]:
    """Returns a function that returns a token, or raises SaslAuthenticationError with the reason why there is none.

    Raises InvalidConfigError, which names what is missing or wrong; requests no token yet.
    """
    url = properties.get(ENDPOINT_URL, "").strip()
    if not url:
        token = unsecured_token(login.options)
        return lambda: token
    extensions = _extensions(login.options, ENDPOINT_EXTENSION)
    match urlsplit(url).scheme:
        case "file":
            path = Path(unquote(urlsplit(url).path))
            return lambda: BearerToken(_read_token(path), extensions)
        case "http" | "https":
            source = token_source(_endpoint(url, login.options, properties))
            return lambda: BearerToken(source.token(), extensions)
        case scheme:
            raise InvalidConfigError(f"{ENDPOINT_URL}: expected https, http or file, not {scheme!r}")


def unsecured_token(options: Mapping[str, str], clock: Clock | None = None) -> BearerToken:
    """Returns a token that nobody has signed, with the claims that the options give it."""
    now_s = (clock or SystemClock()).now_ms() / 1000
    claims: dict[str, object] = {}
    for name, value in options.items():
        for prefix, read in ((STRING_CLAIM, str), (NUMBER_CLAIM, _number), (LIST_CLAIM, _list)):
            if name.startswith(prefix):
                claims[name.removeprefix(prefix)] = read(value)
    principal_claim = options.get(f"{UNSECURED}PrincipalClaimName", "").strip() or "sub"
    if not claims.get(principal_claim):
        raise InvalidConfigError(
            f"sasl.jaas.config: no token can be had; give {ENDPOINT_URL}, or for tests {STRING_CLAIM}{principal_claim}"
        )
    lifetime_s = _number(options.get(f"{UNSECURED}LifetimeSeconds", DEFAULT_LIFETIME_SECONDS))
    claims |= {"iat": now_s, "exp": now_s + lifetime_s}
    return BearerToken(f"{_part({'alg': 'none'})}.{_part(claims)}.", _extensions(options, UNSECURED_EXTENSION))


def _endpoint(url: str, options: Mapping[str, str], properties: Mapping[str, str]) -> TokenEndpoint:
    for name in ("clientId", "clientSecret"):
        if not options.get(name, "").strip():
            raise InvalidConfigError(f"sasl.jaas.config: the option {name} is missing, which {ENDPOINT_URL} needs")
    return TokenEndpoint(
        url=url,
        client_id=options["clientId"].strip(),
        client_secret=options["clientSecret"].strip(),
        scope=options.get("scope", "").strip(),
        timeout_s=_seconds(properties, READ_TIMEOUT_MS),
        is_urlencoded=properties.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
        connect_timeout_s=_seconds(properties, CONNECT_TIMEOUT_MS) if properties.get(CONNECT_TIMEOUT_MS) else None,
        retry_s=_seconds(properties, BACKOFF_MS),
        retry_max_s=_seconds(properties, BACKOFF_MAX_MS),
    )


def _seconds(properties: Mapping[str, str], name: str) -> float:
    text = properties.get(name) or DEFAULTS_MS[name]
    milliseconds = whole_number(text.strip(), MAX_INT)
    if not milliseconds:
        raise InvalidConfigError(f"{name}: expected a number of milliseconds from 1 to {MAX_INT}")
    return milliseconds / SECOND_MS


def _read_token(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SaslAuthenticationError(f"{path}: no token can be read: {type(error).__name__}") from error


def _extensions(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidConfigError("sasl.jaas.config: a claim or a lifetime is not a number") from None


def _list(text: str) -> list[str]:
    """Returns the elements of a list; the first character of the text is the one that separates them."""
    return text[1:].split(text[0]) if text[1:] else []


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
