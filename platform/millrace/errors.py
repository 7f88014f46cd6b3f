"""The tree of errors, each with the protocol's code and whether a retry can help.

    MillraceError
    ├── RecordError            what a producer sent, or the disk gave back, is not a valid batch
    │   ├── CorruptRecordError         wrong CRC, impossible length
    │   ├── InvalidRecordError         well-formed bytes that break a rule
    │   │   └── RejectedRecordsError       single records that break one, each named
    │   │       └── InvalidTimestampError      times too far from the broker's
    │   ├── RecordTooLargeError        above max.message.bytes
    │   ├── UnsupportedMagicError      a format version that is not served
    │   └── UnsupportedCodecError      an unknown compression codec
    ├── LogError               the log can't do what was asked
    │   ├── OffsetOutOfRangeError      below the log start offset or above the end
    │   ├── ProducerError              a batch that does not follow on its producer's last one
    │   │   ├── OutOfOrderSequenceError        a sequence number was left out
    │   │   ├── InvalidProducerEpochError      a newer instance of the producer has written
    │   │   ├── InvalidTransactionStateError   not transactional though its transaction is open
    │   │   └── CoordinatorFencedError         a marker of an older transaction coordinator
    │   ├── StorageError               the disk failed; nothing was appended
    │   │   └── DataDirInUseError          another broker holds the data directory
    │   └── CompactionStoppedError     the broker stops; the log is as it was
    ├── TopicError
    │   ├── UnknownTopicError  TopicExistsError  InvalidTopicError  TopicDeletionDisabledError
    │   ├── InvalidPartitionsError  InvalidReplicationFactorError  InvalidConfigError
    │   ├── NotEnoughReplicasError     fewer in sync than min.insync.replicas
    │   └── NotLeaderError
    ├── InvalidRequestError    a request that can be read and makes no sense
    ├── PolicyViolationError   the topic's configuration forbids it
    ├── WireError              the peer's bytes are not a request that is served
    │   ├── FrameSizeError             negative or above socket.request.max.bytes
    │   ├── MalformedRequestError      cut short, or with impossible lengths
    │   └── UnsupportedVersionError    an API key or version that is not served
    ├── ClusterError
    │   ├── BrokerIdTakenError         a live broker holds /brokers/ids/[id]
    │   ├── ZooKeeperError             can't be reached, or the session is lost
    │   ├── MetadataTimeoutError       a change is not seen in time; it may still come
    │   └── InconsistentClusterIdError a data directory of another cluster
    ├── ClientError            a broker's answer, or no answer, as a client sees it
    │   ├── BrokerUnreachableError
    │   │   └── AnswerLostError        a request went out and its answer did not come
    │   └── BrokerError                carries the code that the broker answered
    ├── SetupError             this machine lacks something (Java, a free port, a package)
    ├── PlatformError          a process of the platform ended, or did not come up
    └── WarehouseError         a load can't go on; pipelines derive from it

Protocol codes: Apache Kafka protocol guide, "Error codes".
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """The protocol's error codes that Millrace answers or understands."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_CLUSTER_ID = 104
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


class MillraceError(Exception):
    """Root of the tree. `code` goes on the wire; `retriable` says whether the same call may succeed later."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False


class RecordError(MillraceError):
    """Bytes that are not a valid batch of records."""

    code = ErrorCode.INVALID_RECORD


class CorruptRecordError(RecordError):
    """A CRC that does not match, or a length that can't be."""

    code = ErrorCode.CORRUPT_MESSAGE
    retriable = True


class InvalidRecordError(RecordError):
    """A well-formed batch that breaks a rule of the format."""


