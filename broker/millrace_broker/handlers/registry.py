"""Every API that is served. What is not listed here is neither advertised nor answered."""

from __future__ import annotations

from millrace_broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k42_delete_groups,
    k47_offset_delete,
)
from millrace_broker.handlers.api import Api

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        k00_produce.API,
        k01_fetch.API,
        k02_list_offsets.API,
        k03_metadata.API,
        k08_offset_commit.API,
        k09_offset_fetch.API,
        k10_find_coordinator.API,
        k11_join_group.API,
        k12_heartbeat.API,
        k13_leave_group.API,
        k14_sync_group.API,
        k15_describe_groups.API,
        k16_list_groups.API,
        k18_api_versions.API,
        k19_create_topics.API,
        k20_delete_topics.API,
        k42_delete_groups.API,
        k47_offset_delete.API,
    )
}
