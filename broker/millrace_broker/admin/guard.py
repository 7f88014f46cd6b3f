"""Decides which requests the admin endpoint answers, as a pure function (docs/health.md, docs/maintenance.md).

    request                       reading is open           reading needs the token
    GET /healthz, /readyz         answered                  without the token: the status alone
    another GET                   answered                  needs the token
    POST                          needs the token, and a body that is called application/json

Reading is open on loopback where neither `admin.token` is set nor an authorizer. Whoever has no token has to name this
machine as the host then: a page of another site, whose name leads to 127.0.0.1 (DNS rebinding), is refused. So is every
request that a browser sends for a page of another site (`Origin`). Browsers ask before they send a body that is called
JSON, or a token, to another site, and are never allowed to.

The token is that of the property `admin.token`, or one that the broker makes and keeps:

    DIR/admin.token     one line, in the first data directory, which its owner alone can read (mode 600)

`admin.token.file` names another file. The broker makes it at its first start; a crash leaves all of it or nothing.
Where it can't be kept, as on a full disk, the token is good until the broker stops, and nobody learns it.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from enum import Enum
from typing import NamedTuple

from millrace.addresses import is_loopback
from millrace.errors import InvalidConfigError
from millrace.fs import FileSystem, read_file, write_file_durably

PROBES = ("/healthz", "/readyz")
JSON = "application/json"
READING = ("GET", "HEAD")
logger = logging.getLogger(__name__)

TOKEN_FILE = "admin.token"  # noqa: S105 -- the name of the file
TOKEN_BYTES = 24


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


def token_file(named: str, data_dir: str) -> str:
    """Returns the path of the file: the one that `admin.token.file` names, or that of the first data directory."""
    return named or os.path.join(data_dir, TOKEN_FILE)


def kept_token(fs: FileSystem, path: str) -> str:
    """Returns the token that a file has, after making it if it is not there.

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
