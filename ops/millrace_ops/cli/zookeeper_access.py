"""How commands reach ZooKeeper, which a file of properties may secure, so that no secret is in a list of processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace.zk.security import ZooKeeperSecurity
    from millrace.zk.session import ZooKeeperSession


class ZooKeeperPlace(NamedTuple):
    """Where ZooKeeper is, the file that says how to reach it, and whether that file has to name an identity."""

    address: str
    config: Path | None
    needs_identity: bool = False

    @contextmanager
    def session(self) -> Iterator[ZooKeeperSession]:
        """Yields a session, and ends it; raises InvalidConfigError or ZooKeeperError."""
        from millrace.client.consumer.group_offsets import open_session

        session = open_session(self.address, security=read_security(self.config, needs_identity=self.needs_identity))
        try:
            yield session
        finally:
            session.close()


def read_security(file: Path | None, *, needs_identity: bool = False) -> ZooKeeperSecurity:
    """Returns the security that the properties of a file ask for, none without a file; raises InvalidConfigError."""
    from millrace.config import read_properties
    from millrace.errors import InvalidConfigError
    from millrace.zk.security import UNSECURED, ZooKeeperSecurity

    if file is None:
        return UNSECURED
    properties = {name: one.value for name, one in read_properties(file).items()}
    properties["zookeeper.set.acl"] = "true" if needs_identity else "false"
    try:
        return ZooKeeperSecurity.from_properties(properties)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{file}: {error}") from None
