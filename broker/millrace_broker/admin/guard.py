"""Decides which requests the admin endpoint answers, as a pure function (docs/health.md, docs/maintenance.md).

    request                       reading is open           reading needs the token
    GET /healthz, /readyz         answered                  without the token: the status alone
    another GET                   answered                  needs the token
    POST                          needs the token, and a body that is called application/json

Reading is open on loopback where neither `admin.token` is set nor an authorizer. Whoever has no token has to name this
machine as the host then: a page of another site, whose name leads to 127.0.0.1 (DNS rebinding), is refused. So is every
request that a browser sends for a page of another site (`Origin`). Browsers ask before they send a body that is called
JSON, or a token, to another site, and are never allowed to.
"""

from __future__ import annotations

import hmac
from enum import Enum
from typing import NamedTuple

from millrace.addresses import is_loopback

PROBES = ("/healthz", "/readyz")
JSON = "application/json"
READING = ("GET", "HEAD")


class Guard(NamedTuple):
    """Decides which requests to the admin endpoint are served.

    `token` is what a request shows to be served; with `reading_is_open` those that only read need not show it.
    """

    token: str
    reading_is_open: bool = False


class Asked(NamedTuple):
    """The parts of a request that decide; headers that are not there are ""."""

    method: str
    path: str
    host: str
    origin: str = ""
    authorization: str = ""
    content_type: str = ""


class Answered(Enum):
    """Whether a request gets the whole response or its status alone."""

    WHOLE = "all of it"
    STATUS_ALONE = "its status alone"


class Refused(NamedTuple):
    """The status of a refusal, and the sentence that says why."""

    status: int
    reason: str


def judge(guard: Guard, asked: Asked) -> Answered | Refused:
    """Returns whether a request is answered."""
    if asked.origin and not is_own_origin(asked.origin, asked.host):
        return Refused(403, f"a page of another site asks: {asked.origin}")
    if asked.authorization:
        return _with_token(asked) if _has_token(guard, asked) else Refused(401, "the token is another one")
    if asked.method not in READING:
        return Refused(
            401, "a change needs the token: Authorization: Bearer TOKEN (admin.token, or the file of that name)"
        )
    if guard.reading_is_open:
        return Answered.WHOLE if is_loopback(without_port(asked.host)) else _of_another_name(asked.host)
    return Answered.STATUS_ALONE if asked.path in PROBES else Refused(401, "Authorization: Bearer TOKEN is needed")


def _has_token(guard: Guard, asked: Asked) -> bool:
    given = asked.authorization.encode(errors="surrogateescape")  # as the HTTP server has decoded it
    return hmac.compare_digest(given, f"Bearer {guard.token}".encode())


def _with_token(asked: Asked) -> Answered | Refused:
    content_type = asked.content_type.partition(";")[0].strip().lower()
    if asked.method in READING or content_type == JSON:
        return Answered.WHOLE
    return Refused(415, f"Content-Type: {JSON} is expected, not {content_type or 'none'}")


def _of_another_name(host: str) -> Refused:
    return Refused(403, f"{host} is no name of this machine's loopback: by another name, reading needs the token, too")


def is_own_origin(origin: str | None, host: str) -> bool:
    """Returns whether a request was sent from a page of this host; browsers name the origin, other clients need not."""
    return origin is None or origin.partition("://")[2] == host


def without_port(host: str) -> str:
    """Returns the host of a `Host` header, an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
