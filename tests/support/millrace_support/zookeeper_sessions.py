"""Sessions with a real ZooKeeper, as a broker has them."""

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.clock import SystemClock
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import OnChange, ZooKeeperSession

SESSION_TIMEOUT_MS = 20_000


@contextmanager
def started(
    address: str,
    on_change: OnChange = lambda _: None,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    connection_timeout_ms: int = 60_000,
    security: ZooKeeperSecurity = UNSECURED,
) -> Iterator[ZooKeeperSession]:
    """Yields a session that has started, and closes it at the end."""
    session = ZooKeeperSession(
        address,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        on_change=on_change,
        clock=SystemClock(),
        security=security,
    )
    session.start()
    try:
        yield session
    finally:
        session.close()
