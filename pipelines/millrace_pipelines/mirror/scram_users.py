"""Users who log in by SCRAM, from one ZooKeeper to another.

No request tells what is stored of a password, so that users can't be read by the protocol, and none takes it, so that
they can't be written by it. Clusters with ZooKeeper (Millrace, Apache Kafka up to 3.9) have both in `/config/users`,
in the same form. Elsewhere, users are set at the target by their passwords, and `settings_file` refuses to mirror them.

Only the credentials go along: quotas, which lie in the same nodes, have a way of their own (`access`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from millrace.client.consumer.group_offsets import open_session
from millrace.errors import ZooKeeperError
from millrace.security.sasl.scram import SCRAM_HASHES
from millrace.zk import codec, paths
from millrace.zk.operations import Create, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_pipelines.mirror.settings import Side

USERS = f"{paths.CONFIGS}/users"

Credentials = Mapping[str, str]  # what is stored of a user, by mechanism


class ScramUsers:
    """Takes users from a source's ZooKeeper to the target's; `keep` makes one pass."""

    def __init__(self, source: Side, target: Side) -> None:
        self._source = source
        self._target = target
        self._before: Mapping[str, Credentials] = {}

    def keep(self) -> list[str]:
        """Sets users as they are at the source, takes away those that went since the last pass; returns their names.

        Users that only the target has stay. Raises ZooKeeperError.
        """
        with _session(self._source) as session:
            wanted = read_users(session)
        with _session(self._target) as session:
            changed = [user for user, told in wanted.items() if _set(session, user, told)]
            gone = [one for one in self._before if one not in wanted and _set(session, one, {})]
        self._before = wanted
        return changed + gone


@contextmanager
def _session(side: Side) -> Iterator[ZooKeeperSession]:
    session = open_session(side.zookeeper or "", security=side.zookeeper_security())
    try:
        yield session
    finally:
        with suppress(ZooKeeperError):
            session.close()


def read_users(session: ZooKeeperSession) -> dict[str, Credentials]:
    """Returns the credentials of all users who have some, by the names of their nodes."""
    names = session.children(USERS)
    data = session.get_many([f"{USERS}/{one}" for one in names])
    found = {name: _credentials(codec.decode_config(one)) for name, one in zip(names, data, strict=True) if one}
    return {name: told for name, told in found.items() if told}


def _credentials(config: Mapping[str, str]) -> dict[str, str]:
    return {mechanism: config[mechanism] for mechanism in SCRAM_HASHES if mechanism in config}


def _set(session: ZooKeeperSession, user: str, credentials: Credentials) -> bool:
    """Gives a user these credentials and no other ones, and tells all brokers; returns whether that changes anything.

    Raises ZooKeeperError where somebody else changes the user at the same time.
    """
    path = f"{USERS}/{user}"
    found = session.get_with_version(path)
    config = codec.decode_config(found[0]) if found is not None and found[0] else {}
    if _credentials(config) == credentials:
        return False
    others = {name: value for name, value in config.items() if name not in SCRAM_HASHES}
    data = codec.encode_config(others | dict(credentials))
    for parent in (USERS, paths.CONFIG_CHANGES):
        session.ensure(parent)
    write = Create(path, data) if found is None else SetData(path, data, found[1])
    told = Create(paths.CONFIG_CHANGE, codec.encode_config_change(f"users/{user}"), sequential=True)
    if session.transact([write, told]) is not None:
        raise ZooKeeperError(f"{path} was changed by somebody else at the same time")
    return True
