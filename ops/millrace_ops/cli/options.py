"""Options and arguments that several commands share, and what they name: a cluster, a ZooKeeper.

Options that go together are a group, a dataclass; a command that takes one has all of its options (`commands`).
An option with an environment variable may also be set by a profile (profile.py). An address that changes what a command
does, such as `--bootstrap` of a command that works without a broker, has neither: it must be typed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from millrace.client import Cluster
    from millrace.zk.security import ZooKeeperSecurity
    from millrace.zk.session import ZooKeeperSession

FS: FileSystem = OsFileSystem()
CLOCK: Clock = SystemClock()
"""The doors to the disk and to the time, one of each for a process of the command line, which hands them on."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
MAX_BROKERS = 99  # of a platform on one machine

Bootstrap = Annotated[
    str,
    typer.Option(metavar="HOST:PORT[,...]", envvar="MILLRACE_BOOTSTRAP", help="Brokers to find the cluster by."),
]
ClientConfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        envvar="MILLRACE_CLIENT_CONFIG",
        help="Kafka's client properties of security; env:NAME for a variable with their text.",
    ),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[,...][/chroot]",
        envvar="MILLRACE_ZOOKEEPER",
        help="ZooKeeper, for groups that it coordinates.",
    ),
]
ZooKeeperConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="MILLRACE_ZOOKEEPER_CONFIG",
        help="Properties zookeeper.ssl.* and java.security.auth.login.config, to reach a secured ZooKeeper.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")]
TableDirectory = Annotated[str, typer.Argument(metavar="DIR", help="The table's directory.")]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The options by which a command reaches a cluster."""

    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    client_config: ClientConfig = None

    def open(self, *, timeout_s: float = 30.0) -> Cluster:
        """Returns the cluster; raises InvalidConfigError where file or environment can't be used."""
        from millrace.client import Cluster
        from millrace.security.client_config import read_client_security

        return Cluster(self.bootstrap, timeout_s=timeout_s, security=read_client_security(self.client_config))


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """The options by which a command reaches ZooKeeper, where `zookeeper` names one."""

    zookeeper: ZooKeeper = None
    zookeeper_config: ZooKeeperConfig = None

    @property
    def security(self) -> ZooKeeperSecurity:
        """How ZooKeeper is secured; it may raise InvalidConfigError."""
        return zookeeper_security(self.zookeeper_config)

    def session(self) -> closing[ZooKeeperSession]:
        """Returns a session, to be entered; raises InvalidConfigError or ZooKeeperError."""
        return open_zookeeper(self.zookeeper or "", self.security)


def open_zookeeper(address: str, security: ZooKeeperSecurity) -> closing[ZooKeeperSession]:
    """Returns a session, to be entered; raises ZooKeeperError."""
    from millrace.client.consumer.group_offsets import open_session

    return closing(open_session(address, security=security))


def zookeeper_security(file: Path | None, *, needs_identity: bool = False) -> ZooKeeperSecurity:
    """Returns the security that the properties of a file ask for, none without a file; raises InvalidConfigError.

    It is a file, so that no secret is in a list of processes.
    """
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


def given(*groups: DataclassInstance) -> dict[str, Any]:
    """Returns the options of groups by their names."""
    return {one.name: getattr(group, one.name) for group in groups for one in fields(group)}
