"""The protocol's error codes (Kafka protocol guide, "Error codes"), as far as Millrace gives or understands them.

Each says what it means in the words that Kafka's tools print. A client says it where the broker's answer has no message
of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """The protocol's error codes that Millrace sends or understands; `sentence` says what one means."""

    sentence: str

    def __new__(cls, code: int, sentence: str = "") -> Self:
        """Makes a member with its code and its sentence."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    UNKNOWN_SERVER_ERROR = -1, "the broker failed for a reason that its log tells"
    NONE = 0, "there was no error"
    OFFSET_OUT_OF_RANGE = 1, "the requested offset is not within the range of offsets that the broker holds"
    CORRUPT_MESSAGE = 2, "the records are damaged: their checksum or their length is wrong"
    UNKNOWN_TOPIC_OR_PARTITION = 3, "it does not exist: this server does not host this topic-partition"
    INVALID_FETCH_SIZE = 4, "the size asked for is invalid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at present"
    NOT_LEADER_OR_FOLLOWER = 6, "the broker that was asked does not have this partition"
    REQUEST_TIMED_OUT = 7, "the request timed out"
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, "the records are larger than max.message.bytes allows"
    STALE_CONTROLLER_EPOCH = 11, "a newer controller, or a newer leader of the partition, is known"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata of the committed offset is too large"
    NETWORK_EXCEPTION = 13, "the connection was lost before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is loading and can't serve it yet"
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available"
    NOT_COORDINATOR = 16, "this is not the correct coordinator"
    INVALID_TOPIC_EXCEPTION = 17, "the topic's name is invalid, or the topic is the broker's own"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, "there are fewer in-sync replicas than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "the records are written, but to fewer replicas than min.insync.replicas asks for",
    )
    INVALID_REQUIRED_ACKS = 21, "the number of acknowledgements is none of -1, 0 and 1"
    ILLEGAL_GENERATION = 22, "the group has gone on to another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the group's other members use another protocol"
    INVALID_GROUP_ID = 24, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "the group has no such member, or has members while it may have none"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside of the bounds that the broker allows"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing; try again in a moment"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the committed offsets are too large for a record"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized to access topics"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized to access group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster, cluster authorization failed"
    INVALID_TIMESTAMP = 32, "a record's timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not serve this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not come next in the authentication"
    UNSUPPORTED_VERSION = 35, "the broker does not serve this version of the request"
    TOPIC_ALREADY_EXISTS = 36, "it already exists"
    INVALID_PARTITIONS = 37, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is invalid, or larger than the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the assignment of replicas to brokers is invalid"
    INVALID_CONFIG = 40, "a property of the configuration is invalid"
    NOT_CONTROLLER = 41, "the broker that was asked is not the controller"
    INVALID_REQUEST = 42, "the request is invalid; the broker's log may tell why"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the log's message format does not allow this"
    POLICY_VIOLATION = 44, "a policy of the broker is not satisfied"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "a batch before this one is missing in the log"
    DUPLICATE_SEQUENCE_NUMBER = 46, "the batch is in the log already"
    INVALID_PRODUCER_EPOCH = 47, "a newer producer with the same id has taken over"
    INVALID_TXN_STATE = 48, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id is not that of the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is longer than transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, "the producer's last transaction is still being ended; try again in a moment"
    TRANSACTION_COORDINATOR_FENCED = 52, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized to use the transactional id"
    SECURITY_DISABLED = 54, "the broker has no security features switched on"
    OPERATION_NOT_ATTEMPTED = 55, "this was not tried, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, "the broker could not read from its disk or write to it"
    LOG_DIR_NOT_FOUND = 57, "the broker has no such data directory"
    SASL_AUTHENTICATION_FAILED = 58, "user name or password is wrong"
    UNKNOWN_PRODUCER_ID = 59, "the broker does not know the producer any more"
    REASSIGNMENT_IN_PROGRESS = 60, "the partition is being moved to other brokers"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "neither the owner nor a renewer of the delegation token asks for it"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens are only dealt with on authenticated channels, and not on those that a token authenticated",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "the delegation token may not be used or seen"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the type of the principal is not supported"
    NON_EMPTY_GROUP = 68, "the group is not empty"
    GROUP_ID_NOT_FOUND = 69, "the group id does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the broker does not know the fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session has gone on to another epoch"
    LISTENER_NOT_FOUND = 72, "the leader has no listener of the name by which the client has connected"
    TOPIC_DELETION_DISABLED = 73, "topic deletion is disabled"
    FENCED_LEADER_EPOCH = 74, "the partition has a newer leader epoch"
    UNKNOWN_LEADER_EPOCH = 75, "the broker does not know the leader epoch yet"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the broker does not serve this compression"
    STALE_BROKER_EPOCH = 77, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, "the new leader does not know yet which records are committed"
    MEMBER_ID_REQUIRED = 79, "the member has to join again with the id that it was given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, "the group has as many members as group.max.size allows"
    FENCED_INSTANCE_ID = 82, "another member has the same group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no broker may become the partition's leader"
    ELECTION_NOT_NEEDED = 84, "the partition has its preferred leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "the partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is actively subscribed to the topic"
    INVALID_RECORD = 87, "a record breaks a rule of its topic or of the format"
    UNSTABLE_OFFSET_COMMIT = 88, "a transaction that commits offsets is still open"
    THROTTLING_QUOTA_EXCEEDED = 89, "a quota is used up; try again later"
    PRODUCER_FENCED = 90, "a newer producer with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, "there is no such thing"
    DUPLICATE_RESOURCE = 92, "the request names a thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential does not meet the requirements"
    INVALID_UPDATE_VERSION = 95, "the partition has changed meanwhile"
    UNKNOWN_TOPIC_ID = 100, "there is no topic with this id"
    INCONSISTENT_TOPIC_ID = 103, "the topic was deleted and made again: its id is another one"
    INCONSISTENT_CLUSTER_ID = 104, "the broker belongs to another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session has used topic names and topic ids by turns"
    INELIGIBLE_REPLICA = 107, "a broker that is not alive can't be in sync"
    NEW_LEADER_ELECTED = 108, "the partition has another leader now"
    FENCED_MEMBER_EPOCH = 110, "the group has gone on without this member"
    UNRELEASED_INSTANCE_ID = 111, "another member still has this group.instance.id"
    UNSUPPORTED_ASSIGNOR = 112, "the broker does not serve this assignor"
    STALE_MEMBER_EPOCH = 113, "the member's epoch is older than the group's"
    MISMATCHED_ENDPOINT_TYPE = 114, "the request is for a controller and came to a broker, or the reverse"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "the broker does not serve this type of endpoint"
    TRANSACTION_ABORTABLE = 120, "the transaction has to be aborted"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is invalid"


def known_error_code(code: int) -> ErrorCode:
    """Returns the ErrorCode with this number; UNKNOWN_SERVER_ERROR for a number that is not listed."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """Returns the protocol's name of an error code, or `error N` for one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def error_sentence(code: int) -> str:
    """Returns what an error code says, followed by its name in brackets."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"the broker refuses for a reason that has no name here (error {code})"
    return f"{known.sentence} ({known.name})"
