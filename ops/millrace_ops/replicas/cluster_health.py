"""Whether a cluster is well, in few lines: what an operator who was woken looks at first.

Each check has one line. It is a problem if somebody has to act; all else is said for information. What can't be found
out, because a broker refuses to tell it, is named and is no problem; a broker that does not answer is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.replicas import describe_log_dirs
from millrace.errors import BrokerError, BrokerUnreachableError, UnsupportedVersionError
from millrace_ops.replicas.cluster_state import (
    PartitionState,
    broker_ids,
    partition_states,
    read_cluster_state,
    read_min_isr,
)
from millrace_ops.sizes import size

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace.client.replicas import LogDir
    from millrace_ops.replicas.cluster_state import ClusterState

NAMED = 10  # of many partitions, the first so many are named
LEAST_FREE_SHARE = 0.1  # of a volume; with less it is said to be nearly full
WRONG_STATES = {
    PartitionState.UNAVAILABLE: ("leaders", "every partition has a leader", "without a leader"),
    PartitionState.UNDER_MIN_ISR: ("min ISR", "acks=all is served everywhere", "where acks=all is refused"),
    PartitionState.UNDER_REPLICATED: ("replicas", "all are in sync", "with replicas that are not in sync"),
}


class HealthCheck(NamedTuple):
    """One line: what was looked at, whether it is a problem, and what was found."""

    check: str
    is_problem: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What one look at a cluster found; a broker that does not tell of its data directories has None.

    The brokers in `silent` are registered as alive, and did not answer.
    """

    state: ClusterState
    min_isr: Mapping[str, int]
    log_dirs: Mapping[int, Sequence[LogDir] | None]
    silent: Sequence[int] = ()


def look_at_cluster(cluster: Cluster) -> ClusterLook:
    """Asks the cluster; raises BrokerUnreachableError where no broker answers."""
    state = read_cluster_state(cluster)
    topics = sorted({topic for topic, _ in state.partitions})
    log_dirs: dict[int, Sequence[LogDir] | None] = {}
    silent: list[int] = []
    for broker in sorted(state.metadata.brokers):
        log_dirs[broker] = None
        try:
            log_dirs[broker] = describe_log_dirs(cluster, broker, ())
        except BrokerUnreachableError:
            silent.append(broker)
        except (BrokerError, UnsupportedVersionError):
            pass  # the checks of data directories and disks say so
    return ClusterLook(state, read_min_isr(cluster, topics) if topics else {}, log_dirs, silent)


def judge(look: ClusterLook) -> list[HealthCheck]:
    """Returns all checks, in the order in which they are shown."""
    return [
        _brokers(look.state, look.silent),
        _controller(look.state),
        *_partitions(look),
        _directories(look.log_dirs),
        _disks(look.log_dirs),
        _moves(look.state),
    ]


def _brokers(state: ClusterState, silent: Sequence[int]) -> HealthCheck:
    live = sorted(state.metadata.brokers)
    absent = [one for one in broker_ids(state) if one not in state.metadata.brokers]
    gone = f"; not alive, although replicas are assigned to them: {_listed(absent)}" if absent else ""
    hangs = f"; no answer from {_listed(silent)}" if silent else ""
    return HealthCheck("brokers", bool(absent or silent), f"{len(live)} alive: {_listed(live)}{gone}{hangs}")


def _controller(state: ClusterState) -> HealthCheck:
    number = state.metadata.controller_id
    is_there = number in state.metadata.brokers
    return HealthCheck("controller", not is_there, f"broker {number}" if is_there else "there is none")


def _partitions(look: ClusterLook) -> list[HealthCheck]:
    found: dict[PartitionState, list[Partition]] = {state: [] for state in WRONG_STATES}
    for partition, one in sorted(look.state.partitions.items()):
        reassignment = look.state.reassignments.get(partition)
        for state in partition_states(one, look.min_isr[partition[0]], reassignment):
            if state in found:
                found[state].append(partition)
    return [
        HealthCheck(check, bool(found[state]), f"{_partitions_named(found[state])} {wrong}" if found[state] else well)
        for state, (check, well, wrong) in WRONG_STATES.items()
    ]


def _directories(log_dirs: Mapping[int, Sequence[LogDir] | None]) -> HealthCheck:
    offline = [f"{one.path} of broker {broker}" for broker, one in _each(log_dirs) if one.error_code]
    return HealthCheck("data directories", bool(offline), f"offline: {_listed(offline)}" if offline else "all online")


def _disks(log_dirs: Mapping[int, Sequence[LogDir] | None]) -> HealthCheck:
    rooms = [
        (one.usable_bytes / one.total_bytes, one.usable_bytes, f"{one.path} of broker {broker}")
        for broker, one in _each(log_dirs)
        if one.usable_bytes is not None and one.total_bytes
    ]
    unknown = [broker for broker, some in log_dirs.items() if not any(one.total_bytes for one in some or ())]
    silent = f"; not told by {_listed(unknown)}" if unknown else ""
    full = [f"{path} ({size(free)} free)" for share, free, path in sorted(rooms) if share <= LEAST_FREE_SHARE]
    if full:
        return HealthCheck("disks", True, f"nearly full: {_listed(full)}{silent}")
    least = f"at least {size(min(free for _, free, _ in rooms))} free" if rooms else "unknown"
    return HealthCheck("disks", False, least + silent)


def _moves(state: ClusterState) -> HealthCheck:
    moving = sorted(state.reassignments)
    return HealthCheck("moves", False, f"{_partitions_named(moving)} under way" if moving else "none")


def _each(log_dirs: Mapping[int, Sequence[LogDir] | None]) -> list[tuple[int, LogDir]]:
    return [(broker, one) for broker, some in log_dirs.items() for one in some or ()]


def _partitions_named(partitions: Sequence[Partition]) -> str:
    return f"{len(partitions)} ({_listed(f'{topic}-{index}' for topic, index in partitions)})"


def _listed(things: Iterable[object]) -> str:
    texts = [str(one) for one in things]
    return ", ".join(texts[:NAMED]) + (", …" if len(texts) > NAMED else "")
