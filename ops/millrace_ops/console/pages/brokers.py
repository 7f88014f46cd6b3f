"""The brokers: where they are, what they lead, the room on their disks, and the faults of the broker that answers."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from millrace.client import BrokerMetadata, Cluster
from millrace.client.log_dirs import LogDir, describe_log_dirs
from millrace.error_codes import error_sentence
from millrace.errors import MillraceError
from millrace_ops.console.console import Console
from millrace_ops.console.request import Asked, Page


class BrokerRow(NamedTuple):
    """One broker; `trouble` says why its data directories are not known."""

    broker: BrokerMetadata
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int
    log_dirs: list[LogDir]
    trouble: str


def show_brokers(console: Console, asked: Asked) -> Page:
    """Returns the page of all brokers."""
    overview = console.watch.overview()
    metadata = overview.metadata
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    replicas = Counter(broker for one in partitions for broker in one.replicas)
    in_sync = Counter(broker for one in partitions for broker in one.isr)
    rows = []
    with console.clusters.lent() as cluster:
        for number, broker in sorted(metadata.brokers.items()):
            log_dirs, trouble = _log_dirs(cluster, number)
            is_controller = number == metadata.controller_id
            behind = replicas[number] - in_sync[number]
            rows.append(BrokerRow(broker, is_controller, leads[number], replicas[number], behind, log_dirs, trouble))
    absent = sorted({broker for one in partitions for broker in one.replicas} - metadata.brokers.keys())
    topics = overview.topics.values()
    totals = {
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": sum(one.under_replicated for one in topics),
        "offline": sum(one.offline for one in topics),
        "rates": console.watch.rates.total_rates(),
    }
    values = {"rows": rows, "absent": absent, "overview": overview, "totals": totals, "sentence": error_sentence}
    return Page("brokers.html", {**values, "own_troubles": asked.own_troubles})


def _log_dirs(cluster: Cluster, broker_id: int) -> tuple[list[LogDir], str]:
    try:
        return describe_log_dirs(cluster, broker_id, ()), ""
    except MillraceError as error:
        return [], str(error)
