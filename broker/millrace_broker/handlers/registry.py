"""Every API that is served. What is not listed here is neither advertised nor answered."""

from __future__ import annotations

from millrace_broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k48_describe_client_quotas,
    k60_describe_cluster,
    k61_describe_producers,
    k75_describe_topic_partitions,
)
from millrace_broker.handlers.api import Api

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        k00_produce.API,
        k01_fetch.API,
        k02_list_offsets.API,
        k03_metadata.API,
        k10_find_coordinator.API,
        k18_api_versions.API,
        k19_create_topics.API,
        k20_delete_topics.API,
        k21_delete_records.API,
        k32_describe_configs.API,
        k33_alter_configs.API,
        k34_alter_replica_log_dirs.API,
        k35_describe_log_dirs.API,
        k37_create_partitions.API,
        k43_elect_leaders.API,
        k44_incremental_alter_configs.API,
        k45_alter_partition_reassignments.API,
        k46_list_partition_reassignments.API,
        k48_describe_client_quotas.API,
        k60_describe_cluster.API,
        k61_describe_producers.API,
        k75_describe_topic_partitions.API,
    )
}
