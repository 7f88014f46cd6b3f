"""The tree of errors, each with the protocol's code and whether a retry can mend it.

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
    │   ├── InvalidRequiredAcksError   other than -1, 0 and 1
    │   ├── ProducerError              a batch that does not follow on its producer's last one
    │   │   ├── OutOfOrderSequenceError        a sequence number was left out
    │   │   ├── InvalidProducerEpochError      a newer instance of the producer has written
    │   │   ├── InvalidTransactionStateError   not transactional though its transaction is open
    │   │   ├── TransactionalIdError           transactional without a transactional id that it may use
    │   │   ├── UnknownProducerIdError         not the producer of its transactional id
    │   │   ├── TransactionAbortableError      a partition that was not added to its transaction
    │   │   └── CoordinatorFencedError         a marker of an older transaction coordinator
    │   ├── ProducerIdsExhaustedError  none is left
    │   ├── StorageError               the disk failed; nothing was appended
    │   │   └── DataDirInUseError          another broker holds the data directory
    │   └── CompactionStoppedError     the broker stops; the log is as it was
    ├── TopicError
    │   ├── UnknownTopicError  UnknownTopicIdError  InvalidTopicError  TopicExistsError  TopicBeingDeletedError
    │   ├── InvalidPartitionsError  InvalidReplicationFactorError  InvalidReplicaAssignmentError  InvalidConfigError
    │   ├── NotEnoughReplicasError     fewer in sync than min.insync.replicas
    │   ├── InconsistentTopicIdError   the topic of this name has another id
    │   └── NotLeaderError  FencedLeaderEpochError  UnknownLeaderEpochError  TopicDeletionDisabledError
    ├── InvalidRequestError    a request that can be read and makes no sense
    ├── PolicyViolationError   the topic's configuration forbids it
    ├── GroupError             a group can't be served here and now, or refuses what its member asks
    │   ├── CoordinatorNotAvailableError  CoordinatorLoadInProgressError  NotCoordinatorError
    │   ├── InvalidGroupIdError  GroupIdNotFoundError  UnknownMemberIdError
    │   ├── GroupMaxSizeReachedError  InvalidGroupRequestError
    │   ├── FencedMemberEpochError  StaleMemberEpochError  FencedInstanceIdError  UnreleasedInstanceIdError
    │   ├── UnsupportedAssignorError  InvalidRegularExpressionError
    │   └── IllegalGenerationError  RebalanceInProgressError  InconsistentGroupProtocolError
    ├── SecurityError          not allowed, or not proven
    │   ├── TlsError  SaslAuthenticationError  UnsupportedSaslMechanismError  IllegalSaslStateError
    │   ├── AuthorizationError         of a topic, group, cluster, transactional id or delegation token
    │   ├── DelegationTokenError       disabled, not found, expired, of somebody else, or not to be asked for here
    │   ├── InvalidPrincipalTypeError
    │   ├── UnacceptableCredentialError  ResourceNotFoundError  DuplicateResourceError  SecurityDisabledError
    │   └── ThrottlingQuotaExceededError
    ├── WireError              the peer's bytes are not a request that is served
    │   ├── FrameSizeError             negative or above socket.request.max.bytes
    │   ├── MalformedRequestError      cut short, or with impossible lengths
    │   └── UnsupportedVersionError    an API key or version that is not served
    ├── ClusterError
    │   ├── BrokerIdTakenError         a live broker holds /brokers/ids/[id]
    │   ├── ZooKeeperError             can't be reached, or the session is lost; DamagedNodeError: a node is unreadable
    │   ├── NotControllerError         another broker is the controller
    │   ├── MetadataTimeoutError       a change is not seen in time; it may still come
    │   ├── StaleControllerEpochError  a request of a former controller
    │   ├── StaleBrokerEpochError      a request for a former registration of this broker
    │   └── InconsistentClusterIdError a data directory of another cluster
    ├── ClientError            a broker's answer, or no answer, as a client sees it
    │   ├── BrokerUnreachableError
    │   │   └── AnswerLostError        a request went out and its answer did not come
    │   ├── QueueFullError             a producer's queue has no room in time
    │   ├── DeliveryTimeoutError       a record's time is over, or that of a flush
    │   ├── ProducerClosedError        closed, or made before a fork
    │   └── BrokerError                carries the code that the broker answered
    ├── SetupError             this machine lacks something (Java, a free port, a package)
    ├── PlatformError          a process of the platform ended, or did not come up
    └── WarehouseError         a load can't go on; pipelines derive from it

Protocol codes: Apache Kafka protocol guide, "Error codes".
"""

from __future__ import annotations

