"""What ZooKeeper and the brokers say: whether they answer, how many there are, and whether replicas fit them."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_broker.startup.options import BrokerOptions
from millrace_ops.doctor.facts.cluster import ClusterFacts
from millrace_ops.doctor.facts.zookeeper import ZooKeeperFacts
from millrace_ops.doctor.findings import Finding, Level, judged


def check_zookeeper(facts: ZooKeeperFacts, broker_id: int | None, *, broker_runs: bool) -> Iterator[Finding]:
    """Yields the findings of ZooKeeper for a broker that is to register there."""
    yield judged(
        f"ZooKeeper at {facts.address}",
        facts.trouble or f"answers, with brokers {_ids(facts.broker_ids)}",
        "answers",
        "start it, or correct zookeeper.connect; firewalls must let port 2181 through",
        is_well=facts.trouble is None,
        otherwise=Level.PROBLEM,
    )
    if broker_id is not None and facts.trouble is None:
        yield check_id(facts.broker_ids, broker_id, broker_runs=broker_runs)


def check_id(registered: frozenset[int], broker_id: int, *, broker_runs: bool) -> Finding:
    """Returns whether the id is free, or that of the broker which holds the folders."""
    is_there = broker_id in registered
    return judged(
        "broker.id",
        f"{broker_id}, registered" if is_there else f"{broker_id}, not registered",
        "not registered by another broker",
        "another --id, or stop the other broker",
        is_well=not is_there or broker_runs,
        otherwise=Level.PROBLEM,
    )


def check_replicas(options: BrokerOptions, brokers: int) -> Iterator[Finding]:
    """Yields, for each property that is a replication factor, whether there are as many brokers."""
    for name, replicas in (
        ("default.replication.factor", options.broker.default_replication_factor),
        ("offsets.topic.replication.factor", options.groups.offsets_topic_replication_factor),
        ("transaction.state.log.replication.factor", options.transactions.transaction_state_log_replication_factor),
    ):
        yield check_replication_factor(name, replicas, brokers)


def check_replication_factor(name: str, replicas: int, brokers: int) -> Finding:
    """Returns whether topics can be created with this replication factor, and outlive a broker."""
    wanted = min(3, brokers)
    return judged(
        name,
        f"{replicas}, with {brokers} brokers",
        f"{wanted}: no more than there are brokers, and three where there are so many",
        f"{name}={wanted}; topics that exist are changed by `millrace topics reassign`",
        is_well=wanted <= replicas <= brokers,
        otherwise=Level.PROBLEM if replicas > brokers else Level.ADVICE,
    )


def check_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Yields the findings of a running cluster."""
    yield judged(
        f"cluster at {facts.bootstrap}",
        facts.trouble or f"answers, with brokers {_ids(facts.broker_ids)}",
        "answers",
        "start a broker, or correct --bootstrap and --client-config",
        is_well=facts.trouble is None,
        otherwise=Level.PROBLEM,
    )
    if facts.trouble is None:
        yield check_reachable(facts)
        yield check_leaders(facts)
        yield check_in_sync(facts)
        yield from check_directories(facts)
        if len(facts.broker_ids) > 1:
            yield check_spread(facts)


def check_reachable(facts: ClusterFacts) -> Finding:
    """Returns whether clients here reach every broker where it says that it listens."""
    return judged(
        "brokers",
        f"no connection to {', '.join(facts.silent)}" if facts.silent else f"all {len(facts.broker_ids)} answer",
        "all answer, where they are advertised",
        "advertised.listeners of these brokers must name what clients reach",
        is_well=not facts.silent,
        otherwise=Level.PROBLEM,
    )


def check_leaders(facts: ClusterFacts) -> Finding:
    """Returns whether every partition can be written to and read."""
    return judged(
        "partitions without a leader",
        f"{facts.unavailable} of {facts.partitions}",
        "0",
        "start the brokers that have their replicas: `millrace topics describe --unavailable`",
        is_well=not facts.unavailable,
        otherwise=Level.PROBLEM,
    )


def check_in_sync(facts: ClusterFacts) -> Finding:
    """Returns whether all replicas of every partition are in sync."""
    return judged(
        "under-replicated partitions",
        f"{facts.under_replicated} of {facts.partitions}",
        "0",
        "see which broker lags: `millrace topics describe --under-replicated`, `millrace brokers list`",
        is_well=not facts.under_replicated,
        otherwise=Level.PROBLEM,
    )


def check_directories(facts: ClusterFacts) -> Iterator[Finding]:
    """Yields whether every data directory can be used, and has room."""
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


def check_spread(facts: ClusterFacts) -> Finding:
    """Returns whether no partition is on one broker alone, though there are several."""
    return judged(
        "partitions with one replica",
        f"{facts.on_one_broker} of {facts.partitions}",
        "0: they are lost with their broker",
        "more replicas: `millrace topics reassign --all --replication-factor 3`",
        is_well=not facts.on_one_broker,
    )


def _ids(ids: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"
