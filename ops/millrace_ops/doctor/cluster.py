"""What ZooKeeper and the brokers say: whether they answer, how many there are, and whether replicas fit them.

No node is made in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from millrace.client import Cluster, ClusterMetadata
from millrace.client.consumer.group_offsets import open_session
from millrace.client.replicas import LogDir, describe_log_dirs
from millrace.errors import MillraceError, ZooKeeperError
from millrace.fs import FileSystem
from millrace.zk import paths
from millrace.zk.codec import decode_cluster_id
from millrace.zk.security import ZooKeeperSecurity
from millrace_broker.startup.options import BrokerOptions
from millrace_ops.doctor.findings import DoctorFinding, Level, judged
from millrace_ops.doctor.folders import read_folder
from millrace_ops.replicas.cluster_state import has_leader


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperFacts:
    """The brokers in a ZooKeeper; `trouble` says why it can't be read. Without `cluster_id` none has started there."""

    address: str
    trouble: str | None = None
    cluster_id: str | None = None
    broker_ids: frozenset[int] = frozenset()


def read_zookeeper(address: str, security: ZooKeeperSecurity) -> ZooKeeperFacts:
    """Reads what brokers keep in a ZooKeeper; waits ten seconds for one that does not answer."""
    servers, slash, chroot = address.partition("/")
    prefix = (slash + chroot).rstrip("/")  # a session with a chroot would make it
    try:
        with closing(open_session(servers, security=security)) as session:
            cluster = session.get(prefix + paths.CLUSTER_ID)
            return ZooKeeperFacts(
                address=address,
                cluster_id=None if cluster is None else decode_cluster_id(cluster),
                broker_ids=frozenset(map(int, session.children(prefix + paths.BROKER_IDS))),
            )
    except ZooKeeperError as error:
        return ZooKeeperFacts(address=address, trouble=str(error))


LEAST_ROOM_BYTES = 1 << 20  # the largest batch that a broker takes by default
_LogDirs = dict[tuple[int, str], LogDir]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The state of a cluster, as its brokers report it; `trouble` says why it can't be read.

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


def read_cluster(bootstrap: str, cluster: Cluster, fs: FileSystem) -> ClusterFacts:
    """Reads what a cluster tells of its brokers, partitions and data directories."""
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
        full_dirs=_named(log_dirs, lambda one: one.usable_bytes is not None and one.usable_bytes < LEAST_ROOM_BYTES),
        unknown_dirs=unknown_dirs,
        damaged_dirs=tuple(_damaged(metadata, log_dirs, fs)),
    )


def _silent(cluster: Cluster, metadata: ClusterMetadata) -> Iterator[str]:
    for broker in metadata.brokers.values():
        try:
            cluster.connection_to(broker.address)
        except MillraceError:
            yield f"{broker.id} at {broker.address}"


def _log_dirs(cluster: Cluster, metadata: ClusterMetadata) -> tuple[_LogDirs, tuple[str, ...]]:
    """Returns the data directories by broker and path, and a sentence for each broker that does not tell its own."""
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


def _damaged(metadata: ClusterMetadata, log_dirs: _LogDirs, fs: FileSystem) -> Iterator[str]:
    """Yields the data directories on this machine whose logs have damaged ranges, as far as they can be read."""
    for broker_id, path in log_dirs:
        folder = read_folder(path, fs)
        if folder.exists and (folder.cluster_id, folder.broker_id) == (metadata.cluster_id, broker_id):
            yield from (f"{damage} in {path}" for damage in folder.damaged)


def check_zookeeper(facts: ZooKeeperFacts, broker_id: int | None, *, broker_runs: bool) -> Iterator[DoctorFinding]:
    """Yields a problem where ZooKeeper does not answer, or another broker is registered there under `broker_id`."""
    yield judged(
        f"ZooKeeper at {facts.address}",
        facts.trouble or f"answers, with brokers {_ids(facts.broker_ids)}",
        "answers",
        "start it, or correct zookeeper.connect; firewalls must let port 2181 through",
        is_well=facts.trouble is None,
        otherwise=Level.PROBLEM,
    )
    if broker_id is not None and facts.trouble is None:
        is_there = broker_id in facts.broker_ids
        yield judged(
            "broker.id",
            f"{broker_id}, registered" if is_there else f"{broker_id}, not registered",
            "not registered by another broker",
            "another --id, or stop the other broker",
            is_well=not is_there or broker_runs,
            otherwise=Level.PROBLEM,
        )


