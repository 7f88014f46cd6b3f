"""`millrace brokers`: lists and describes brokers, elects leaders, and drains a broker that is to leave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.errors import BrokerError, ErrorCode
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.complete import BrokerId
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table, print_tables

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.log_dirs import LogDir
    from millrace_ops.replicas.broker_summary import BrokerSummary
    from millrace_ops.replicas.cluster_state import ClusterState

app = Commands(help="List and describe brokers, elect leaders, adopt stray logs, drain a broker that is to leave.")
COLUMNS = (
    "broker", "address", "rack", "controller", "leaders", "replicas", "under_replicated", "out_of_sync", "bytes",
)  # fmt: skip


@app.command("list")
def list_brokers(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientConfig = None, as_json: Json = False
) -> None:
    """List every broker that is alive or holds replicas; one that is not alive has no address."""
    from millrace_ops.replicas.broker_summary import broker_ids, summarize_broker
    from millrace_ops.replicas.cluster_state import read_cluster_state

    with open_cluster(bootstrap, client_config) as cluster:
        state = read_cluster_state(cluster)
        rows = [_summary(summarize_broker(state, one), _log_dirs(cluster, state, one)) for one in broker_ids(state)]
    if as_json:
        print_json(rows)
    else:
        print_table(COLUMNS, (tuple(row.values()) for row in rows))


@app.command()
def describe(
    broker_id: BrokerId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Show a broker's data directories, and the partitions that it leads and follows."""
    from millrace_ops.replicas.broker_summary import broker_ids, summarize_broker
    from millrace_ops.replicas.cluster_state import read_cluster_state

    with open_cluster(bootstrap, client_config) as cluster:
        state = read_cluster_state(cluster)
        if broker_id not in broker_ids(state):
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive and has no replicas")
        log_dirs = _log_dirs(cluster, state, broker_id)
    summary = _summary(summarize_broker(state, broker_id), log_dirs)
    directories = [_directory(one) for one in log_dirs or ()]
    partitions = _partitions(state, broker_id, log_dirs or ())
    if as_json:
        print_json({**summary, "directories": directories, "partitions": partitions})
    else:
        print_tables([summary], directories, partitions)


def _log_dirs(cluster: Cluster, state: ClusterState, broker_id: int) -> list[LogDir] | None:
    """Returns a broker's data directories; None if it is not alive or the request fails."""
    from millrace_ops.replicas.cluster_state import read_log_dirs

    return read_log_dirs(cluster, broker_id) if broker_id in state.metadata.brokers else None


def _summary(broker: BrokerSummary, log_dirs: list[LogDir] | None) -> dict[str, object]:
    from millrace_ops.replicas.broker_summary import total_bytes

    return {
        "broker": broker.id,
        "address": broker.address,
        "rack": broker.rack,
        "controller": broker.is_controller,
        "leaders": broker.leaders,
        "replicas": broker.replicas,
        "under_replicated": broker.under_replicated,
        "out_of_sync": broker.out_of_sync,
        "bytes": None if log_dirs is None else total_bytes(log_dirs),
    }


def _directory(log_dir: LogDir) -> dict[str, object]:
    from millrace.errors import error_name
    from millrace_ops.replicas.broker_summary import total_bytes

    return {
        "directory": log_dir.path,
        "error": error_name(log_dir.error_code) if log_dir.error_code else None,
        "replicas": len(log_dir.replicas),
        "bytes": total_bytes([log_dir]),
        "volume_bytes": log_dir.total_bytes,
        "free_bytes": log_dir.usable_bytes,
    }


def _partitions(state: ClusterState, broker_id: int, log_dirs: Iterable[LogDir]) -> list[dict[str, object]]:
    from millrace.client.log_dirs import replica_bytes
    from millrace_ops.replicas.broker_summary import held_replicas

    sizes = replica_bytes(log_dirs)
    return [
        {
            "topic": one.partition[0],
            "partition": one.partition[1],
            "role": "leader" if one.is_leader else "follower",
            "in_sync": one.is_in_sync,
            "leader": one.leader,
            "replicas": list(one.replicas),
            "bytes": sizes.get(one.partition),
        }
        for one in held_replicas(state, broker_id)
    ]
