"""`millrace brokers strays`: lists logs that brokers hold though the cluster does not assign them to these brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import BrokerError, ErrorCode
from millrace_ops.cli.complete import complete_broker
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace_ops.replicas.stray_logs import StrayLog


def strays(
    broker_id: Annotated[
        int | None,
        typer.Argument(metavar="ID", min=0, help="A broker's id; all live brokers.", autocompletion=complete_broker),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """List the logs on live brokers that the cluster does not assign to them; they only take room.

    A broker that was drained while it was dead has such logs when it comes back. To delete one, stop the broker and
    remove the log's folder.
    """
    from millrace_ops.replicas.stray_logs import StrayLog

    with open_cluster(bootstrap, client_config) as cluster:
        live = sorted(cluster.metadata([]).brokers)
        if broker_id is not None and broker_id not in live:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
        found = [stray for one in live if broker_id in (None, one) for stray in _strays(cluster, one)]
    if as_json:
        print_json([one._asdict() for one in found])
    elif found:
        print_table(StrayLog._fields, found)
    else:
        print("no log is stray")


def _strays(cluster: Cluster, broker_id: int) -> list[StrayLog]:
    from millrace.client.log_dirs import describe_log_dirs
    from millrace_ops.replicas.stray_logs import find_strays

    log_dirs = describe_log_dirs(cluster, broker_id)
    return find_strays(broker_id, log_dirs, cluster.metadata(None))
