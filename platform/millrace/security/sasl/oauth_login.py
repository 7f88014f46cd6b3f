"""Where a client's token comes from (KIP-768): a token endpoint, a file, or the options of the login module.

    sasl.oauthbearer.token.endpoint.url=https://…   OAuth's client credentials: options clientId, clientSecret, scope
    sasl.oauthbearer.token.endpoint.url=file:///…   the text of a file, which something else renews
    unsecuredLoginStringClaim_sub="alice"           a token that nobody signs, which a broker takes only for tests

A token of an endpoint serves all connections of the process with the same settings, until 80 % of its life have passed.
The timeouts of a request to the endpoint are `sasl.login.connect.timeout.ms` and `.read.timeout.ms`; failed requests
are repeated as `sasl.login.retry.backoff.ms` and `.retry.backoff.max.ms` say.

Where the endpoint fails after that, the token is used to the end of its life. Whoever needs a token during a failed
request, or soon after it, does not wait for another request, but gets that token, or the same error once it has
expired. Tokens are asked for by OAuth's client credentials (RFC 6749, section 4.4):

    POST URL    Authorization: Basic BASE64(ID:SECRET)    grant_type=client_credentials&scope=SCOPE
    200         {"access_token": TOKEN, "expires_in": SECONDS}
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, unquote, urlencode, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from millrace.clock import Clock, SystemClock
from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.sasl.jaas import LoginModule
from millrace.security.sasl.oauthbearer import BearerToken
from millrace.times import SECOND_MS

LIFE_USED = 0.8
LEAST_LEFT_S = 3.0
"""A token is replaced at least this long before its end: brokers renew no session in its first second (KIP-368)."""
FAILURE_KEPT_S = 1.0
MAX_ANSWER_BYTES = 1 << 20
MAX_SOURCES = 64
FIRST_RETRY_SECONDS = 0.1
RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The OAuth endpoint from which tokens are requested, with the client's credentials and timeouts.

    Attributes:
        timeout_s: For how long the endpoint may send nothing.
        connect_timeout_s: How long connecting may take; None for as long as `timeout_s`.
        retry_s: The pause after the first failed request; it doubles each time.
        retry_max_s: For how long failed requests are repeated.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    timeout_s: float
    is_urlencoded: bool
    connect_timeout_s: float | None = None
    retry_s: float = FIRST_RETRY_SECONDS
    retry_max_s: float = RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and for how many seconds it is valid; 0 where the endpoint does not say."""

    text: str = field(repr=False)
    life_s: float


