"""`millrace zookeeper`: gives the nodes of a cluster to the brokers' identity at ZooKeeper, or opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import DryRun, Json, open_zookeeper, zookeeper_security
from millrace_ops.cli.output import print_json

app = Commands(help="Say who may change the nodes of a cluster in ZooKeeper.")
Address = Annotated[
    str,
    typer.Option("--zookeeper", metavar="HOST:PORT[,...][/chroot]", envvar="MILLRACE_ZOOKEEPER", help="ZooKeeper."),
]
Config = Annotated[
    Path,
    typer.Option(
        "--zookeeper-config",
        metavar="FILE",
        envvar="MILLRACE_ZOOKEEPER_CONFIG",
        help="Properties of the brokers' identity: java.security.auth.login.config or zookeeper.ssl.*.",
    ),
]


@app.command()
def secure(zookeeper: Address, zookeeper_config: Config, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Give all nodes to the brokers' identity; others may read those without secrets, and change none.

    First every broker needs that identity and zookeeper.set.acl=true, or it can't write to its nodes any more.
    """
    _migrate(zookeeper, zookeeper_config, is_secure=True, dry_run=dry_run, as_json=as_json)


@app.command()
def unsecure(zookeeper: Address, zookeeper_config: Config, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Let everybody who reaches ZooKeeper read and change all nodes.

    First every broker needs zookeeper.set.acl=false, or it goes on to make nodes of its own.
    """
    _migrate(zookeeper, zookeeper_config, is_secure=False, dry_run=dry_run, as_json=as_json)


def _migrate(zookeeper: str, config: Path, *, is_secure: bool, dry_run: bool, as_json: bool) -> None:
    from millrace.zk.security import Access
    from millrace_ops.zookeeper_acls import migrate

    security = zookeeper_security(config, needs_identity=True)
    with open_zookeeper(zookeeper, security) as session:
        nodes, changed = migrate(session, is_secure=is_secure, dry_run=dry_run)
    if as_json:
        counts = {one.name.lower(): changed[one] for one in Access}
        print_json({"nodes": nodes, "changed": changed.total(), "dry_run": dry_run, **counts})
        return
    print(f"{'would change' if dry_run else 'changed'} {changed.total()} of {nodes} nodes")
    for one in Access:
        if changed[one]:
            print(f"  {changed[one]}: {one.value}")
