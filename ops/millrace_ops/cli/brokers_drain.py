"""`millrace brokers drain`: moves everything away from a broker that is to leave the cluster for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import BrokerError, ErrorCode, InvalidReplicaAssignmentError
from millrace_ops.cli.complete import BrokerId
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, DryRun, Json, open_cluster
from millrace_ops.cli.reassignment import Options, Throttle, Wait, carry_out_plan, plan_for

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace_ops.replicas.cluster_state import ClusterState
    from millrace_ops.replicas.plan import Plan


def drain(
    broker_id: BrokerId,
    *,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Move all replicas and leaders away from a broker, so that it can be stopped for good.

    Other replicas stay where they are. If the command is interrupted, the cluster goes on, and the same command watches
    it again. `topics reassign --all --cancel` cancels it.
    """
    options = Options(dry_run, throttle, wait, as_json)
    with open_cluster(bootstrap, client_config) as cluster:
        plan = _plan(cluster, broker_id)
        carry_out_plan(cluster, plan, options)
        while options.is_awaited and (plan := _plan(cluster, broker_id)).moves:  # of topics created in the meantime
            carry_out_plan(cluster, plan, options)
    if options.is_awaited and not as_json:
        print(f"broker {broker_id} holds no replica and leads no partition; it can be stopped for good")


def _plan(cluster: Cluster, broker_id: int) -> Plan:
    """Returns the plan that leaves the broker without replicas, including moves that are already under way.

    Raises:
        BrokerError: There is no such broker.
        InvalidReplicaAssignmentError: Too few brokers remain.
    """
    from millrace_ops.replicas.broker_summary import broker_ids
    from millrace_ops.replicas.cluster_state import read_cluster_state

    state = read_cluster_state(cluster)
    known = broker_ids(state)
    if broker_id not in known:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive and has no replicas")
    if not state.racks.keys() - {broker_id}:
        raise InvalidReplicaAssignmentError(
            f"broker {broker_id} is the only one that is alive; there is no other to take what it has"
        )
    try:
        targets = _targets(state, broker_id, known)
    except InvalidReplicaAssignmentError as error:
        raise InvalidReplicaAssignmentError(f"broker {broker_id} can't leave: {error}") from error
    return plan_for(cluster, state, targets)


def _targets(state: ClusterState, broker_id: int, known: list[int]) -> dict[Partition, tuple[int, ...]]:
    from millrace_ops.replicas.placement import place

    current = {partition: state.assigned(partition) for partition in state.partitions}
    staying = {one: state.racks.get(one) for one in known if one != broker_id}
    live = state.racks.keys() - {broker_id}
    placed = place(current, staying, receivers=live, level=False)
    return {
        partition: placed[partition]
        for partition, one in state.partitions.items()
        if broker_id in one.replicas or broker_id in current[partition]
    }