class RejectedRecordsError(InvalidRecordError):
    """Records for which their whole batch is dropped; `record_errors` says of each, by its index, why (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RecordTooLargeError(RecordError):
    """A batch above `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidTimestampError(RejectedRecordsError):
    """Records further in time from the broker than `message.timestamp.before.max.ms` or `.after.max.ms` allow."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedMagicError(RecordError):
    """A message format version that is not served."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCodecError(RecordError):
    """A compression codec that the format does not define."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class LogError(MillraceError):
    """The log can't do what was asked."""


class OffsetOutOfRangeError(LogError):
    """An offset below the log start offset or above the log end offset."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class ProducerError(LogError):
    """A batch, or a marker, that does not follow on what the log holds of its producer."""


class OutOfOrderSequenceError(ProducerError):
    """A sequence number that is not the one after the producer's last."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(ProducerError):
    """A newer instance of the producer has written: this one is fenced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(ProducerError):
    """A batch outside the transaction that its producer has open."""

    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(ProducerError):
    """A transaction marker of a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class StorageError(LogError):
    """The disk refused a read or a write; the log is as it was before."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True


class DataDirInUseError(StorageError):
    """Another broker holds the data directory."""


class CompactionStoppedError(LogError):
    """A compaction ended half-way because the broker stops; the log is as it was."""


class TopicError(MillraceError):
    """A topic, or what was asked of it, is not acceptable."""


class UnknownTopicError(TopicError):
    """No such topic or partition here."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    retriable = True


class UnknownTopicIdError(TopicError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID
    retriable = True


class TopicExistsError(TopicError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(TopicError):
    """A name that is empty, too long, or has characters outside [a-zA-Z0-9._-]."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicDeletionDisabledError(TopicError):
    """`delete.topic.enable` is false."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class InvalidPartitionsError(TopicError):
    """A partition count below one or above the limit."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(TopicError):
    """A replication factor that the live brokers can't give."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(TopicError):
    """A manual assignment that names unknown brokers or leaves partitions out."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(TopicError):
    """An unknown property or a value outside its range."""

    code = ErrorCode.INVALID_CONFIG


class NotEnoughReplicasError(TopicError):
    """Fewer replicas are in sync than `min.insync.replicas`, and the producer wants all of them."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS
    retriable = True


class NotLeaderError(TopicError):
    """Another broker leads this partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    retriable = True


class FencedLeaderEpochError(TopicError):
    """The client knows an older leader epoch than this broker."""

    code = ErrorCode.FENCED_LEADER_EPOCH
    retriable = True


class UnknownLeaderEpochError(TopicError):
    """The client knows a newer leader epoch than this broker."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH
    retriable = True


class InvalidRequestError(MillraceError):
    """A request, or a part of one, that can be read and makes no sense."""

    code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(MillraceError):
    """The topic's configuration forbids what was asked."""

    code = ErrorCode.POLICY_VIOLATION


class WireError(MillraceError):
    """The peer's bytes are not a request that is served."""

    code = ErrorCode.INVALID_REQUEST


class FrameSizeError(WireError):
    """A frame length that is negative or above `socket.request.max.bytes`."""


class MalformedRequestError(WireError):
    """A request that is cut short or whose lengths can't be."""


class UnsupportedVersionError(WireError):
    """An API key or a version that is not served."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ClusterError(MillraceError):
    """Brokers, or their coordination, are in the way."""


class BrokerIdTakenError(ClusterError):
    """A live broker holds `/brokers/ids/[id]`."""


class ZooKeeperError(ClusterError):
    """ZooKeeper can't be reached, or the session is lost."""

    retriable = True


class MetadataTimeoutError(ClusterError):
    """A change of the cluster's metadata is not seen in time; it may still come."""

    code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True


class InconsistentClusterIdError(ClusterError):
    """A data directory that belongs to another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class ClientError(MillraceError):
    """What a client sees of a broker that did not do what was asked."""


class BrokerUnreachableError(ClientError):
    """No connection, or it broke before the answer."""

    code = ErrorCode.NETWORK_EXCEPTION
    retriable = True


class AnswerLostError(BrokerUnreachableError):
    """A request went out and its answer did not come: whether it was carried out is not known."""


class BrokerError(ClientError):
    """The broker answered with an error code; `broker_code` is that code."""

    def __init__(self, broker_code: int, message: str) -> None:
        super().__init__(f"{message}: {error_name(broker_code)}")
        self.broker_code = broker_code


class SetupError(MillraceError):
    """This machine lacks something that the command needs."""


class PlatformError(MillraceError):
    """A process of the platform ended by itself, did not come up, or did not do what was asked."""


class WarehouseError(MillraceError):
    """A load can't go on."""


def error_name(code: int) -> str:
    """The protocol's name of an error code, or `error N` for one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
