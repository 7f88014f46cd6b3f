"""The APIs that are served. Others are neither advertised nor answered."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.errors import InvalidConfigError
from millrace.wire.api import ApiKey
from millrace.wire.cold import warm
from millrace.wire.fetch_request import FOLLOWERS_VERSION
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
    k17_sasl_handshake,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
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
        k08_offset_commit.API,
        k09_offset_fetch.API,
        k10_find_coordinator.API,
        k11_join_group.API,
        k12_heartbeat.API,
        k13_leave_group.API,
        k14_sync_group.API,
        k15_describe_groups.API,
        k16_list_groups.API,
        k17_sasl_handshake.API,
        k18_api_versions.API,
        k19_create_topics.API,
        k20_delete_topics.API,
        k21_delete_records.API,
        k22_init_producer_id.API,
        k23_offset_for_leader_epoch.API,
        k24_add_partitions_to_txn.API,
        k25_add_offsets_to_txn.API,
        k26_end_txn.API,
        k27_write_txn_markers.API,
        k28_txn_offset_commit.API,
        k29_describe_acls.API,
        k30_create_acls.API,
        k31_delete_acls.API,
        k32_describe_configs.API,
        k33_alter_configs.API,
        k34_alter_replica_log_dirs.API,
        k35_describe_log_dirs.API,
        k36_sasl_authenticate.API,
        k37_create_partitions.API,
        k38_create_delegation_token.API,
        k39_renew_delegation_token.API,
        k40_expire_delegation_token.API,
        k41_describe_delegation_token.API,
        k42_delete_groups.API,
        k43_elect_leaders.API,
        k44_incremental_alter_configs.API,
        k45_alter_partition_reassignments.API,
        k46_list_partition_reassignments.API,
        k47_offset_delete.API,
        k48_describe_client_quotas.API,
        k49_alter_client_quotas.API,
        k50_describe_user_scram_credentials.API,
        k51_alter_user_scram_credentials.API,
        k60_describe_cluster.API,
        k61_describe_producers.API,
        k65_describe_transactions.API,
        k66_list_transactions.API,
        k68_consumer_group_heartbeat.API,
        k69_consumer_group_describe.API,
        k74_list_config_resources.API,
        k75_describe_topic_partitions.API,
    )
}


def check_guarded(apis: Mapping[int, Api]) -> None:
    """Raises InvalidConfigError where an API names no guards, which an authorizer could not protect."""
    open_to_all = [ApiKey(key).name for key, api in apis.items() if api.guards is None]
    if open_to_all:
        raise InvalidConfigError(f"authorizer.class.name can't be obeyed: {', '.join(open_to_all)} has no guards")


# The first requests of librdkafka, of Apache Kafka's clients, and of followers, which a new leader should answer fast.
# Other codecs are made when they are needed.
_FIRST_ASKED = (
    (ApiKey.API_VERSIONS, 3),
    (ApiKey.API_VERSIONS, 4),
    (ApiKey.METADATA, 12),
    (ApiKey.METADATA, 13),
    (ApiKey.INIT_PRODUCER_ID, 4),
    (ApiKey.INIT_PRODUCER_ID, 5),
    (ApiKey.PRODUCE, 10),
    (ApiKey.PRODUCE, 13),
    (ApiKey.FETCH, 11),
    (ApiKey.FETCH, FOLLOWERS_VERSION),
    (ApiKey.FETCH, 18),
    (ApiKey.FIND_COORDINATOR, 6),
)


def warm_up() -> None:
    """Makes the codecs that the first clients will need; runs in a worker thread while the broker already serves."""
    for key, version in _FIRST_ASKED:
        warm(key, version)
