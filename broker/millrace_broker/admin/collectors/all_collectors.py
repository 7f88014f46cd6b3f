"""Puts the collectors of a broker together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace_broker.admin.collectors.coordinators import (
    FetchSessionCollector,
    GroupCollector,
    LagCollector,
    TransactionCollector,
)
from millrace_broker.admin.collectors.families import Collector
from millrace_broker.admin.collectors.machine import Machine, MachineCollector
from millrace_broker.admin.collectors.replicas import (
    ControllerCollector,
    PartitionCollector,
    ReplicaCollector,
    TimestampCollector,
)
from millrace_broker.admin.collectors.traffic import QuotaCollector, RequestCollector, TopicCollector
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import RequestMetrics


class Collectors(NamedTuple):
    """Holds what yields a broker's metrics: what a worker thread may call, and what only the event loop may."""

    on_thread: tuple[Collector, ...]
    on_loop: tuple[Collector, ...]


def broker_collectors(
    metrics: RequestMetrics,
    services: Services,
    machine: Machine,
    connections: Callable[[], int],
    bytes_in_flight: Callable[[], int],
) -> Collectors:
    """Returns the sources of all metrics of a broker; `connections` counts them, `bytes_in_flight` their memory."""
    replicas, controller = services.replicas, services.controller
    return Collectors(
        on_thread=(MachineCollector(machine),),
        on_loop=(
            RequestCollector(metrics, replicas.purgatory, connections, bytes_in_flight),
            TopicCollector(replicas),
            PartitionCollector(replicas),
            TimestampCollector(replicas, machine.clock),
            GroupCollector(services.groups),
            LagCollector(services.groups, replicas),
            TransactionCollector(services.txns),
            FetchSessionCollector(services.fetch_sessions),
            QuotaCollector(services.quotas, metrics),
            ReplicaCollector(replicas),
            *(() if controller is None else (ControllerCollector(controller),)),
        ),
    )
