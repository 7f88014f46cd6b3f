"""Asks a running cluster which brokers it has, whether each answers, and how its partitions and directories stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.client import Cluster, ClusterMetadata
from millrace.client.log_dirs import LogDir, describe_log_dirs
from millrace.errors import MillraceError
from millrace_ops.doctor.facts.folders import read_folder
from millrace_ops.replicas.health import has_leader

LEAST_ROOM_BYTES = 1 << 20  # the largest batch that a broker takes by default
_LogDirs = dict[tuple[int, str], LogDir]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What a cluster answered; `trouble` is why it did not.

    `silent` has the brokers that the cluster tells of and that can't be reached from here. Of the partitions,
    `unavailable` have no leader, and `under_replicated` have replicas that are not in sync. Of the data directories,
    `offline_dirs` can't be used, and `full_dirs` have no room for a batch; `unknown_dirs` are the brokers that do not
    tell of theirs, with the reason. `damaged_dirs` are those on this machine in which logs have damaged ranges.
    """

    bootstrap: str
    trouble: str | None = None
    cluster_id: str | None = None
    broker_ids: frozenset[int] = frozenset()
    silent: tuple[str, ...] = ()
    partitions: int = 0
    unavailable: int = 0
    under_replicated: int = 0
    on_one_broker: int = 0
    offline_dirs: tuple[str, ...] = ()
    full_dirs: tuple[str, ...] = ()
    unknown_dirs: tuple[str, ...] = ()
    damaged_dirs: tuple[str, ...] = ()


def read_cluster(bootstrap: str, cluster: Cluster) -> ClusterFacts:
    """Returns the facts of a cluster."""
    try:
        metadata = cluster.metadata()
    except MillraceError as error:
        return ClusterFacts(bootstrap=bootstrap, trouble=str(error))
    log_dirs, unknown_dirs = _log_dirs(cluster, metadata)
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    return ClusterFacts(
        bootstrap=bootstrap,
        cluster_id=metadata.cluster_id,
        broker_ids=frozenset(metadata.brokers),
        silent=tuple(_silent(cluster, metadata)),
        partitions=len(partitions),
        unavailable=sum(not has_leader(one) for one in partitions),
        under_replicated=sum(len(one.isr) < len(one.replicas) for one in partitions),
        on_one_broker=sum(len(one.replicas) == 1 for one in partitions),
        offline_dirs=_named(log_dirs, lambda one: bool(one.error_code)),
        full_dirs=_named(log_dirs, _is_full),
        unknown_dirs=unknown_dirs,
        damaged_dirs=tuple(_damaged(metadata, log_dirs)),
    )


def _silent(cluster: Cluster, metadata: ClusterMetadata) -> Iterator[str]:
    for broker in metadata.brokers.values():
        try:
            cluster.connection_to(broker.address)
        except MillraceError:
            yield f"{broker.id} at {broker.address}"


def _log_dirs(cluster: Cluster, metadata: ClusterMetadata) -> tuple[_LogDirs, tuple[str, ...]]:
    """Returns the data directories by broker and path, and the brokers that do not tell theirs."""
    found: _LogDirs = {}
    unknown: list[str] = []
    for broker in metadata.brokers.values():
        try:
            found |= {(broker.id, one.path): one for one in describe_log_dirs(cluster, broker.id, ())}
        except MillraceError as error:
            unknown.append(f"broker {broker.id}: {error}")
    return found, tuple(unknown)


def _named(log_dirs: _LogDirs, wanted: Callable[[LogDir], bool]) -> tuple[str, ...]:
    return tuple(f"{path} of broker {broker}" for (broker, path), one in log_dirs.items() if wanted(one))


def _damaged(metadata: ClusterMetadata, log_dirs: _LogDirs) -> Iterator[str]:
    """Yields the directories that have damaged ranges, of those that are on this machine and can be read from here."""
    for broker_id, path in log_dirs:
        folder = read_folder(path)
        if folder.exists and (folder.cluster_id, folder.broker_id) == (metadata.cluster_id, broker_id):
            yield from (f"{damage} in {path}" for damage in folder.damaged)


def _is_full(log_dir: LogDir) -> bool:
    return log_dir.usable_bytes is not None and log_dir.usable_bytes < LEAST_ROOM_BYTES