def check_replicas(options: BrokerOptions, brokers: int) -> Iterator[DoctorFinding]:
    """Yields, for each property that is a replication factor, a finding on whether it is at most `brokers`."""
    for name, replicas in (
        ("default.replication.factor", options.broker.default_replication_factor),
        ("offsets.topic.replication.factor", options.groups.offsets_topic_replication_factor),
        ("transaction.state.log.replication.factor", options.transactions.transaction_state_log_replication_factor),
    ):
        wanted = min(3, brokers)
        yield judged(
            name,
            f"{replicas}, with {brokers} brokers",
            f"{wanted}: no more than there are brokers, and three where there are so many",
            f"{name}={wanted}; topics that exist are changed by `millrace topics reassign`",
            is_well=wanted <= replicas <= brokers,
            otherwise=Level.PROBLEM if replicas > brokers else Level.ADVICE,
        )


def check_cluster(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Yields findings on a running cluster: silent brokers, partitions without leader or in-sync replicas, disks."""
    yield judged(
        f"cluster at {facts.bootstrap}",
        facts.trouble or f"answers, with brokers {_ids(facts.broker_ids)}",
        "answers",
        "start a broker, or correct --bootstrap and --client-config",
        is_well=facts.trouble is None,
        otherwise=Level.PROBLEM,
    )
    if facts.trouble is None:
        yield judged(
            "brokers",
            f"no connection to {', '.join(facts.silent)}" if facts.silent else f"all {len(facts.broker_ids)} answer",
            "all answer, where they are advertised",
            "advertised.listeners of these brokers must name what clients reach",
            is_well=not facts.silent,
            otherwise=Level.PROBLEM,
        )
        yield judged(
            "partitions without a leader",
            f"{facts.unavailable} of {facts.partitions}",
            "0",
            "start the brokers that have their replicas: `millrace topics describe --unavailable`",
            is_well=not facts.unavailable,
            otherwise=Level.PROBLEM,
        )
        yield judged(
            "under-replicated partitions",
            f"{facts.under_replicated} of {facts.partitions}",
            "0",
            "see which broker lags: `millrace topics describe --under-replicated`, `millrace brokers list`",
            is_well=not facts.under_replicated,
            otherwise=Level.PROBLEM,
        )
        yield from check_directories(facts)
        if len(facts.broker_ids) > 1:
            yield judged(
                "partitions with one replica",
                f"{facts.on_one_broker} of {facts.partitions}",
                "0: they are lost with their broker",
                "more replicas: `millrace topics reassign --all --replication-factor 3`",
                is_well=not facts.on_one_broker,
            )


def check_directories(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Yields findings on data directories that are offline, full or unknown, or have logs with damaged ranges."""
    yield judged(
        "offline data directories",
        ", ".join(facts.offline_dirs) or "0",
        "0",
        "the broker's log and /readyz of its admin endpoint say why; repair the disk and restart the broker",
        is_well=not facts.offline_dirs,
        otherwise=Level.PROBLEM,
    )
    yield judged(
        "full data directories",
        ", ".join(facts.full_dirs) or "0",
        "0: appends are refused",
        "make room: a smaller retention.bytes, and a request for retention",
        is_well=not facts.full_dirs,
        otherwise=Level.PROBLEM,
    )
    yield judged(
        "damaged ranges of logs",
        ", ".join(facts.damaged_dirs) or "0",
        "0",
        "copy the partitions from other replicas; or stop the broker, and `millrace verify --repair DIR`",
        is_well=not facts.damaged_dirs,
        otherwise=Level.PROBLEM,
    )
    yield judged(
        "data directories that are not told of",
        "; ".join(facts.unknown_dirs) or "0",
        "0",
        "start the broker, or ask as a user who may describe the cluster",
        is_well=not facts.unknown_dirs,
        otherwise=Level.ADVICE,
    )


def _ids(ids: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"
