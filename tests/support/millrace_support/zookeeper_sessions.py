"""Sessions with a real ZooKeeper, as a broker has them."""

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.clock import SystemClock
from millrace.zk import paths
from millrace.zk.operations import Delete
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


def end_session(address: str, broker_id: int) -> None:
    """Removes what a killed broker holds in ZooKeeper, as the end of its session does, which may be long in coming."""
    with started(address) as session:
        registration, controller = session.nodes([paths.broker(broker_id), paths.CONTROLLER])
        if registration is None:
            return
        is_controller = controller is not None and controller.session_id == registration.session_id
        held = [paths.broker(broker_id), *([paths.CONTROLLER] if is_controller else [])]
        assert session.transact([Delete(path) for path in held]) is None
