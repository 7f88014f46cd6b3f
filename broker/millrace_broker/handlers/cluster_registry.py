"""The APIs that a member of a cluster serves beyond those of `registry`; the controller and brokers call them."""

from __future__ import annotations

from millrace_broker.handlers import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k07_controlled_shutdown,
    k56_alter_partition,
    k67_allocate_producer_ids,
)
from millrace_broker.handlers.api import Api

CLUSTER_APIS: dict[int, Api] = {
    api.key: api
    for api in (
        k04_leader_and_isr.API,
        k05_stop_replica.API,
        k06_update_metadata.API,
        k07_controlled_shutdown.API,
        k56_alter_partition.API,
        k67_allocate_producer_ids.API,
    )
}
