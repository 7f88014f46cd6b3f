"""Options and arguments that several commands share, what they name (a cluster, a ZooKeeper), and their completion.

Options that go together are a group, a dataclass; a command that takes one has all of its options (`commands`).
An option with an environment variable may also be set by a profile (profile.py). An address that changes what a command
does, such as `--bootstrap` of a command that works without a broker, has neither: it must be typed.

Names of topics, groups, users and clients, and ids of brokers and tokens, are completed while a user types. The shell
waits for the answer and can't show an error. If the cluster refuses, or doesn't answer within a second, nothing is
completed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.clock import Clock, SystemClock
from millrace.config import read_properties
from millrace.errors import InvalidConfigError, MillraceError
from millrace.fs import FileSystem, OsFileSystem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from millrace.client import Cluster
    from millrace.zk.security import ZooKeeperSecurity
    from millrace.zk.session import ZooKeeperSession
    from millrace_ops.cli.waiting import Waiting

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
class StoreAccess:
    """The options of the stores of tables, which all commands about tables have."""

    store_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the tables' stores, such as aws_region; repeatable."),
    ] = None
    store_options: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Options of stores by their addresses, as JSON (docs/stores.md)."),
    ] = None

    def __call__(self) -> None:
        """Gives this process the options; without any it keeps those of the environment."""
        if self.store_option is None and self.store_options is None:
            return
        from millrace_pipelines.warehouse.stores.options import (  # where there is an extra `tables`
            parsed_options,
            read_options,
            store_options,
            use_store_options,
        )

        known = store_options() if self.store_options is None else read_options(self.store_options)
        use_store_options(known, parsed_options(self.store_option or []))


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The options by which a command reaches a cluster."""

    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    client_config: ClientConfig = None

    def open(self, *, timeout_s: float = 30.0) -> Cluster:
        """Returns a client of the cluster; raises InvalidConfigError for a file or a variable that can't be used."""
        from millrace.client import Cluster
        from millrace.security.client_config import read_client_security

        security = read_client_security(self.client_config)
        return Cluster(self.bootstrap, timeout_s=timeout_s, security=security, waiting=self.waiting(timeout_s))

    def waiting(self, timeout_s: float = 30.0) -> Waiting:
        """Returns what tells that the cluster is waited for."""
        from millrace_ops.cli.waiting import Waiting

        return Waiting(self.bootstrap, timeout_s, CLOCK)


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """The options by which a command reaches ZooKeeper, where `zookeeper` names one."""

    zookeeper: ZooKeeper = None
    zookeeper_config: ZooKeeperConfig = None

    @property
    def security(self) -> ZooKeeperSecurity:
        """Returns the security settings for ZooKeeper; raises InvalidConfigError where their file can't be used."""
        return zookeeper_security(self.zookeeper_config)

    def session(self) -> closing[ZooKeeperSession]:
        """Returns a ZooKeeper session as a context manager; raises InvalidConfigError or ZooKeeperError."""
        return open_zookeeper(self.zookeeper or "", self.security)


def open_zookeeper(address: str, security: ZooKeeperSecurity) -> closing[ZooKeeperSession]:
    """Returns a ZooKeeper session as a context manager; raises ZooKeeperError."""
    from millrace.client.consumer.group_offsets import open_session

    return closing(open_session(address, security=security))


def zookeeper_security(file: Path | None, *, needs_identity: bool = False) -> ZooKeeperSecurity:
    """Returns the ZooKeeper security in a file of properties, none without a file; raises InvalidConfigError.

    The settings are in a file, so that no secret is in a list of processes.
    """
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
    """Returns the values of the options in these dataclasses, by the options' names."""
    return {one.name: getattr(group, one.name) for group in groups for one in fields(group)}


WAIT_S = 1.0


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the topics whose names begin with `incomplete`."""
    from millrace.client import Admin

    return _names(context, incomplete, lambda cluster: Admin(cluster).topics())


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the groups whose names begin with `incomplete`."""
    from millrace.client import Groups

    return _names(context, incomplete, lambda cluster: [one.group_id for one in Groups(cluster).list()])


def complete_user(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the users with credentials or quotas whose names begin with `incomplete`."""
    from millrace.client import Users

    return _names(context, incomplete, lambda cluster: {*Users(cluster).describe(), *_with_quotas(cluster, "user")})


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of live brokers that begin with `incomplete`."""
    return _names(context, incomplete, lambda cluster: map(str, cluster.metadata([]).brokers))


def complete_client(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the client ids with quotas that begin with `incomplete`."""
    return _names(context, incomplete, lambda cluster: _with_quotas(cluster, "client-id"))


def _with_quotas(cluster: Cluster, kind: str) -> set[str]:
    from millrace.client import Quotas

    return {name for one in Quotas(cluster).describe() if (name := one.entity.get(kind)) is not None}


def complete_token(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of delegation tokens that begin with `incomplete`."""
    from millrace.client.access import DelegationTokens

    return _names(context, incomplete, lambda cluster: [one.token_id for one in DelegationTokens(cluster).list()])


def _names(context: typer.Context, incomplete: str, ask: Callable[[Cluster], Iterable[str]]) -> list[str]:
    found: list[str] = []
    thread = threading.Thread(target=_ask, args=(context.params, ask, found), daemon=True)
    thread.start()
    thread.join(WAIT_S)  # the process ends without the thread, where that still waits
    typed = context.params.get("names") or ()
    return sorted(name for name in found if name.startswith(incomplete) and name not in typed)


def _ask(params: Mapping[str, Any], ask: Callable[[Cluster], Iterable[str]], found: list[str]) -> None:
    if params["bootstrap"] is None:  # of a command that asks brokers only where they are given
        return
    access = ClusterAccess(params["bootstrap"], params.get("client_config"))
    with suppress(MillraceError, OSError), access.open(timeout_s=WAIT_S) as cluster:
        found += ask(cluster)


# Arguments of several commands.
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topic)]
TopicNames = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="The topics' names.", autocompletion=complete_topic)
]
BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.", autocompletion=complete_broker)]
