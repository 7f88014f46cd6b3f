"""Keeps configurations, access control lists and delegation tokens in ZooKeeper, in Apache Kafka's own nodes.

What was read before is kept, and only what has changed is read again; after a reconnect all is.

The nodes of topics' configurations are watched, and so are Kafka's notifications of changed configuration. Those of
users, clients and addresses are read again as a whole when one of them has changed. The first configuration of a user's
client is found by its notification alone.

Every resource's node is watched, and the folders of all types are, so lists are obeyed whoever writes them. A node that
can't be read might deny something. So everything on its resource is denied to everyone but super users, until somebody
repairs it. A change is made of the newest entries (`change`), in one transaction with the notification that Kafka's
brokers wait for, and is tried again when another broker was faster. A resource without entries has no node.

A notification tells brokers that are there now, and goes after a while; a broker that comes later reads everything.

A token is watched by its own node, so what somebody else writes is seen with or without a notification; Kafka's brokers
need the notification, which is written after the token. A crash between the two leaves a token that brokers of Apache
Kafka see only after their next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from millrace.errors import ZooKeeperError
from millrace.security.acls import EVERY_HOST, EVERYONE, Acl, AclOperation, Acls, PermissionType, ResourcePattern
from millrace.zk import codec, paths
from millrace.zk.codec import decode_acls, encode_acl_change, encode_acls
from millrace.zk.operations import Create, Delete, Operation, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_broker.security.tokens import DelegationToken, decode_token, encode_token

logger = logging.getLogger(__name__)

ATTEMPTS = 10
NOBODY = frozenset({Acl(EVERYONE, EVERY_HOST, AclOperation.ALL, PermissionType.DENY)})

Change = Callable[[frozenset[Acl]], frozenset[Acl]]


LIFE_MS = 15 * 60_000


def remove_old_notifications(session: ZooKeeperSession, folder: str) -> None:
    """Removes the nodes in `folder` that told brokers of changes more than a quarter of an hour ago."""
    for name in sorted(session.children(folder)):
        notification = f"{folder}/{name}"
        age_ms = session.age_ms(notification)
        if age_ms is not None and age_ms < LIFE_MS:
            break
        session.transact([Delete(notification)])


class ZooKeeperAcls:
    """The access control lists in ZooKeeper; `read` is for one thread at a time, `change` for any."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._acls: Acls = {}

    def make_folders(self) -> None:
        """Makes the parent nodes of access control lists and of notifications, unless they exist."""
        for path in (*paths.ACL_FOLDERS, *paths.ACL_CHANGES.values()):
            self._session.ensure(path)

    def read(self, changed: frozenset[str] | None) -> Acls:
        """Returns the newest access control lists; reads those again whose nodes' paths `changed` has (None: all)."""
        patterns = [
            ResourcePattern(resource_type, name, pattern_type)
            for folder, (resource_type, pattern_type) in paths.ACL_FOLDERS.items()
            for name in sorted(self._session.children(folder, watch=True))
        ]
        dirty = [one for one in patterns if changed is None or one not in self._acls or paths.acls(one) in changed]
        nodes = self._session.get_many([paths.acls(one) for one in dirty], watch=True)
        fresh = {one: None if data is None else _entries(one, data) for one, data in zip(dirty, nodes, strict=True)}
        newest = {one: fresh.get(one, self._acls.get(one)) for one in patterns}
        self._acls = {one: entries for one, entries in newest.items() if entries}
        return self._acls

    def change(self, pattern: ResourcePattern, change: Change) -> None:
        """Replaces the entries of a resource by what `change` makes of them, and notifies other brokers.

        Raises ZooKeeperError where that fails, or where others change the node again and again.
        """
        path = paths.acls(pattern)
        for _ in range(ATTEMPTS):
            found = self._session.get_with_version(path)
            before = frozenset[Acl]() if found is None else decode_acls(found[0])
            after = change(before)
            if after == before:
                return
            notification = Create(paths.acl_change(pattern.pattern_type), encode_acl_change(pattern), sequential=True)
            write = _write(path, after, None if found is None else found[1])
            if self._session.transact([write, notification]) is None:
                remove_old_notifications(self._session, paths.ACL_CHANGES[pattern.pattern_type])
                return
        raise ZooKeeperError(f"{path} was changed by other brokers {ATTEMPTS} times in a row")


def _entries(pattern: ResourcePattern, data: bytes) -> frozenset[Acl]:
    sentence = "%s can't be read: all is denied there but to super users"
    entries = codec.readable(decode_acls, data, logger, sentence, paths.acls(pattern))
    return NOBODY if entries is None else entries


def _write(path: str, acls: frozenset[Acl], version: int | None) -> Operation:
    if version is None:
        return Create(path, encode_acls(acls))
    return SetData(path, encode_acls(acls), version) if acls else Delete(path, version)


