"""Decides which requests the admin endpoint answers, as a pure function (docs/health.md, docs/maintenance.md).

    request                       reading is open           reading needs the token
    GET /healthz, /readyz         answered                  without the token: the status alone
    another GET                   answered                  needs the token
    POST                          needs the token, and a body that is called application/json
    a page of the console         answered                  needs a session, which the login gives for the token, or
                                                            the token itself
    a POST of the console         needs a form that this broker has made for the session, and the same origin

Reading is open on loopback where neither `admin.token` is set nor an authorizer. Whoever has no token has to name this
machine as the host then: a page of another site, whose name leads to 127.0.0.1 (DNS rebinding), is refused. So is every
request that a browser sends for a page of another site (`Origin`). Browsers ask before they send a body that is called
JSON, or a token, to another site, and are never allowed to.

The token is that of the property `admin.token`, or one that the broker makes and keeps:

    DIR/admin.token     one line, in the first data directory, which its owner alone can read (mode 600)

`admin.token.file` names another file. The broker makes it at its first start; a crash leaves all of it or nothing.
Where it can't be kept, as on a full disk, the token is good until the broker stops, and nobody learns it.

A session of the console is `EXPIRY.SIGNATURE`, signed with a key that the process makes for itself, so sessions end
with the process. The cookie is kept from scripts and from other sites (HttpOnly, SameSite=Strict); by TLS it is sent by
TLS alone.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from millrace.addresses import is_loopback
from millrace.clock import Clock
from millrace.errors import InvalidConfigError
from millrace.fs import FileSystem, read_file, write_file_durably

PROBES = ("/healthz", "/readyz")
JSON = "application/json"
READING = ("GET", "HEAD")
logger = logging.getLogger(__name__)

TOKEN_FILE = "admin.token"  # noqa: S105 -- the name of the file
TOKEN_BYTES = 24


class Guard(NamedTuple):
    """The token that requests to the admin endpoint must show, as `Authorization: Bearer TOKEN`.

    With `reading_is_open`, GET and HEAD need none where they come to a loopback address.
    """

    token: str
    reading_is_open: bool = False


class Asked(NamedTuple):
    """The parts of an HTTP request by which `judge` decides; a header that is missing is ""."""

    method: str
    path: str
    host: str
    origin: str = ""
    authorization: str = ""
    content_type: str = ""


class Answered(Enum):
    """Says how much of a response an admitted request gets: all of it, or, without a token, the health status alone."""

    WHOLE = "all of it"
    STATUS_ALONE = "its status alone"


class Refused(NamedTuple):
    """A refusal: the HTTP status, and the sentence that says why."""

    status: int
    reason: str


def judge(guard: Guard, asked: Asked) -> Answered | Refused:
    """Returns whether a request is answered in full or by its status alone, or with which HTTP status it is refused."""
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
    """Returns whether the `Origin` header names this host; True for None, as programs other than browsers lack it."""
    return origin is None or origin.partition("://")[2] == host


def without_port(host: str) -> str:
    """Returns the host of a `Host` header without its port, an IPv6 address also without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def token_file(named: str, data_dir: str) -> str:
    """Returns the path of the token's file: `named` (admin.token.file), or admin.token in the first data directory."""
    return named or os.path.join(data_dir, TOKEN_FILE)


def kept_token(fs: FileSystem, path: str) -> str:
    """Returns the token in the file at `path`; makes a token and the file where there is no file.

    Raises:
        InvalidConfigError: The file has no token, or can't be read.
    """
    try:
        token = read_file(fs, path).decode().strip()
    except FileNotFoundError:
        return _made(fs, path)
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"the token of the admin endpoint can't be read from {path}: {error}") from error
    if not token or not token.isprintable():
        raise InvalidConfigError(f"{path} has no token of the admin endpoint: remove the file, and a new one is made")
    return token


def _made(fs: FileSystem, path: str) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        fs.mkdir(os.path.dirname(path) or ".")
        write_file_durably(fs, path, f"{token}\n".encode(), is_secret=True)
    except OSError as error:  # what is on a full disk is served all the same
        logger.warning("%s is not written, so nobody can change anything by the admin endpoint: %s", path, error)
    return token


ROOT = "/console"
FORM_TOKEN_HEADER = "X-Console-Form-Token"  # noqa: S105 -- a header's name; by it pages learn what forms carry
SESSION_S = 12 * 3600
OPEN = "open"  # the session where there is no token


class ConsoleAccess:
    """Decides who may see the console's pages and send its forms.

    `token` is "" where pages are shown to everyone; `key` is secret random bytes that sign the sessions' cookies.
    """

    def __init__(self, token: str, key: bytes, clock: Clock) -> None:
        self._token = token.encode()
        self._key = key
        self._clock = clock

    @property
    def asks_for_login(self) -> bool:
        """Returns whether the console asks for the token before it shows a page."""
        return bool(self._token)

    def new_session(self, token: str) -> str | None:
        """Returns a new session, `EXPIRY.SIGNATURE`, for the right token; None for another token."""
        if not hmac.compare_digest(token.encode(errors="surrogatepass"), self._token):
            return None
        expiry = str(self._now_s() + SESSION_S)
        return f"{expiry}.{self._signature('session', expiry)}"

    def session(self, cookie: str, authorization: str) -> str | None:
        """Returns the session of a cookie or `Authorization` header; `open` without a login, None if it is needed."""
        if not self._token:
            return OPEN
        if hmac.compare_digest(authorization.encode(errors="surrogateescape"), b"Bearer " + self._token):
            return OPEN
        expiry, _, signature = cookie.partition(".")
        is_ours = hmac.compare_digest(
            signature.encode(errors="surrogateescape"), self._signature("session", expiry).encode()
        )
        return cookie if is_ours and int(expiry) > self._now_s() else None

    def form_token(self, session: str) -> str:
        """Returns the value of the field `form_token` in a session's forms, which other sites can't guess."""
        return self._signature("form", session)

    def may_post(self, session: str, form: Mapping[str, object], origin: str | None, host: str) -> bool:
        """Returns whether a form has the session's `form_token`, and was sent from a page of this host."""
        given = form.get("form_token")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), self.form_token(session).encode()):
            return False
        return is_own_origin(origin, host)

    def serves_host(self, host: str) -> bool:
        """Returns whether the `Host` header of a request may be `host`: any name, without a token only loopback."""
        return bool(self._token) or is_loopback(without_port(host))

    def _signature(self, purpose: str, text: str) -> str:
        signed = f"{purpose}:{text}".encode(errors="surrogateescape")
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000
