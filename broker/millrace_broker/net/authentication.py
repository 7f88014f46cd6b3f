"""Holds back the requests of a connection until somebody has authenticated on it, as the state table decides.

    frame → ConnectionGate.admits → a bare token: answered here
                                  → SaslHandshake, SaslAuthenticate: their handlers ask the gate, by the session
                                  → any other request: handled as the table admits it, else the connection ends

Before that, a frame has at most `sasl.server.max.receive.size` bytes, all such connections together have a share of the
memory for requests (`net.server`), and after `connections.max.login.ms` the connection is closed. A failure is answered
after `connection.failed.authentication.delay.ms`, and then the connection is closed. What comes meanwhile is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millrace.clock import Clock
from millrace.errors import (
    IllegalSaslStateError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    WireError,
)
from millrace.times import SECOND_MS
from millrace_broker.handlers.k18_api_versions import VERSIONS
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.connection import Connection
from millrace_broker.security.authentication.authentication import Authentication, CheckToken, State, new_mechanism
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.authentication.listener_security import ListenerSecurity
from millrace_broker.security.client_session import Challenge

if TYPE_CHECKING:
    from millrace_broker.net.json_web_keys import JsonWebKeys

logger = logging.getLogger(__name__)

API_KEY, VERSION = slice(0, 2), slice(2, 4)  # of a request


class ConnectionGate:
    """The SASL login on one connection: lets only requests of the login through until the client has authenticated."""

    def __init__(
        self,
        connection: Connection,
        authentication: Authentication,
        security: ListenerSecurity,
        max_bytes: int,
        metrics: RequestMetrics,
    ) -> None:
        """Takes, as `max_bytes`, the largest frame that the client may send once it has authenticated."""
        self._connection = connection
        self._authentication = authentication
        self._max_bytes = max_bytes
        self._outcomes = metrics.authentications
        self.mechanisms: Sequence[str] = security.mechanisms
        self.failure_delay_ms = security.failure_delay_ms
        connection.session = replace(connection.session, listener=security.listener, authenticator=self)
        connection.limit_frames(min(security.max_receive_bytes, max_bytes))
        self._max_login_s = security.max_login_ms / SECOND_MS
        self._login_timer = asyncio.get_running_loop().call_later(self._max_login_s, self._wait_no_longer)

    def admits(self, frame: memoryview) -> bool:
        """Returns whether to handle a frame; answers a bare SASL token itself. Raises WireError for any other frame."""
        if self._authentication.state is State.BARE_TOKENS:
            self._take_bare_token(bytes(frame))
            return False
        api_key, version = (int.from_bytes(frame[part], "big", signed=True) for part in (API_KEY, VERSION))
        try:
            self._authentication.admit(api_key, version)
        except IllegalSaslStateError as error:
            raise WireError(str(error)) from None
        return True

    def handshake(self, version: int, mechanism: str) -> None:
        """Takes the mechanism that a client chooses.

        Raises IllegalSaslStateError where it may not log in now, UnsupportedSaslMechanismError where it is not offered.
        """
        with self._closing_on_failure():
            self._authentication.handshake(version, mechanism)

    def authenticate(self, token: bytes) -> Challenge:
        """Takes a SASL token and returns the answer to it; the last token gives the session its principal.

        Raises SaslAuthenticationError where the token proves nothing, IllegalSaslStateError where none is expected.
        """
        has_session = self._authentication.authenticated is not None
        with self._closing_on_failure():
            challenge = self._authentication.authenticate(token)
        principal, proven = self._authentication.principal, self._authentication.authenticated
        if self._authentication.state is State.COMPLETE and principal is not None and proven is not None:
            self._outcomes["renewed" if has_session else "succeeded"] += 1
            session = self._connection.session
            self._connection.session = replace(session, principal=principal, is_by_token=proven.is_by_token)
            self._connection.limit_frames(self._max_bytes)
            if not has_session:
                self.close()
                self._connection.welcome()
            if self._authentication.is_endless:
                self._connection.open_gate()
        return challenge

    def close(self) -> None:
        """Cancels the timer that ends a connection without a login."""
        self._login_timer.cancel()

    def _wait_no_longer(self) -> None:
        logger.info("closing the connection of %s: no login within %g s", self._connection.peer, self._max_login_s)
        self._outcomes["failed"] += 1
        self._connection.abort()

    def _take_bare_token(self, token: bytes) -> None:
        try:
            self._connection.tell(self.authenticate(token).token)
        except SaslAuthenticationError:
            return  # it is logged, and there is no form in which to answer it

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except (SaslAuthenticationError, UnsupportedSaslMechanismError) as error:
            self._outcomes["failed"] += 1
            logger.info("authentication of %s failed: %s", self._connection.peer, error)
            asyncio.get_running_loop().call_later(self.failure_delay_ms / SECOND_MS, self._connection.drain)
            raise


class ListenerAuthentication:
    """Makes the gate (the SASL login) of each connection of a listener; keeps the public keys for OAUTHBEARER."""

    def __init__(
        self,
        security: ListenerSecurity,
        credentials: Credentials,
        clock: Clock,
        max_frame_bytes: int,
        metrics: RequestMetrics,
    ) -> None:
        self._security = security
        self._clock = clock
        self._max_frame_bytes = max_frame_bytes
        self._metrics = metrics
        self._keys: JsonWebKeys | None = None
        self._new_mechanism = partial(
            new_mechanism, security=security, credentials=credentials, check_token=self._token_check()
        )

    def gate(self, connection: Connection) -> ConnectionGate:
        """Returns the gate of a new connection, which lets only requests of the SASL login through until it is done."""
        authentication = Authentication(self._security, self._new_mechanism, self._clock, VERSIONS)
        return ConnectionGate(connection, authentication, self._security, self._max_frame_bytes, self._metrics)

    def start(self) -> None:
        """Begins to fetch the public keys that check OAUTHBEARER tokens, if the listener is given their address."""
        if self._keys is not None:
            self._keys.start()

    async def stop(self) -> None:
        """Stops the task that fetches the public keys, if there is one."""
        if self._keys is not None:
            await self._keys.stop()

    def _token_check(self) -> CheckToken | None:
        rules = self._security.tokens
        if rules is None:
            return None
        # Brokers without OAUTHBEARER are spared the time and memory of these libraries.
        from millrace_broker.net.json_web_keys import JsonWebKeys  # noqa: PLC0415
        from millrace_broker.security.authentication.bearer_tokens import NoKeys, token_check  # noqa: PLC0415

        if rules.keys_url is None:
            return token_check(rules, NoKeys(), self._clock)
        self._keys = JsonWebKeys(rules, self._clock)
        return token_check(rules, self._keys, self._clock)