class TokenSource:
    """Keeps the current token of one endpoint, and renews it before it expires; thread-safe."""

    def __init__(self, fetch: Callable[[], Token], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = Lock()
        self._token = ""
        self._ends_at_s = 0.0
        self._failure = ""
        self._renewed_at_s = clock.monotonic_s()

    def token(self) -> str:
        """Returns a valid token, cached or newly requested; raises SaslAuthenticationError if there is none."""
        with self._lock:
            if self._clock.monotonic_s() >= self._renewed_at_s:
                self._renew()
            if self._failure and self._clock.monotonic_s() >= self._ends_at_s:
                raise SaslAuthenticationError(self._failure)
            return self._token

    def _renew(self) -> None:
        begun_s = self._clock.monotonic_s()
        try:
            token = self._fetch()
        except SaslAuthenticationError as error:
            failed_s = self._clock.monotonic_s()
            self._failure = str(error)
            self._renewed_at_s = failed_s + max(FAILURE_KEPT_S, failed_s - begun_s)
        else:
            self._token, self._failure = token.text, ""
            self._ends_at_s = begun_s + token.life_s
            self._renewed_at_s = begun_s + min(token.life_s * LIFE_USED, max(token.life_s - LEAST_LEFT_S, 0.0))


@lru_cache(maxsize=MAX_SOURCES)
def token_source(endpoint: TokenEndpoint) -> TokenSource:
    """Returns the token source of an endpoint, one for the whole process."""
    return TokenSource(lambda: fetch_token(endpoint), SystemClock())


class _TryAgainError(SaslAuthenticationError):
    """A failure to get a token that may pass: the endpoint could not be reached, or could not answer now."""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, as it would carry the secret to another server."""

    def redirect_request(self, *_: object) -> None:
        """Follows no redirection: returns no request."""


class _Connection(http.client.HTTPConnection):
    """A connection with one timeout for connecting, and another for the bytes of the answer."""

    def __init__(self, *arguments: Any, timeout_for_bytes_s: float, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._timeout_for_bytes_s = timeout_for_bytes_s

    def connect(self) -> None:
        """Connects within the timeout for connecting, then sets the timeout for reading."""
        super().connect()
        self.sock.settimeout(self._timeout_for_bytes_s)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    """A connection to the token endpoint over TLS."""


class _Connecting(HTTPHandler, HTTPSHandler):
    """Sends requests over `_Connection` and `_TlsConnection`."""

    def __init__(self, timeout_for_bytes_s: float) -> None:
        super().__init__()
        self._timeout_for_bytes_s = timeout_for_bytes_s

    def http_open(self, request: Request) -> http.client.HTTPResponse:
        """Sends the request without TLS, and returns the response."""
        return self.do_open(partial(_Connection, timeout_for_bytes_s=self._timeout_for_bytes_s), request)

    def https_open(self, request: Request) -> http.client.HTTPResponse:
        """Sends the request over TLS, and returns the response."""
        return self.do_open(partial(_TlsConnection, timeout_for_bytes_s=self._timeout_for_bytes_s), request)


def fetch_token(endpoint: TokenEndpoint) -> Token:
    """Returns a new token; raises SaslAuthenticationError with the endpoint's answer once repeated requests fail."""
    for attempt in Retrying(
        retry=retry_if_exception_type(_TryAgainError),
        wait=wait_exponential(endpoint.retry_s),
        stop=stop_after_delay(endpoint.retry_max_s),
        reraise=True,
    ):
        with attempt:
            return _parse(endpoint, _ask(endpoint))
    raise AssertionError  # tenacity raises the last error


def _ask(endpoint: TokenEndpoint) -> bytes:
    quoted = quote_plus if endpoint.is_urlencoded else str
    pair = f"{quoted(endpoint.client_id)}:{quoted(endpoint.client_secret)}".encode()
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"}
    request = Request(endpoint.url, urlencode(form).encode(), headers)  # noqa: S310 -- the caller has checked the scheme
    try:
        opener = build_opener(_NoRedirects, _Connecting(endpoint.timeout_s))
        with opener.open(request, timeout=endpoint.connect_timeout_s or endpoint.timeout_s) as answer:
            return bytes(answer.read(MAX_ANSWER_BYTES))
    except HTTPError as error:
        with error:
            kind = SaslAuthenticationError if error.code < http.client.INTERNAL_SERVER_ERROR else _TryAgainError
            raise kind(f"{endpoint.url} answered {error.code} to a request for a token") from None
    except (OSError, http.client.HTTPException) as error:
        raise _TryAgainError(f"{endpoint.url} can't be asked for a token: {error}") from error


def _parse(endpoint: TokenEndpoint, answer: bytes) -> Token:
    try:
        fields = json.loads(answer)
        text, life = fields["access_token"], fields.get("expires_in", 0)
    except (ValueError, KeyError, TypeError):
        text, life = None, 0
    if not isinstance(text, str) or not text:
        raise SaslAuthenticationError(f"{endpoint.url} answered without an access_token")
    return Token(text, float(life) if isinstance(life, int | float) and life > 0 else 0.0)


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
    """Returns a function that returns a valid token, or raises SaslAuthenticationError with the reason.

    `login` has the module's options. Raises InvalidConfigError for a missing or wrong option; requests no token yet.
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
    """Returns an unsigned token, for tests, with the claims in the login module's options."""
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
    """Returns the elements of a list such as `,a,b`, whose first character is the separator."""
    return text[1:].split(text[0]) if text[1:] else []


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
