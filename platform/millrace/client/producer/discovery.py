"""Finds brokers through ZooKeeper (`zk.connect`), and hears of what changes there.

    new broker, lost broker               children of /brokers/ids
    new topic                             children of /brokers/topics
    a broker takes on a topic             data of /brokers/topics/[topic]

Each of the four makes the producer ask for brokers and leaders again, several times within seconds, since a broker may
hear of a change later than we do; connections to brokers that left are closed.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.clock import Clock
from millrace.errors import BrokerUnreachableError
from millrace.security.protocols import SecurityProtocol
from millrace.zk import paths
from millrace.zk.brokers import read_brokers
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import ZooKeeperSession


class BrokerWatch:
    """Knows where the live brokers listen for a security protocol.

    `on_change(bootstrap)` is called on the session's thread after every change.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        on_change: Callable[[str], None],
        clock: Clock,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: ZooKeeperSecurity = UNSECURED,
    ) -> None:
        self._on_change = on_change
        self._protocol = protocol
        self._bootstrap = ""
        self._session = ZooKeeperSession(
            connect,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=session_timeout_ms,
            on_change=self._changed,
            clock=clock,
            security=security,
        )
        self._session.start()
        try:
            self._bootstrap = self._read()
        except BaseException:
            self._session.close()
            raise

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of each live broker, with commas between; raises BrokerUnreachableError where there is none."""
        if not self._bootstrap:
            raise BrokerUnreachableError("no broker is registered in ZooKeeper")
        return self._bootstrap

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def _changed(self, _: frozenset[str] | None) -> None:
        self._bootstrap = self._read()
        if self._bootstrap:
            self._on_change(self._bootstrap)

    def _read(self) -> str:
        """Reads, and watches, brokers, topics and assignments; returns the brokers' addresses."""
        brokers = read_brokers(self._session, watch=True, security_protocol=self._protocol.name)
        topics = self._session.children(paths.TOPICS, watch=True)
        self._session.get_many([paths.topic(name) for name in topics], watch=True)
        return ",".join(map(str, brokers))
