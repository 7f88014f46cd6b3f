"""Decides who may see the console, and which requests may change something.

    there is a token            a page needs a session, which the login gives for the token, or the token itself
    there is none (loopback)    a page is shown to whoever names this machine as the host: a page of another site, whose
                                name leads to 127.0.0.1 (DNS rebinding), is refused
    a POST                      needs a form that this broker has made for the session, and the same origin

A session is `EXPIRY.SIGNATURE`, signed with a key that the process makes for itself, so sessions end with the process.
The cookie is kept from scripts and from other sites (HttpOnly, SameSite=Strict); by TLS it is sent by TLS alone.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from millrace.addresses import is_loopback
from millrace.clock import Clock
from millrace_broker.admin.guard import is_own_origin, without_port

ROOT = "/console"
FORM_TOKEN_HEADER = "X-Console-Form-Token"  # noqa: S105 -- a header's name; by it pages learn what forms carry
SESSION_S = 12 * 3600
OPEN = "open"  # the session where there is no token


class ConsoleAccess:
    """The decisions, for one token, "" where pages are shown to all; `key` is random bytes that nobody else knows."""

    def __init__(self, token: str, key: bytes, clock: Clock) -> None:
        self._token = token.encode()
        self._key = key
        self._clock = clock

    @property
    def asks_for_login(self) -> bool:
        """Whether the console asks for a token."""
        return bool(self._token)

    def new_session(self, token: str) -> str | None:
        """Returns a session for the right token; None for another one."""
        if not hmac.compare_digest(token.encode(errors="surrogatepass"), self._token):
            return None
        expiry = str(self._now_s() + SESSION_S)
        return f"{expiry}.{self._signature('session', expiry)}"

    def session(self, cookie: str, authorization: str) -> str | None:
        """Returns the session of a request; None where it has to log in first."""
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
        """Returns what a form of this session carries, so that no other site can make one."""
        return self._signature("form", session)

    def may_post(self, session: str, form: Mapping[str, object], origin: str | None, host: str) -> bool:
        """Returns whether a form is one that this broker made for the session, and was sent from its own page."""
        given = form.get("form_token")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), self.form_token(session).encode()):
            return False
        return is_own_origin(origin, host)

    def serves_host(self, host: str) -> bool:
        """Returns whether a request may name this host; without a token only this machine itself."""
        return bool(self._token) or is_loopback(without_port(host))

    def _signature(self, purpose: str, text: str) -> str:
        signed = f"{purpose}:{text}".encode(errors="surrogateescape")
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000
