"""Gets tokens by OAuth's client credentials (RFC 6749, section 4.4) and keeps each until most of its life has passed.

POST URL    Authorization: Basic BASE64(ID:SECRET)    grant_type=client_credentials&scope=SCOPE
200         {"access_token": TOKEN, "expires_in": SECONDS}
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from millrace.clock import Clock, SystemClock
from millrace.errors import SaslAuthenticationError

LIFE_USED = 0.8
MAX_ANSWER_BYTES = 1 << 20
MAX_SOURCES = 64
FIRST_RETRY_SECONDS = 0.1
RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where a token is asked for, and by whom."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    timeout_s: float
    is_urlencoded: bool


@dataclass(frozen=True, slots=True)
class Token:
    """A token and how long it is used, in seconds."""

    text: str = field(repr=False)
    life_s: float


class TokenSource:
    """The token of one endpoint; threads share it."""

    def __init__(self, fetch: Callable[[], Token], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = Lock()
        self._token = ""
        self._renewed_at_s = 0.0

    def token(self) -> str:
        """Returns a token that is still good for a while; SaslAuthenticationError if there is none."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if not self._token or now_s >= self._renewed_at_s:
                token = self._fetch()
                self._token, self._renewed_at_s = token.text, now_s + token.life_s * LIFE_USED
            return self._token


@lru_cache(maxsize=MAX_SOURCES)
def token_source(endpoint: TokenEndpoint) -> TokenSource:
    """Returns the process's source of an endpoint's tokens."""
    return TokenSource(lambda: fetch_token(endpoint), SystemClock())


class _TryAgainError(SaslAuthenticationError):
    """The endpoint could not be reached, or could not answer now."""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, as it would carry the secret to another server."""

    def redirect_request(self, *_: object) -> None:
        """Returns no request."""


def fetch_token(endpoint: TokenEndpoint) -> Token:
    """Returns a new token, after some tries; SaslAuthenticationError says what the endpoint answered."""
    for attempt in Retrying(
        retry=retry_if_exception_type(_TryAgainError),
        wait=wait_exponential(FIRST_RETRY_SECONDS),
        stop=stop_after_delay(RETRY_SECONDS),
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
        with build_opener(_NoRedirects).open(request, timeout=endpoint.timeout_s) as answer:
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
