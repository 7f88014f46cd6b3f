"""Sessions with a real ZooKeeper, as a broker has them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from millrace.clock import SystemClock
from millrace.zk import paths
from millrace.zk.operations import Delete
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import OnChange, ZooKeeperSession

SESSION_TIMEOUT_MS = 20_000
START_TIMEOUT_S = 120


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


def expire(address: str, client_id: tuple[int, bytes]) -> None:
    """Ends a session on the server: a twin that takes it over by its id and password closes it.

    The session's own client may take it back before the twin's close is there, so twins go on until the server gives
    one of them a session of its own, which says that the former is no more. A twin asks for nothing that could be lost
    with its connection, as kazoo does for a chroot.
    """
    servers = address.partition("/")[0]
    taken = client_id
    while taken == client_id:
        twin = KazooClient(hosts=servers, timeout=SESSION_TIMEOUT_MS / 1000, client_id=client_id)
        with suppress(KazooException):
            twin.start(timeout=START_TIMEOUT_S)
        taken = twin.client_id
        twin.stop()
        twin.close()


def end_session(address: str, broker_id: int) -> None:
    """Removes what a killed broker holds in ZooKeeper, as the end of its session does, which may be long in coming."""
    with started(address) as session:
        registration, controller = session.nodes([paths.broker(broker_id), paths.CONTROLLER])
        if registration is None:
            return
        is_controller = controller is not None and controller.session_id == registration.session_id
        held = [paths.broker(broker_id), *([paths.CONTROLLER] if is_controller else [])]
        assert session.transact([Delete(path) for path in held]) is None
