"""`millrace cluster`: whether a cluster is well."""

from __future__ import annotations

import typer

from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, Json
from millrace_ops.cli.output import print_json, print_table

app = Commands(help="See whether a cluster is well.")


@app.callback()
def cluster() -> None:
    """Have Typer keep `health` as a sub-command, which it would drop for an application with one command."""


@app.command()
def health(*, access: ClusterAccess, as_json: Json = False) -> None:
    """Show in one screen whether the cluster is well: brokers, partitions, disks; exit status 1 where it is not."""
    from millrace_ops.replicas.cluster_health import judge, look_at_cluster

    with access.open() as cluster:
        look = look_at_cluster(cluster)
    checks = judge(look)
    is_well = not any(one.is_problem for one in checks)
    if as_json:
        found = [one._asdict() for one in checks]
        print_json({"cluster_id": look.state.metadata.cluster_id, "is_well": is_well, "checks": found})
    else:
        rows = [(one.check, "problem" if one.is_problem else "well", one.detail) for one in checks]
        print_table(("check", "state", "found"), rows)
    if not is_well:
        raise typer.Exit(1)
