"""Options that several commands share, and their help texts.

An option with an environment variable may also be set by a profile (profile.py). An address that changes what a command
does, such as `--bootstrap` of a command that works without a broker, has neither: it must be typed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