class ZooKeeperTokens:
    """Reads and writes the delegation tokens in ZooKeeper; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def start(self) -> None:
        """Makes the parent nodes of tokens and of notifications, unless they exist."""
        for path in paths.DELEGATION_TOKEN_NODES:
            self._session.ensure(path)

    def read(self) -> dict[str, DelegationToken]:
        """Returns the tokens by id, and watches them; one that can't be read is logged and left out."""
        ids = sorted(self._session.children(paths.DELEGATION_TOKENS, watch=True))
        nodes = self._session.get_many([paths.delegation_token(one) for one in ids], watch=True)
        tokens = {
            one: codec.readable(
                decode_token, data, logger, "%s can't be read and is left out", paths.delegation_token(one)
            )
            for one, data in zip(ids, nodes, strict=True)
            if data is not None
        }
        return {one: token for one, token in tokens.items() if token is not None}

    def put(self, token: DelegationToken) -> None:
        """Writes a token, and notifies the other brokers by a node that they watch."""
        self._session.put(paths.delegation_token(token.token_id), encode_token(token))
        self._notify(token.token_id)

    def remove(self, token_id: str) -> None:
        """Removes a token, if it exists, and notifies the other brokers by a node that they watch."""
        self._session.transact([Delete(paths.delegation_token(token_id))])
        self._notify(token_id)

    def _notify(self, token_id: str) -> None:
        self._session.multi([Create(paths.TOKEN_CHANGE, token_id.encode(), sequential=True)])
        remove_old_notifications(self._session, paths.TOKEN_CHANGES)


Configs = Mapping[str, Mapping[str, str]]


class ZooKeeperConfigs:
    """Reads all configurations from ZooKeeper, each time only those that have changed; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._last_notification = ""
        self._topics: dict[str, Mapping[str, str]] = {}
        self._clients: Configs = {}

    def read(self, changed: frozenset[str] | None) -> tuple[Configs, Configs, Configs, Configs]:
        """Returns all configurations; reads those again whose nodes' paths are in `changed` (None: all).

        They are by topic, by broker id as text or `<default>`, by group, and by client (`users/alice`).
        """
        notified = self._read_notifications()
        if changed is None:
            self._topics = {}
        else:
            dirty = {paths.topic_of(path) for path in changed | notified}
            self._topics = {name: config for name, config in self._topics.items() if name not in dirty}
        if changed is None or any(map(paths.is_of_clients, changed | notified)):
            self._clients = self._read_clients()
        return (
            self._read_topics(),
            self._read_all(paths.BROKER_CONFIGS),
            self._read_all(paths.GROUP_CONFIGS),
            self._clients,
        )

    def _read_topics(self) -> Configs:
        names = sorted(self._session.children(paths.TOPIC_CONFIGS, watch=True))
        fresh = self._read_entities(paths.TOPIC_CONFIGS, [name for name in names if name not in self._topics])
        known = {**self._topics, **fresh}
        self._topics = {name: known[name] for name in names if name in known}
        return self._topics

    def _read_clients(self) -> Configs:
        users = self._entities("users")
        clients_of_users = [one for user in users for one in self._entities(f"{user}/clients")]
        entities = [*users, *clients_of_users, *self._entities("clients"), *self._entities("ips")]
        return self._read_entities(paths.CONFIGS, entities)

    def _entities(self, parent: str) -> list[str]:
        return [f"{parent}/{one}" for one in sorted(self._session.children(f"{paths.CONFIGS}/{parent}", watch=True))]

    def _read_all(self, parent: str) -> Configs:
        return self._read_entities(parent, sorted(self._session.children(parent, watch=True)))

    def _read_entities(self, parent: str, entities: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Returns the properties of each entity by name; a node that can't be read is logged and left out."""
        configs: dict[str, Mapping[str, str]] = {}
        nodes = self._session.get_many([f"{parent}/{one}" for one in entities], watch=True)
        for entity, data in zip(entities, nodes, strict=True):
            if data:  # a user who has only properties of clients has a node without data
                try:
                    configs[entity] = codec.decode_config(data)
                except ZooKeeperError:
                    logger.exception("%s/%s can't be read and is left out", parent, entity)
        return configs

    def _read_notifications(self) -> frozenset[str]:
        """Returns the paths of configuration nodes that have changed by the notifications since the last call."""
        names = sorted(self._session.children(paths.CONFIG_CHANGES, watch=True))
        fresh = [name for name in names if name > self._last_notification]
        self._last_notification = max(fresh, default=self._last_notification)
        changed = set()
        for data in self._session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh]):
            if data is not None:
                try:
                    changed.add(f"{paths.CONFIGS}/{codec.decode_config_change(data)}")
                except ZooKeeperError:
                    logger.exception("a notification can't be read and is left out")
        return frozenset(changed)
