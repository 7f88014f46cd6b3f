"""The messages of every API, in the types that mypy checks them by.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.wire.api import ApiKey
from millrace.wire.api_messages import ApiMessages

if TYPE_CHECKING:
    from millrace.wire.messages import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        allocate_producer_ids,
        alter_client_quotas,
        alter_configs,
        alter_partition,
        alter_partition_reassignments,
        alter_replica_log_dirs,
        alter_user_scram_credentials,
        api_versions,
        consumer_group_describe,
        consumer_group_heartbeat,
        controlled_shutdown,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_groups,
        delete_records,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_topic_partitions,
        describe_transactions,
        describe_user_scram_credentials,
        elect_leaders,
        end_txn,
        expire_delegation_token,
        fetch,
        find_coordinator,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_config_resources,
        list_groups,
        list_offsets,
        list_partition_reassignments,
        list_transactions,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        stop_replica,
        sync_group,
        txn_offset_commit,
        update_metadata,
        write_txn_markers,
    )

ADD_OFFSETS_TO_TXN: ApiMessages[
    add_offsets_to_txn.AddOffsetsToTxnRequest,
    add_offsets_to_txn.AddOffsetsToTxnRequestFields,
    add_offsets_to_txn.AddOffsetsToTxnResponse,
    add_offsets_to_txn.AddOffsetsToTxnResponseFields,
] = ApiMessages(ApiKey.ADD_OFFSETS_TO_TXN)
ADD_PARTITIONS_TO_TXN: ApiMessages[
    add_partitions_to_txn.AddPartitionsToTxnRequest,
    add_partitions_to_txn.AddPartitionsToTxnRequestFields,
    add_partitions_to_txn.AddPartitionsToTxnResponse,
    add_partitions_to_txn.AddPartitionsToTxnResponseFields,
] = ApiMessages(ApiKey.ADD_PARTITIONS_TO_TXN)
ALLOCATE_PRODUCER_IDS: ApiMessages[
    allocate_producer_ids.AllocateProducerIdsRequest,
    allocate_producer_ids.AllocateProducerIdsRequestFields,
    allocate_producer_ids.AllocateProducerIdsResponse,
    allocate_producer_ids.AllocateProducerIdsResponseFields,
] = ApiMessages(ApiKey.ALLOCATE_PRODUCER_IDS)
ALTER_CLIENT_QUOTAS: ApiMessages[
    alter_client_quotas.AlterClientQuotasRequest,
    alter_client_quotas.AlterClientQuotasRequestFields,
    alter_client_quotas.AlterClientQuotasResponse,
    alter_client_quotas.AlterClientQuotasResponseFields,
] = ApiMessages(ApiKey.ALTER_CLIENT_QUOTAS)
ALTER_CONFIGS: ApiMessages[
    alter_configs.AlterConfigsRequest,
    alter_configs.AlterConfigsRequestFields,
    alter_configs.AlterConfigsResponse,
    alter_configs.AlterConfigsResponseFields,
] = ApiMessages(ApiKey.ALTER_CONFIGS)
ALTER_PARTITION: ApiMessages[
    alter_partition.AlterPartitionRequest,
    alter_partition.AlterPartitionRequestFields,
    alter_partition.AlterPartitionResponse,
    alter_partition.AlterPartitionResponseFields,
] = ApiMessages(ApiKey.ALTER_PARTITION)
ALTER_PARTITION_REASSIGNMENTS: ApiMessages[
    alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    alter_partition_reassignments.AlterPartitionReassignmentsRequestFields,
    alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    alter_partition_reassignments.AlterPartitionReassignmentsResponseFields,
] = ApiMessages(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
ALTER_REPLICA_LOG_DIRS: ApiMessages[
    alter_replica_log_dirs.AlterReplicaLogDirsRequest,
    alter_replica_log_dirs.AlterReplicaLogDirsRequestFields,
    alter_replica_log_dirs.AlterReplicaLogDirsResponse,
    alter_replica_log_dirs.AlterReplicaLogDirsResponseFields,
] = ApiMessages(ApiKey.ALTER_REPLICA_LOG_DIRS)
ALTER_USER_SCRAM_CREDENTIALS: ApiMessages[
    alter_user_scram_credentials.AlterUserScramCredentialsRequest,
    alter_user_scram_credentials.AlterUserScramCredentialsRequestFields,
    alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    alter_user_scram_credentials.AlterUserScramCredentialsResponseFields,
] = ApiMessages(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
API_VERSIONS: ApiMessages[
    api_versions.ApiVersionsRequest,
    api_versions.ApiVersionsRequestFields,
    api_versions.ApiVersionsResponse,
    api_versions.ApiVersionsResponseFields,
] = ApiMessages(ApiKey.API_VERSIONS)
CONSUMER_GROUP_DESCRIBE: ApiMessages[
    consumer_group_describe.ConsumerGroupDescribeRequest,
    consumer_group_describe.ConsumerGroupDescribeRequestFields,
    consumer_group_describe.ConsumerGroupDescribeResponse,
    consumer_group_describe.ConsumerGroupDescribeResponseFields,
] = ApiMessages(ApiKey.CONSUMER_GROUP_DESCRIBE)
CONSUMER_GROUP_HEARTBEAT: ApiMessages[
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequestFields,
    consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    consumer_group_heartbeat.ConsumerGroupHeartbeatResponseFields,
] = ApiMessages(ApiKey.CONSUMER_GROUP_HEARTBEAT)
CONTROLLED_SHUTDOWN: ApiMessages[
    controlled_shutdown.ControlledShutdownRequest,
    controlled_shutdown.ControlledShutdownRequestFields,
    controlled_shutdown.ControlledShutdownResponse,
    controlled_shutdown.ControlledShutdownResponseFields,
] = ApiMessages(ApiKey.CONTROLLED_SHUTDOWN)
CREATE_ACLS: ApiMessages[
    create_acls.CreateAclsRequest,
    create_acls.CreateAclsRequestFields,
    create_acls.CreateAclsResponse,
    create_acls.CreateAclsResponseFields,
] = ApiMessages(ApiKey.CREATE_ACLS)
CREATE_DELEGATION_TOKEN: ApiMessages[
    create_delegation_token.CreateDelegationTokenRequest,
    create_delegation_token.CreateDelegationTokenRequestFields,
    create_delegation_token.CreateDelegationTokenResponse,
    create_delegation_token.CreateDelegationTokenResponseFields,
] = ApiMessages(ApiKey.CREATE_DELEGATION_TOKEN)
CREATE_PARTITIONS: ApiMessages[
    create_partitions.CreatePartitionsRequest,
    create_partitions.CreatePartitionsRequestFields,
    create_partitions.CreatePartitionsResponse,
    create_partitions.CreatePartitionsResponseFields,
] = ApiMessages(ApiKey.CREATE_PARTITIONS)
CREATE_TOPICS: ApiMessages[
    create_topics.CreateTopicsRequest,
    create_topics.CreateTopicsRequestFields,
    create_topics.CreateTopicsResponse,
    create_topics.CreateTopicsResponseFields,
] = ApiMessages(ApiKey.CREATE_TOPICS)
DELETE_ACLS: ApiMessages[
    delete_acls.DeleteAclsRequest,
    delete_acls.DeleteAclsRequestFields,
    delete_acls.DeleteAclsResponse,
    delete_acls.DeleteAclsResponseFields,
] = ApiMessages(ApiKey.DELETE_ACLS)
DELETE_GROUPS: ApiMessages[
    delete_groups.DeleteGroupsRequest,
    delete_groups.DeleteGroupsRequestFields,
    delete_groups.DeleteGroupsResponse,
    delete_groups.DeleteGroupsResponseFields,
] = ApiMessages(ApiKey.DELETE_GROUPS)
DELETE_RECORDS: ApiMessages[
    delete_records.DeleteRecordsRequest,
    delete_records.DeleteRecordsRequestFields,
    delete_records.DeleteRecordsResponse,
    delete_records.DeleteRecordsResponseFields,
] = ApiMessages(ApiKey.DELETE_RECORDS)
DELETE_TOPICS: ApiMessages[
    delete_topics.DeleteTopicsRequest,
    delete_topics.DeleteTopicsRequestFields,
    delete_topics.DeleteTopicsResponse,
    delete_topics.DeleteTopicsResponseFields,
] = ApiMessages(ApiKey.DELETE_TOPICS)
DESCRIBE_ACLS: ApiMessages[
    describe_acls.DescribeAclsRequest,
    describe_acls.DescribeAclsRequestFields,
    describe_acls.DescribeAclsResponse,
    describe_acls.DescribeAclsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_ACLS)
DESCRIBE_CLIENT_QUOTAS: ApiMessages[
    describe_client_quotas.DescribeClientQuotasRequest,
    describe_client_quotas.DescribeClientQuotasRequestFields,
    describe_client_quotas.DescribeClientQuotasResponse,
    describe_client_quotas.DescribeClientQuotasResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_CLIENT_QUOTAS)
DESCRIBE_CLUSTER: ApiMessages[
    describe_cluster.DescribeClusterRequest,
    describe_cluster.DescribeClusterRequestFields,
    describe_cluster.DescribeClusterResponse,
    describe_cluster.DescribeClusterResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_CLUSTER)
DESCRIBE_CONFIGS: ApiMessages[
    describe_configs.DescribeConfigsRequest,
    describe_configs.DescribeConfigsRequestFields,
    describe_configs.DescribeConfigsResponse,
    describe_configs.DescribeConfigsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_CONFIGS)
DESCRIBE_DELEGATION_TOKEN: ApiMessages[
    describe_delegation_token.DescribeDelegationTokenRequest,
    describe_delegation_token.DescribeDelegationTokenRequestFields,
    describe_delegation_token.DescribeDelegationTokenResponse,
    describe_delegation_token.DescribeDelegationTokenResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_DELEGATION_TOKEN)
DESCRIBE_GROUPS: ApiMessages[
    describe_groups.DescribeGroupsRequest,
    describe_groups.DescribeGroupsRequestFields,
    describe_groups.DescribeGroupsResponse,
    describe_groups.DescribeGroupsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_GROUPS)
DESCRIBE_LOG_DIRS: ApiMessages[
    describe_log_dirs.DescribeLogDirsRequest,
    describe_log_dirs.DescribeLogDirsRequestFields,
    describe_log_dirs.DescribeLogDirsResponse,
    describe_log_dirs.DescribeLogDirsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_LOG_DIRS)
DESCRIBE_PRODUCERS: ApiMessages[
    describe_producers.DescribeProducersRequest,
    describe_producers.DescribeProducersRequestFields,
    describe_producers.DescribeProducersResponse,
    describe_producers.DescribeProducersResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_PRODUCERS)
DESCRIBE_TOPIC_PARTITIONS: ApiMessages[
    describe_topic_partitions.DescribeTopicPartitionsRequest,
    describe_topic_partitions.DescribeTopicPartitionsRequestFields,
    describe_topic_partitions.DescribeTopicPartitionsResponse,
    describe_topic_partitions.DescribeTopicPartitionsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
DESCRIBE_TRANSACTIONS: ApiMessages[
    describe_transactions.DescribeTransactionsRequest,
    describe_transactions.DescribeTransactionsRequestFields,
    describe_transactions.DescribeTransactionsResponse,
    describe_transactions.DescribeTransactionsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_TRANSACTIONS)
DESCRIBE_USER_SCRAM_CREDENTIALS: ApiMessages[
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
    describe_user_scram_credentials.DescribeUserScramCredentialsRequestFields,
    describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    describe_user_scram_credentials.DescribeUserScramCredentialsResponseFields,
] = ApiMessages(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
ELECT_LEADERS: ApiMessages[
    elect_leaders.ElectLeadersRequest,
    elect_leaders.ElectLeadersRequestFields,
    elect_leaders.ElectLeadersResponse,
    elect_leaders.ElectLeadersResponseFields,
] = ApiMessages(ApiKey.ELECT_LEADERS)
END_TXN: ApiMessages[
    end_txn.EndTxnRequest,
    end_txn.EndTxnRequestFields,
    end_txn.EndTxnResponse,
    end_txn.EndTxnResponseFields,
] = ApiMessages(ApiKey.END_TXN)
EXPIRE_DELEGATION_TOKEN: ApiMessages[
    expire_delegation_token.ExpireDelegationTokenRequest,
    expire_delegation_token.ExpireDelegationTokenRequestFields,
    expire_delegation_token.ExpireDelegationTokenResponse,
    expire_delegation_token.ExpireDelegationTokenResponseFields,
] = ApiMessages(ApiKey.EXPIRE_DELEGATION_TOKEN)
FETCH: ApiMessages[
    fetch.FetchRequest,
    fetch.FetchRequestFields,
    fetch.FetchResponse,
    fetch.FetchResponseFields,
] = ApiMessages(ApiKey.FETCH)
FIND_COORDINATOR: ApiMessages[
    find_coordinator.FindCoordinatorRequest,
    find_coordinator.FindCoordinatorRequestFields,
    find_coordinator.FindCoordinatorResponse,
    find_coordinator.FindCoordinatorResponseFields,
] = ApiMessages(ApiKey.FIND_COORDINATOR)
HEARTBEAT: ApiMessages[
    heartbeat.HeartbeatRequest,
    heartbeat.HeartbeatRequestFields,
    heartbeat.HeartbeatResponse,
    heartbeat.HeartbeatResponseFields,
] = ApiMessages(ApiKey.HEARTBEAT)
INCREMENTAL_ALTER_CONFIGS: ApiMessages[
    incremental_alter_configs.IncrementalAlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsRequestFields,
    incremental_alter_configs.IncrementalAlterConfigsResponse,
    incremental_alter_configs.IncrementalAlterConfigsResponseFields,
] = ApiMessages(ApiKey.INCREMENTAL_ALTER_CONFIGS)
INIT_PRODUCER_ID: ApiMessages[
    init_producer_id.InitProducerIdRequest,
    init_producer_id.InitProducerIdRequestFields,
    init_producer_id.InitProducerIdResponse,
    init_producer_id.InitProducerIdResponseFields,
] = ApiMessages(ApiKey.INIT_PRODUCER_ID)
JOIN_GROUP: ApiMessages[
    join_group.JoinGroupRequest,
    join_group.JoinGroupRequestFields,
    join_group.JoinGroupResponse,
    join_group.JoinGroupResponseFields,
] = ApiMessages(ApiKey.JOIN_GROUP)
LEADER_AND_ISR: ApiMessages[
    leader_and_isr.LeaderAndIsrRequest,
    leader_and_isr.LeaderAndIsrRequestFields,
    leader_and_isr.LeaderAndIsrResponse,
    leader_and_isr.LeaderAndIsrResponseFields,
] = ApiMessages(ApiKey.LEADER_AND_ISR)
LEAVE_GROUP: ApiMessages[
    leave_group.LeaveGroupRequest,
    leave_group.LeaveGroupRequestFields,
    leave_group.LeaveGroupResponse,
    leave_group.LeaveGroupResponseFields,
] = ApiMessages(ApiKey.LEAVE_GROUP)
LIST_CONFIG_RESOURCES: ApiMessages[
    list_config_resources.ListConfigResourcesRequest,
    list_config_resources.ListConfigResourcesRequestFields,
    list_config_resources.ListConfigResourcesResponse,
    list_config_resources.ListConfigResourcesResponseFields,
] = ApiMessages(ApiKey.LIST_CONFIG_RESOURCES)
LIST_GROUPS: ApiMessages[
    list_groups.ListGroupsRequest,
    list_groups.ListGroupsRequestFields,
    list_groups.ListGroupsResponse,
    list_groups.ListGroupsResponseFields,
] = ApiMessages(ApiKey.LIST_GROUPS)
LIST_OFFSETS: ApiMessages[
    list_offsets.ListOffsetsRequest,
    list_offsets.ListOffsetsRequestFields,
    list_offsets.ListOffsetsResponse,
    list_offsets.ListOffsetsResponseFields,
] = ApiMessages(ApiKey.LIST_OFFSETS)
LIST_PARTITION_REASSIGNMENTS: ApiMessages[
    list_partition_reassignments.ListPartitionReassignmentsRequest,
    list_partition_reassignments.ListPartitionReassignmentsRequestFields,
    list_partition_reassignments.ListPartitionReassignmentsResponse,
    list_partition_reassignments.ListPartitionReassignmentsResponseFields,
] = ApiMessages(ApiKey.LIST_PARTITION_REASSIGNMENTS)
LIST_TRANSACTIONS: ApiMessages[
    list_transactions.ListTransactionsRequest,
    list_transactions.ListTransactionsRequestFields,
    list_transactions.ListTransactionsResponse,
    list_transactions.ListTransactionsResponseFields,
] = ApiMessages(ApiKey.LIST_TRANSACTIONS)
METADATA: ApiMessages[
    metadata.MetadataRequest,
    metadata.MetadataRequestFields,
    metadata.MetadataResponse,
    metadata.MetadataResponseFields,
] = ApiMessages(ApiKey.METADATA)
OFFSET_COMMIT: ApiMessages[
    offset_commit.OffsetCommitRequest,
    offset_commit.OffsetCommitRequestFields,
    offset_commit.OffsetCommitResponse,
    offset_commit.OffsetCommitResponseFields,
] = ApiMessages(ApiKey.OFFSET_COMMIT)
OFFSET_DELETE: ApiMessages[
    offset_delete.OffsetDeleteRequest,
    offset_delete.OffsetDeleteRequestFields,
    offset_delete.OffsetDeleteResponse,
    offset_delete.OffsetDeleteResponseFields,
] = ApiMessages(ApiKey.OFFSET_DELETE)
OFFSET_FETCH: ApiMessages[
    offset_fetch.OffsetFetchRequest,
    offset_fetch.OffsetFetchRequestFields,
    offset_fetch.OffsetFetchResponse,
    offset_fetch.OffsetFetchResponseFields,
] = ApiMessages(ApiKey.OFFSET_FETCH)
OFFSET_FOR_LEADER_EPOCH: ApiMessages[
    offset_for_leader_epoch.OffsetForLeaderEpochRequest,
    offset_for_leader_epoch.OffsetForLeaderEpochRequestFields,
    offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    offset_for_leader_epoch.OffsetForLeaderEpochResponseFields,
] = ApiMessages(ApiKey.OFFSET_FOR_LEADER_EPOCH)
PRODUCE: ApiMessages[
    produce.ProduceRequest,
    produce.ProduceRequestFields,
    produce.ProduceResponse,
    produce.ProduceResponseFields,
] = ApiMessages(ApiKey.PRODUCE)
RENEW_DELEGATION_TOKEN: ApiMessages[
    renew_delegation_token.RenewDelegationTokenRequest,
    renew_delegation_token.RenewDelegationTokenRequestFields,
    renew_delegation_token.RenewDelegationTokenResponse,
    renew_delegation_token.RenewDelegationTokenResponseFields,
] = ApiMessages(ApiKey.RENEW_DELEGATION_TOKEN)
SASL_AUTHENTICATE: ApiMessages[
    sasl_authenticate.SaslAuthenticateRequest,
    sasl_authenticate.SaslAuthenticateRequestFields,
    sasl_authenticate.SaslAuthenticateResponse,
    sasl_authenticate.SaslAuthenticateResponseFields,
] = ApiMessages(ApiKey.SASL_AUTHENTICATE)
SASL_HANDSHAKE: ApiMessages[
    sasl_handshake.SaslHandshakeRequest,
    sasl_handshake.SaslHandshakeRequestFields,
    sasl_handshake.SaslHandshakeResponse,
    sasl_handshake.SaslHandshakeResponseFields,
] = ApiMessages(ApiKey.SASL_HANDSHAKE)
STOP_REPLICA: ApiMessages[
    stop_replica.StopReplicaRequest,
    stop_replica.StopReplicaRequestFields,
    stop_replica.StopReplicaResponse,
    stop_replica.StopReplicaResponseFields,
] = ApiMessages(ApiKey.STOP_REPLICA)
SYNC_GROUP: ApiMessages[
    sync_group.SyncGroupRequest,
    sync_group.SyncGroupRequestFields,
    sync_group.SyncGroupResponse,
    sync_group.SyncGroupResponseFields,
] = ApiMessages(ApiKey.SYNC_GROUP)
TXN_OFFSET_COMMIT: ApiMessages[
    txn_offset_commit.TxnOffsetCommitRequest,
    txn_offset_commit.TxnOffsetCommitRequestFields,
    txn_offset_commit.TxnOffsetCommitResponse,
    txn_offset_commit.TxnOffsetCommitResponseFields,
] = ApiMessages(ApiKey.TXN_OFFSET_COMMIT)
UPDATE_METADATA: ApiMessages[
    update_metadata.UpdateMetadataRequest,
    update_metadata.UpdateMetadataRequestFields,
    update_metadata.UpdateMetadataResponse,
    update_metadata.UpdateMetadataResponseFields,
] = ApiMessages(ApiKey.UPDATE_METADATA)
WRITE_TXN_MARKERS: ApiMessages[
    write_txn_markers.WriteTxnMarkersRequest,
    write_txn_markers.WriteTxnMarkersRequestFields,
    write_txn_markers.WriteTxnMarkersResponse,
    write_txn_markers.WriteTxnMarkersResponseFields,
] = ApiMessages(ApiKey.WRITE_TXN_MARKERS)
