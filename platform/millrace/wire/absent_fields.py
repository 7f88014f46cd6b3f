"""The value of a field in messages of versions that lack it: the default of the protocol.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from millrace.wire.api import ApiKey

# By API, structure and field.
ABSENT_FIELDS: Mapping[int, Mapping[str, Mapping[str, object]]] = {
    ApiKey.PRODUCE: {
        "TopicProduceData": {
            "name": "",
            "topic_id": None,
        },
        "ProduceResponse": {
            "node_endpoints": (),
        },
        "TopicProduceResponse": {
            "name": "",
            "topic_id": None,
        },
        "PartitionProduceResponse": {
            "log_start_offset": -1,
            "record_errors": (),
            "error_message": None,
            "current_leader": None,
        },
    },
    ApiKey.FETCH: {
        "FetchRequest": {
            "replica_id": -1,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": (),
            "rack_id": "",
            "cluster_id": None,
            "replica_state": None,
        },
        "FetchTopic": {
            "topic": "",
            "topic_id": None,
        },
        "FetchPartition": {
            "log_start_offset": -1,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "replica_directory_id": None,
            "high_watermark": 9223372036854775807,
        },
        "ForgottenTopic": {
            "topic": "",
            "topic_id": None,
        },
        "FetchResponse": {
            "error_code": 0,
            "session_id": 0,
            "node_endpoints": (),
        },
        "FetchableTopicResponse": {
            "topic": "",
            "topic_id": None,
        },
        "PartitionData": {
            "log_start_offset": -1,
            "preferred_read_replica": -1,
            "diverging_epoch": None,
            "current_leader": None,
            "snapshot_id": None,
        },
    },
    ApiKey.LIST_OFFSETS: {
        "ListOffsetsRequest": {
            "isolation_level": 0,
            "timeout": timedelta(milliseconds=0),
        },
        "ListOffsetsPartition": {
            "current_leader_epoch": -1,
        },
        "ListOffsetsResponse": {
            "throttle_time": timedelta(milliseconds=0),
        },
        "ListOffsetsPartitionResponse": {
            "leader_epoch": -1,
        },
    },
    ApiKey.METADATA: {
        "MetadataRequest": {
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
        "MetadataRequestTopic": {
            "topic_id": None,
        },
        "MetadataResponse": {
            "controller_id": -1,
            "cluster_id": None,
            "throttle_time": timedelta(milliseconds=0),
            "cluster_authorized_operations": -2147483648,
            "error_code": 0,
        },
        "MetadataResponseBroker": {
            "rack": None,
        },
        "MetadataResponseTopic": {
            "is_internal": False,
            "topic_authorized_operations": -2147483648,
            "topic_id": None,
        },
        "MetadataResponsePartition": {
            "offline_replicas": (),
            "leader_epoch": -1,
        },
    },
    ApiKey.LEADER_AND_ISR: {
        "LeaderAndIsrRequest": {
            "ungrouped_partition_states": (),
            "broker_epoch": -1,
            "topic_states": (),
            "type": 0,
            "is_kraft_controller": False,
        },
        "LeaderAndIsrPartitionState": {
            "topic_name": "",
            "is_new": False,
            "adding_replicas": (),
            "removing_replicas": (),
            "leader_recovery_state": 0,
        },
        "LeaderAndIsrTopicState": {
            "topic_id": None,
        },
        "LeaderAndIsrResponse": {
            "partition_errors": (),
            "topics": (),
        },
        "LeaderAndIsrPartitionError": {
            "topic_name": "",
        },
    },
    ApiKey.STOP_REPLICA: {
        "StopReplicaRequest": {
            "delete_partitions": False,
            "ungrouped_partitions": (),
            "broker_epoch": -1,
            "topics": (),
            "topic_states": (),
            "is_kraft_controller": False,
        },
    },
    ApiKey.UPDATE_METADATA: {
        "UpdateMetadataRequest": {
            "ungrouped_partition_states": (),
            "broker_epoch": -1,
            "topic_states": (),
            "is_kraft_controller": False,
            "type": 0,
        },
        "UpdateMetadataPartitionState": {
            "topic_name": "",
            "offline_replicas": (),
        },
        "UpdateMetadataBroker": {
            "v0_host": "",
            "v0_port": 0,
            "endpoints": (),
            "rack": None,
        },
        "UpdateMetadataEndpoint": {
            "listener": "",
        },
        "UpdateMetadataTopicState": {
            "topic_id": None,
        },
    },
    ApiKey.CONTROLLED_SHUTDOWN: {
        "ControlledShutdownRequest": {
            "broker_epoch": -1,
        },
    },
    ApiKey.OFFSET_COMMIT: {
        "OffsetCommitRequest": {
            "retention_time": timedelta(milliseconds=-1),
            "group_instance_id": None,
        },
        "OffsetCommitRequestPartition": {
            "committed_leader_epoch": -1,
        },
        "OffsetCommitResponse": {
            "throttle_time": timedelta(milliseconds=0),
        },
    },
    ApiKey.OFFSET_FETCH: {
        "OffsetFetchRequest": {
            "group_id": "",
            "topics": None,
            "require_stable": False,
            "groups": (),
        },
        "OffsetFetchRequestGroup": {
            "member_id": None,
            "member_epoch": -1,
        },
        "OffsetFetchResponse": {
            "topics": (),
            "error_code": 0,
            "throttle_time": timedelta(milliseconds=0),
            "groups": (),
        },
        "OffsetFetchResponsePartition": {
            "committed_leader_epoch": -1,
        },
    },
    ApiKey.FIND_COORDINATOR: {
        "FindCoordinatorRequest": {
            "key": "",
            "key_type": 0,
            "coordinator_keys": (),
        },
        "FindCoordinatorResponse": {
            "error_code": 0,
            "node_id": 0,
            "host": "",
            "port": 0,
            "throttle_time": timedelta(milliseconds=0),
            "error_message": None,
            "coordinators": (),
        },
    },
    ApiKey.JOIN_GROUP: {
        "JoinGroupRequest": {
            "rebalance_timeout": timedelta(milliseconds=-1),
            "group_instance_id": None,
            "reason": None,
        },
        "JoinGroupResponse": {
            "throttle_time": timedelta(milliseconds=0),
            "protocol_type": None,
            "skip_assignment": False,
        },
        "JoinGroupResponseMember": {
            "group_instance_id": None,
        },
    },
    ApiKey.HEARTBEAT: {
        "HeartbeatRequest": {
            "group_instance_id": None,
        },
        "HeartbeatResponse": {
            "throttle_time": timedelta(milliseconds=0),
        },
    },
    ApiKey.LEAVE_GROUP: {
        "LeaveGroupRequest": {
            "member_id": "",
            "members": (),
        },
        "MemberIdentity": {
            "reason": None,
        },
        "LeaveGroupResponse": {
            "throttle_time": timedelta(milliseconds=0),
            "members": (),
        },
    },
    ApiKey.SYNC_GROUP: {
        "SyncGroupRequest": {
            "group_instance_id": None,
            "protocol_type": None,
            "protocol_name": None,
        },
        "SyncGroupResponse": {
            "throttle_time": timedelta(milliseconds=0),
            "protocol_type": None,
            "protocol_name": None,
        },
    },
    ApiKey.DESCRIBE_GROUPS: {
        "DescribeGroupsRequest": {
            "include_authorized_operations": False,
        },
        "DescribeGroupsResponse": {
            "throttle_time": timedelta(milliseconds=0),
        },
        "DescribedGroup": {
            "authorized_operations": -2147483648,
            "error_message": None,
        },
        "DescribedGroupMember": {
            "group_instance_id": None,
        },
    },
    ApiKey.LIST_GROUPS: {
        "ListGroupsRequest": {
            "states_filter": (),
            "types_filter": (),
        },
        "ListGroupsResponse": {
            "throttle_time": timedelta(milliseconds=0),
        },
        "ListedGroup": {
            "group_state": "",
            "group_type": "",
        },
    },
    ApiKey.API_VERSIONS: {
        "ApiVersionsRequest": {
            "client_software_name": "",
            "client_software_version": "",
        },
        "ApiVersionsResponse": {
            "throttle_time": timedelta(milliseconds=0),
            "supported_features": (),
            "finalized_features_epoch": -1,
            "finalized_features": (),
            "zk_migration_ready": False,
        },
    },
    ApiKey.CREATE_TOPICS: {
        "CreatableTopicResult": {
            "topic_config_error_code": 0,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": None,
            "topic_id": None,
        },
    },
    ApiKey.DELETE_TOPICS: {
        "DeleteTopicsRequest": {
            "topic_names": (),
            "topics": (),
        },
        "DeletableTopicResult": {
            "error_message": None,
            "topic_id": None,
        },
    },
    ApiKey.INIT_PRODUCER_ID: {
        "InitProducerIdRequest": {
            "producer_id": -1,
            "producer_epoch": -1,
        },
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "OffsetForLeaderEpochRequest": {
            "replica_id": -2,
        },
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "AddPartitionsToTxnRequest": {
            "v3_and_below_transactional_id": "",
            "v3_and_below_producer_id": 0,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": (),
            "transactions": (),
        },
        "AddPartitionsToTxnResponse": {
            "results_by_topic_v3_and_below": (),
            "error_code": 0,
            "results_by_transaction": (),
        },
    },
    ApiKey.END_TXN: {
        "EndTxnResponse": {
            "producer_id": -1,
            "producer_epoch": -1,
        },
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "TxnOffsetCommitRequest": {
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        },
        "TxnOffsetCommitRequestPartition": {
            "committed_leader_epoch": -1,
        },
    },
    ApiKey.DESCRIBE_CONFIGS: {
        "DescribeConfigsRequest": {
            "include_documentation": False,
        },
        "DescribeConfigsResourceResult": {
            "config_type": 0,
            "documentation": None,
        },
    },
    ApiKey.DESCRIBE_LOG_DIRS: {
        "DescribeLogDirsResponse": {
            "error_code": 0,
        },
        "DescribeLogDirsResult": {
            "total_bytes": -1,
            "usable_bytes": -1,
        },
    },
    ApiKey.SASL_AUTHENTICATE: {
        "SaslAuthenticateResponse": {
            "session_lifetime": timedelta(milliseconds=0),
        },
    },
    ApiKey.CREATE_DELEGATION_TOKEN: {
        "CreateDelegationTokenRequest": {
            "owner_principal_type": None,
            "owner_principal_name": None,
        },
        "CreateDelegationTokenResponse": {
            "token_requester_principal_type": "",
            "token_requester_principal_name": "",
        },
    },
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        "DescribedDelegationToken": {
            "token_requester_principal_type": "",
            "token_requester_principal_name": "",
        },
    },
    ApiKey.ELECT_LEADERS: {
        "ElectLeadersRequest": {
            "election_type": 0,
        },
        "ElectLeadersResponse": {
            "error_code": 0,
        },
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "AlterPartitionReassignmentsRequest": {
            "allow_replication_factor_change": True,
        },
        "AlterPartitionReassignmentsResponse": {
            "allow_replication_factor_change": True,
        },
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "EntryData": {
            "ops": (),
            "error_code": 0,
            "error_message": None,
        },
    },
    ApiKey.ALTER_PARTITION: {
        "ProposedTopic": {
            "topic_name": "",
            "topic_id": None,
        },
        "ProposedPartition": {
            "new_isr": (),
            "leader_recovery_state": 0,
            "new_isr_with_epochs": (),
        },
        "AlteredTopic": {
            "topic_name": "",
            "topic_id": None,
        },
        "AlteredPartition": {
            "leader_recovery_state": 0,
        },
    },
    ApiKey.DESCRIBE_CLUSTER: {
        "DescribeClusterRequest": {
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
        "DescribeClusterResponse": {
            "endpoint_type": 1,
        },
        "DescribeClusterBroker": {
            "is_fenced": False,
        },
    },
    ApiKey.LIST_TRANSACTIONS: {
        "ListTransactionsRequest": {
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
    },
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "ConsumerGroupHeartbeatRequest": {
            "subscribed_topic_regex": None,
        },
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        "Member": {
            "member_type": -1,
        },
    },
    ApiKey.LIST_CONFIG_RESOURCES: {
        "ListConfigResourcesRequest": {
            "resource_types": (),
        },
        "ConfigResource": {
            "resource_type": 16,
        },
    },
}
