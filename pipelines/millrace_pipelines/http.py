"""HTTP with the platform's own services, mostly JSON: one request and its answer, bounded in time, without redirects.

A proxy that the environment names (HTTP_PROXY, NO_PROXY) is used where the caller says so: a service of this machine is
asked without one.
"""

from __future__ import annotations

import json
import logging
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from millrace.errors import PlatformError
from millrace.json_values import Json

CONNECT_TIMEOUT_S = 10.0
SHOWN_BYTES = 200
# It logs the address of each request at INFO, and that of a webhook is a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)


class ServiceUnreachableError(PlatformError, retriable=True):
    """A service did not answer, or its answer is no success; a later attempt may pass."""


class UnsuccessfulStatusError(ServiceUnreachableError):
    """A service answered with a status that is no success; `content` is the body of the answer."""

    def __init__(self, message: str, status: int, content: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.content = content

    def answer(self) -> Json:
        """Returns the body as JSON; None where it is no JSON."""
        try:
            answer: Json = json.loads(self.content)
        except ValueError:
            return None
        return answer


class _Client(NamedTuple):
    """A client with the settings of requests: the timeout, whether by the environment's proxy, the token, and TLS."""

    timeout_s: float
    use_proxy: bool
    token: str = ""
    context: ssl.SSLContext | None = None

    def answer(self, method: str, url: str, body: Json) -> httpx.Response:
        """Sends a request and returns the response, whatever its status; raises httpx.HTTPError or httpx.InvalidURL."""
        headers = {b"Authorization": f"Bearer {self.token}".encode()} if self.token else {}
        timeout = httpx.Timeout(self.timeout_s, connect=min(self.timeout_s, CONNECT_TIMEOUT_S))
        encrypted = not url.startswith("http:")  # to read the certificates of authorities takes longer than a request
        verify = self.context if encrypted and self.context is not None else encrypted
        return httpx.request(
            method, url, json=body, headers=headers, timeout=timeout, trust_env=self.use_proxy, verify=verify
        )


def post_json(
    url: str,
    body: Json = None,
    *,
    timeout_s: float,
    advice: str,
    use_proxy: bool = True,
    token: str = "",
    context: ssl.SSLContext | None = None,
) -> Json:
    """Sends a POST request and returns the JSON of its answer.

    Args:
        url: The whole address.
        body: What is sent, as JSON; None for nothing.
        timeout_s: How long the answer may take once the service is connected.
        advice: What to look at where the request fails; it ends the error's message.
        use_proxy: Whether a proxy that the environment names is used.
        token: A bearer token that the service asks for; no error shows it.
        context: What TLS needs for an `https:` URL; None for the authorities of the system.

    Raises:
        ServiceUnreachableError: No answer, or no JSON; it names the URL.
        UnsuccessfulStatusError: An answer that is no success.
    """
    client = _Client(timeout_s, use_proxy, token, context)
    return _exchange("POST", url, body, client, advice)


def get_json(
    url: str, *, timeout_s: float, advice: str, token: str = "", context: ssl.SSLContext | None = None
) -> Json:
    """Sends a GET request to a service of this machine and returns the JSON of its answer.

    Raises ServiceUnreachableError, or UnsuccessfulStatusError for an answer that is no success.
    """
    return _exchange("GET", url, None, _Client(timeout_s, use_proxy=False, token=token, context=context), advice)


def get_bytes(url: str, *, timeout_s: float, advice: str) -> bytes:
    """Sends a GET request to a service of this machine and returns the body of its answer.

    Raises ServiceUnreachableError, or UnsuccessfulStatusError for an answer that is no success.
    """
    return _successful("GET", url, None, _Client(timeout_s, use_proxy=False), advice).content


def notify(url: str, body: Json, *, timeout_s: float, advice: str) -> None:
    """Sends a POST request whose address may be a secret, by the environment's proxy; the answer is only a status.

    The errors name only the host, and show nothing of the response, which may repeat the address.

    Raises:
        ServiceUnreachableError: No answer in `timeout_s`, or an answer that is no success.
    """
    shown = urlsplit(url).hostname
    try:
        response = _Client(timeout_s, use_proxy=True).answer("POST", url, body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServiceUnreachableError(f"{shown} did not take the request: {type(error).__name__}; {advice}") from None
    if not response.is_success:
        raise ServiceUnreachableError(f"{shown} did not take the request: status {response.status_code}; {advice}")


def _exchange(method: str, url: str, body: Json, client: _Client, advice: str) -> Json:
    response = _successful(method, url, body, client, advice)
    try:
        answer: Json = response.json()
    except ValueError as error:
        raise ServiceUnreachableError(f"{url}: the answer is no JSON: {error}; {advice}") from error
    return answer


def _successful(method: str, url: str, body: Json, client: _Client, advice: str) -> httpx.Response:
    try:
        response = client.answer(method, url, body)
    except httpx.HTTPError as error:
        raise ServiceUnreachableError(f"{url}: {type(error).__name__}: {error}; {advice}") from error
    if not response.is_success:
        shown = response.content[:SHOWN_BYTES]
        message = f"{url}: status {response.status_code}: {shown!r}; {advice}"
        raise UnsuccessfulStatusError(message, response.status_code, response.content)
    return response
