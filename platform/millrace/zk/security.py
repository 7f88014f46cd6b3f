"""How a session with ZooKeeper is secured: by TLS, by a login, and by the access that its nodes are given.

The identity of a session is the user of a JAAS file (SASL DIGEST-MD5, scheme `sasl`), or the subject of
a client certificate (scheme `x509`). So the nodes of a secured cluster have this access:

    a node         may be changed by its creator's identity alone, and read by everyone
    SENSITIVE      these nodes, and those below them, are read by that identity alone: they hold secrets
    /consumers     stays open, since members of groups that have no identity write there
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Self

from millrace.zk import paths
from millrace.zk.login import Login, read_login
from millrace.zk.security_config import ZooKeeperSecurityConfig
from millrace.zk.tls import tls_context

SENSITIVE = ("/config/users", "/config/brokers", paths.DELEGATION_TOKENS)


class Access(Enum):
    """Who may do what with a node of ZooKeeper."""

    OPEN = "everyone may do everything"
    CREATORS = "its creator may do everything, and everyone may read it"
    SECRET = "its creator may do everything, and nobody else anything"  # noqa: S105  # not a password


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """What a session needs: the context of its TLS, its login, and whether the nodes that it makes restrict access."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None
    sets_acls: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Returns what the properties ask for, with the files that they name read. Raises InvalidConfigError."""
        config = ZooKeeperSecurityConfig.from_properties(properties)
        return cls(
            tls_context(config) if config.zookeeper_ssl_client_enable else None,
            read_login(config.java_security_auth_login_config) if config.java_security_auth_login_config else None,
            config.zookeeper_set_acl,
        )

    def access(self, path: str) -> Access:
        """Returns who may do what with a node that the session makes, by its path without the chroot."""
        return access(path) if self.sets_acls else Access.OPEN


UNSECURED = ZooKeeperSecurity()


def access(path: str) -> Access:
    """Returns who may do what with a node of a secured cluster, as Kafka has it (ZkData.defaultAcls)."""
    if path == paths.CONSUMERS:
        return Access.OPEN
    return Access.SECRET if path.startswith(SENSITIVE) else Access.CREATORS
