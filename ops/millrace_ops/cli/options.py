"""Options and arguments that several commands share, their help texts, and the cluster that they name.

An option with an environment variable may also be set by a profile (profile.py). An address that changes what a command
does, such as `--bootstrap` of a command that works without a broker, has neither: it must be typed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from millrace.client import Cluster

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


def open_cluster(bootstrap: str, client_config: str | None, *, timeout_s: float = 30.0) -> Cluster:
    """Returns the cluster at an address; raises InvalidConfigError where file or environment can't be used."""
    from millrace.client import Cluster
    from millrace.security.client_config import read_client_security

    return Cluster(bootstrap, timeout_s=timeout_s, security=read_client_security(client_config))
