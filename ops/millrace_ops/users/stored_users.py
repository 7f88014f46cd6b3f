"""Users in the store itself, for the first administrator of a broker that nobody can log in to yet.

in_folder       metadata.json of a standalone broker, which must not run; a new folder becomes one
in_zookeeper    /config/users/[user], which brokers obey at once
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from millrace.client.consumer.group_offsets import open_session
from millrace.errors import DataDirInUseError, SetupError, ZooKeeperError
from millrace.fs import FileSystem
from millrace.security.sasl.scram import (
    SCRAM_HASHES,
    SCRAM_NUMBERS,
    new_salt,
    parse_credential,
    salted_password,
)
from millrace.zk import codec, paths
from millrace.zk.operations import Create, SetData
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.local_store import FILE, LocalStore
from millrace_broker.security.authentication.credentials import Deletion, Upsertion, altered, user_entity, users_of
from millrace_broker.storage.filenames import LOCK, META_PROPERTIES

USERS = "/config/users"
Properties = Mapping[str, str]
Change = Callable[[Properties], Properties]


class StoredUsers:
    """The SCRAM users in a folder or in ZooKeeper: `read` returns their properties, `change` changes one user's."""

    def __init__(self, read: Callable[[], Mapping[str, Properties]], change: Callable[[str, Change], None]) -> None:
        self._read = read
        self._change = change

    def describe(self) -> dict[str, dict[str, int]]:
        """Returns, by user, the iterations of each mechanism by which the user can log in."""
        users = {
            user: {one: parse_credential(config[one]).iterations for one in SCRAM_HASHES if one in config}
            for user, config in users_of(self._read()).items()
        }
        return {user: users[user] for user in sorted(users) if users[user]}

    def set_password(self, user: str, mechanisms: Sequence[str], password: str, iterations: int) -> None:
        """Gives a user a password for these mechanisms; raises a SecurityError for a refused name or iterations."""
        upsertions = []
        for mechanism in mechanisms:
            salt = new_salt()
            salted = salted_password(SCRAM_HASHES[mechanism], password, salt, iterations)
            upsertions.append(Upsertion(user, SCRAM_NUMBERS[mechanism], iterations, salt, salted))
        self._change(user_entity(user), partial(altered, changes=upsertions))

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Removes a user's credentials; raises ResourceNotFoundError, and removes none, where one is missing."""
        deletions = [Deletion(user, SCRAM_NUMBERS[one]) for one in mechanisms]
        self._change(user_entity(user), partial(altered, changes=deletions))


@contextmanager
def in_folder(folder: str, fs: FileSystem) -> Iterator[StoredUsers]:
    """Yields the users in a standalone broker's data folder, which is locked, so that the broker can't start meanwhile.

    Raises DataDirInUseError if the broker runs, SetupError if the folder is that of a broker in a cluster, and
    StorageError.
    """
    if fs.exists(os.path.join(folder, META_PROPERTIES)) and not fs.exists(os.path.join(folder, FILE)):
        raise SetupError(f"{folder} is of a broker in a cluster; its users are in ZooKeeper (--zookeeper)")
    fs.mkdir(folder)
    fd = fs.open(os.path.join(folder, LOCK), create=True)
    try:
        fs.lock(fd)
        store = LocalStore(fs, folder)
        store.start(lambda _: None)

        def change(entity: str, change: Change) -> None:
            store.set_client_config(entity, change(store.image().client_configs.get(entity, {})))

        yield StoredUsers(lambda: store.image().client_configs, change)
    except BlockingIOError:
        raise DataDirInUseError(f"{folder}: a broker runs there; ask it (--bootstrap)") from None
    finally:
        fs.close(fd)


@contextmanager
def in_zookeeper(address: str, security: ZooKeeperSecurity = UNSECURED) -> Iterator[StoredUsers]:
    """Yields the users of a cluster in ZooKeeper; raises ZooKeeperError."""
    session = open_session(address, security=security)
    try:
        yield StoredUsers(partial(_read, session), partial(_change, session))
    finally:
        with suppress(ZooKeeperError):
            session.close()


def _read(session: ZooKeeperSession) -> dict[str, Properties]:
    entities = [f"users/{name}" for name in session.children(USERS)]
    data = session.get_many([f"{paths.CONFIGS}/{one}" for one in entities])
    return {one: codec.decode_config(found) for one, found in zip(entities, data, strict=True) if found}


def _change(session: ZooKeeperSession, entity: str, change: Change) -> None:
    """Changes a user's properties in ZooKeeper and notifies all brokers; raises ZooKeeperError if another is faster."""
    path = f"{paths.CONFIGS}/{entity}"
    found = session.get_with_version(path)
    data = codec.encode_config(change(codec.decode_config(found[0]) if found is not None and found[0] else {}))
    for parent in (paths.parent(path), paths.CONFIG_CHANGES):
        session.ensure(parent)
    write = Create(path, data) if found is None else SetData(path, data, found[1])
    notification = Create(paths.CONFIG_CHANGE, codec.encode_config_change(entity), sequential=True)
    if session.transact([write, notification]) is not None:
        raise ZooKeeperError(f"{path} was changed by somebody else at the same time; try again")
