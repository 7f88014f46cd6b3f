"""What the protocol's error codes say (Kafka protocol guide, "Error codes"), in the words that Kafka's tools print.

A client says it where the broker's answer has no message of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.error_codes import ErrorCode

SENTENCES: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed for a reason that its log tells",
    ErrorCode.NONE: "there was no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the requested offset is not within the range of offsets that the broker holds",
    ErrorCode.CORRUPT_MESSAGE: "the records are damaged: their checksum or their length is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist: this server does not host this topic-partition",
    ErrorCode.INVALID_FETCH_SIZE: "the size asked for is invalid",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at present",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker that was asked does not have this partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the replica is not available",
    ErrorCode.MESSAGE_TOO_LARGE: "the records are larger than max.message.bytes allows",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of the committed offset is too large",
    ErrorCode.NETWORK_EXCEPTION: "the connection was lost before the answer came",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading and can't serve it yet",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.NOT_COORDINATOR: "this is not the correct coordinator",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is invalid, or the topic is the broker's own",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "there are fewer in-sync replicas than required",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the records are written, but to fewer replicas than min.insync.replicas asks for"
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "the number of acknowledgements is none of -1, 0 and 1",
    ErrorCode.ILLEGAL_GENERATION: "the group has gone on to another generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's other members use another protocol",
    ErrorCode.INVALID_GROUP_ID: "the group id is invalid",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member, or has members while it may have none",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the bounds that the broker allows",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; try again in a moment",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the committed offsets are too large for a record",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access topics",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for the cluster, cluster authorization failed",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is too far from the broker's time",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the broker does not serve this SASL mechanism",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not serve this version of the request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is invalid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is invalid, or larger than the number of brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the assignment of replicas to brokers is invalid",
    ErrorCode.INVALID_CONFIG: "a property of the configuration is invalid",
    ErrorCode.NOT_CONTROLLER: "the broker that was asked is not the controller",
    ErrorCode.INVALID_REQUEST: "the request is invalid; the broker's log may tell why",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the log's message format does not allow this",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker is not satisfied",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch before this one is missing in the log",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the batch is in the log already",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with the same id has taken over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id is not that of the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout is longer than transaction.max.timeout.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the producer's last transaction is still being ended; try again in a moment",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has taken over",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use the transactional id",
    ErrorCode.SECURITY_DISABLED: "the broker has no security features switched on",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "this was not tried, because another part of the request failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker could not read from its disk or write to it",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such data directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "user name or password is wrong",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker does not know the producer any more",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being moved to other brokers",
    ErrorCode.NON_EMPTY_GROUP: "the group is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group id does not exist",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the broker does not know the fetch session",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session has gone on to another epoch",
    ErrorCode.TOPIC_DELETION_DISABLED: "topic deletion is disabled",
    ErrorCode.FENCED_LEADER_EPOCH: "the partition has a newer leader epoch",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the broker does not know the leader epoch yet",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not serve this compression",
    ErrorCode.MEMBER_ID_REQUIRED: "the member has to join again with the id that it was given",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not available",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as group.max.size allows",
    ErrorCode.FENCED_INSTANCE_ID: "another member has the same group.instance.id",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no broker may become the partition's leader",
    ErrorCode.ELECTION_NOT_NEEDED: "the partition has its preferred leader already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is actively subscribed to the topic",
    ErrorCode.INVALID_RECORD: "a record breaks a rule of its topic or of the format",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction that commits offsets is still open",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "a quota is used up; try again later",
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same transactional id has taken over",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no such thing",
    ErrorCode.DUPLICATE_RESOURCE: "the request names a thing twice",
    ErrorCode.INVALID_UPDATE_VERSION: "the partition has changed meanwhile",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic with this id",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic was deleted and made again: its id is another one",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the broker belongs to another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session has used topic names and topic ids by turns",
    ErrorCode.INELIGIBLE_REPLICA: "a broker that is not alive can't be in sync",
    ErrorCode.NEW_LEADER_ELECTED: "the partition has another leader now",
    ErrorCode.FENCED_MEMBER_EPOCH: "the group has gone on without this member",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member still has this group.instance.id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker does not serve this assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member's epoch is older than the group's",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "the request is for a controller and came to a broker, or the reverse",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "the broker does not serve this type of endpoint",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction has to be aborted",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression is invalid",
}


def error_sentence(code: int) -> str:
    """Returns what an error code says, followed by its name in brackets."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"the broker refuses for a reason that has no name here (error {code})"
    return f"{SENTENCES[known]} ({known.name})"
