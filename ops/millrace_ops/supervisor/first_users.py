"""The users with which a hardened platform begins, and their rights, made in ZooKeeper before a broker serves.

    admin       may do everything (super.users)
    brokers     the brokers among themselves
    platform    Dagster and the loads: read all topics and their configurations, create topics, commit offsets

A user that ZooKeeper knows is left as it is, and so are its rights: what an administrator has changed stays. The rights
are written before the password, so a start that was cut short between them does both again. Before the first users,
nodes that an open platform has left are given to the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from millrace.client.consumer.group_offsets import open_session
from millrace.security.acls import (
    CLUSTER_NAME,
    EVERY_HOST,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.zk.security import ZooKeeperSecurity
from millrace_broker.cluster.zookeeper_acls import ZooKeeperAcls
from millrace_ops.supervisor.secrets_folder import MECHANISM
from millrace_ops.users.stored_users import in_zookeeper
from millrace_ops.zookeeper_acls import migrate

ITERATIONS = 4096  # a random password of 24 bytes is not guessed, however cheap a guess is


class Right(NamedTuple):
    """An operation on the named resource of a type, or, if the name is `*`, on all resources of that type."""

    operation: AclOperation
    resource: ResourceType
    name: str = WILDCARD


class FirstUser(NamedTuple):
    """A user by its name, and what it may do."""

    name: str
    rights: tuple[Right, ...] = ()


ADMIN = FirstUser("admin")
BROKERS = FirstUser("brokers", (Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),))
PLATFORM = FirstUser(
    "platform",
    (
        Right(AclOperation.READ, ResourceType.TOPIC),
        Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        Right(AclOperation.CREATE, ResourceType.TOPIC),
        Right(AclOperation.READ, ResourceType.GROUP),
    ),
)


def producer_of(topic: str) -> FirstUser:
    """Returns the user `producer`, who may create one topic and write to it."""
    operations = (AclOperation.WRITE, AclOperation.CREATE)
    return FirstUser("producer", tuple(Right(one, ResourceType.TOPIC, topic) for one in operations))


def make_users(
    zookeeper: str, security: ZooKeeperSecurity, users: Iterable[FirstUser], password: Callable[[str], str]
) -> None:
    """Makes the users that do not exist yet; `password` returns the password of a name. Raises ZooKeeperError."""
    with in_zookeeper(zookeeper, security) as stored:
        known = stored.describe()
        missing = [one for one in users if one.name not in known]
        if missing:
            _prepare(zookeeper, security, missing)
        for one in missing:
            stored.set_password(one.name, [MECHANISM], password(one.name), ITERATIONS)


def _prepare(zookeeper: str, security: ZooKeeperSecurity, users: Iterable[FirstUser]) -> None:
    session = open_session(zookeeper, security=security)
    try:
        if security.sets_acls:
            migrate(session, is_secure=True, dry_run=False)
        acls = ZooKeeperAcls(session)
        acls.make_folders()
        for user in users:
            for right in user.rights:
                entry = Acl(f"User:{user.name}", EVERY_HOST, right.operation, PermissionType.ALLOW)
                pattern = ResourcePattern(right.resource, right.name, PatternType.LITERAL)
                acls.change(pattern, frozenset({entry}).union)
    finally:
        session.close()
