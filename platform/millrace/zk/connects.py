"""Kazoo's client as a session uses it, the outcome of its attempts to connect, and calls that wait for an answer.

These changes are made inside of kazoo, since its interface has no place for them:

    TLS              uses the session's own context, made once; kazoo would make one for each attempt, of files alone
    an attempt       waits for its answer for a third of the session's timeout; kazoo waits for all of it
    its outcome      is kept: the timeout that ZooKeeper granted, and why the last attempt failed
    a later login    that ends without an answer is tried again: its server may be stopping; kazoo gives the session up

A process that stands still for its session's timeout, as on a busy machine, finds the session expired, and its calls
under way get no answer. Kazoo then makes another session by itself, and `patiently` repeats such calls.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from millrace.errors import MalformedValueError, ZooKeeperError
from millrace.zk.security import ZooKeeperSecurity

MECHANISM = "DIGEST-MD5"
CONNECTS_PER_TIMEOUT = 3
FIRST_RETRY_S = 0.05
RETRY_INTERVAL_S = 1.0


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """The default handler of the library kazoo, but with connections over TLS if the security has TLS."""

    def __init__(self, security: ZooKeeperSecurity) -> None:
        super().__init__()
        self._context = security.tls

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: object) -> socket.socket:
        """Returns a connected socket, after the TLS handshake if there is TLS; raises OSError with the reason."""
        plain = socket.create_connection(address, timeout / CONNECTS_PER_TIMEOUT)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname) if self._context else plain
        except BaseException:
            plain.close()
            raise


class Connects:
    """Observes a kazoo client's attempts to connect: the session timeout granted last, and why the last attempt failed.

    If ZooKeeper refuses the login before it has ever accepted one, `login_refused` is set and the client ends.
    """

    def __init__(self, client: KazooClient, timeout_s: float) -> None:
        self.granted_timeout_ms = round(timeout_s * 1000)
        self.failure: str | None = None
        self.login_refused = False
        self._was_granted = False
        connection = client._connection  # noqa: SLF001 -- there is no other way to it
        connection._connect = self._noting(connection._connect)  # noqa: SLF001
        connection._invoke = _bounded(connection._invoke, timeout_s / CONNECTS_PER_TIMEOUT)  # noqa: SLF001

    def _noting(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*server: Any) -> Any:
            try:
                read_timeout_ms, connect_timeout_ms = connect(*server)
            except AuthFailedError as error:
                self.failure = "the login is refused"
                if self._was_granted:
                    raise ConnectionDropped(self.failure) from error
                self.login_refused = True
                raise
            except Exception as error:
                self.failure = str(error)
                raise
            # Kazoo keeps the granted timeout to itself, and returns two thirds of it as the time to read for.
            self.granted_timeout_ms = round(read_timeout_ms * 1.5)
            self._was_granted = True
            return read_timeout_ms, connect_timeout_ms

        return noting


def new_client(connect: str, timeout_s: float, security: ZooKeeperSecurity) -> KazooClient:
    """Returns a kazoo client that is not started; raises MalformedValueError if `connect` names no servers."""
    login = security.login
    try:
        return KazooClient(
            hosts=connect,
            timeout=timeout_s,
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_RETRY_S, backoff=2, max_delay=RETRY_INTERVAL_S),
            handler=SequentialThreadingHandler() if security.tls is None else TlsHandler(security),
            sasl_options=None
            if login is None
            else {"mechanism": MECHANISM, "username": login.username, "password": login.password},
        )
    except ValueError as error:
        raise MalformedValueError(f"{connect!r}: expected HOST:PORT[,HOST:PORT...][/chroot]: {error}") from error


def _bounded(invoke: Callable[..., Any], limit_s: float) -> Callable[..., Any]:
    def bounded(timeout_s: float, *request: Any, **how: Any) -> Any:
        return invoke(min(timeout_s, limit_s), *request, **how)

    return bounded


T = TypeVar("T")

PAUSE_S = 0.5
UNANSWERED = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)


def patiently(work: Callable[[], T], limit_s: float) -> T:
    """Returns what `work` returns; calls it again, for `limit_s` at most, while ZooKeeper does not answer."""
    again = Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, ZooKeeperError) and isinstance(error.__cause__, UNANSWERED)
        ),
        stop=stop_after_delay(limit_s),
        wait=wait_fixed(PAUSE_S),
        reraise=True,
    )
    return again(work)