from millrace.error_codes import ErrorCode as ErrorCode
from millrace.group_errors import (
    CoordinatorLoadInProgressError as CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError as CoordinatorNotAvailableError,
    FencedInstanceIdError as FencedInstanceIdError,
    FencedMemberEpochError as FencedMemberEpochError,
    GroupError as GroupError,
    GroupIdNotFoundError as GroupIdNotFoundError,
    GroupMaxSizeReachedError as GroupMaxSizeReachedError,
    IllegalGenerationError as IllegalGenerationError,
    InconsistentGroupProtocolError as InconsistentGroupProtocolError,
    InvalidGroupIdError as InvalidGroupIdError,
    InvalidGroupRequestError as InvalidGroupRequestError,
    InvalidRegularExpressionError as InvalidRegularExpressionError,
    NotCoordinatorError as NotCoordinatorError,
    RebalanceInProgressError as RebalanceInProgressError,
    StaleMemberEpochError as StaleMemberEpochError,
    UnknownMemberIdError as UnknownMemberIdError,
    UnreleasedInstanceIdError as UnreleasedInstanceIdError,
    UnsupportedAssignorError as UnsupportedAssignorError,
)
from millrace.root_error import MillraceError as MillraceError
from millrace.root_error import is_unforeseen as is_unforeseen
from millrace.security_errors import (
    AuthorizationError as AuthorizationError,
    ClusterAuthorizationError as ClusterAuthorizationError,
    DelegationTokenAuthorizationError as DelegationTokenAuthorizationError,
    DuplicateResourceError as DuplicateResourceError,
    GroupAuthorizationError as GroupAuthorizationError,
    IllegalSaslStateError as IllegalSaslStateError,
    ResourceNotFoundError as ResourceNotFoundError,
    SaslAuthenticationError as SaslAuthenticationError,
    SecurityDisabledError as SecurityDisabledError,
    SecurityError as SecurityError,
    ThrottlingQuotaExceededError as ThrottlingQuotaExceededError,
    TlsError as TlsError,
    TopicAuthorizationError as TopicAuthorizationError,
    TransactionalIdAuthorizationError as TransactionalIdAuthorizationError,
    UnacceptableCredentialError as UnacceptableCredentialError,
    UnsupportedSaslMechanismError as UnsupportedSaslMechanismError,
)


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
    """Records further in time from the broker than `message.timestamp.before.max.ms` or `.after.max.ms` allow.

    Also a batch whose producer claims that its times are the log's.
    """

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


class InvalidRequiredAcksError(LogError):
    """A number of acknowledgements other than -1, 0 and 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


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


class TransactionalIdError(ProducerError):
    """A batch of a transaction from a producer that may not write under a transactional id, or has none."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class UnknownProducerIdError(ProducerError):
    """A batch of a transaction from a producer that its transactional id does not know."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TransactionAbortableError(ProducerError):
    """A batch for a partition that is not in the transaction: its producer has to abort, and may go on then."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class CoordinatorFencedError(ProducerError):
    """A transaction marker of a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class ProducerIdsExhaustedError(LogError):
    """No producer id is left of the 2⁶³ that there are."""


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


class InconsistentTopicIdError(TopicError):
    """The topic was deleted and created again: it has another id now."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID
    retriable = True


class TopicExistsError(TopicError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class TopicBeingDeletedError(TopicExistsError):
    """A topic of this name exists still, and its deletion is under way."""

    retriable = True


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
    """A frame length that is negative or above `socket.request.max.bytes`; `size_bytes` is that length."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} bytes; the limit is {limit_bytes}")
        self.size_bytes = size_bytes


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


class DamagedNodeError(ZooKeeperError):
    """A node of ZooKeeper holds what it can't hold, and does so until an operator mends it."""

    retriable = False


class NotControllerError(ClusterError):
    """This broker is not the controller, or is it no longer: another one has claimed the role."""

    code = ErrorCode.NOT_CONTROLLER
    retriable = True


class MetadataTimeoutError(ClusterError):
    """A change of the cluster's metadata is not seen in time; it may still come."""

    code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True


class StaleControllerEpochError(ClusterError):
    """A request of a former controller: a newer one is known."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class StaleBrokerEpochError(ClusterError):
    """A request that is meant for a former registration of this broker (KIP-380)."""

    code = ErrorCode.STALE_BROKER_EPOCH


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


class QueueFullError(ClientError):
    """A producer's queue has no room within `queue.enqueue.timeout.ms`: the record was not taken."""

    retriable = True


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`, or not all were when a flush had to end."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ProducerClosedError(ClientError):
    """A producer that is closed takes no records, nor does one whose process has been forked off its own."""


class BrokerError(ClientError):
    """The broker answered with an error code; `broker_code` is that code, and its name stands behind the message."""

    def __init__(self, broker_code: int, message: str) -> None:
        name = f"({error_name(broker_code)})"
        super().__init__(message if message.endswith(name) else f"{message} {name}")
        self.broker_code = broker_code


class SetupError(MillraceError):
    """This machine lacks something that the command needs."""


class PlatformError(MillraceError):
    """A process of the platform ended by itself, did not come up, or did not do what was asked."""


class WarehouseError(MillraceError):
    """A load can't go on."""


def error_name(code: int) -> str:
    """Returns the protocol's name of an error code, or `error N` for one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
