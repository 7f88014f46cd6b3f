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
    │   ├── InvalidRequiredAcksError   other than -1, 0 and 1
    │   ├── ProducerError              a batch that does not follow on its producer's last one
    │   │   ├── OutOfOrderSequenceError        a sequence number was left out
    │   │   ├── InvalidProducerEpochError      a newer instance of the producer has written
    │   │   ├── InvalidTransactionStateError   not transactional though its transaction is open
    │   │   ├── TransactionalIdError           transactional without a transactional id that it may use
    │   │   └── CoordinatorFencedError         a marker of an older transaction coordinator
    │   ├── ProducerIdsExhaustedError  none is left
    │   ├── StorageError               the disk failed; nothing was appended
    │   │   └── DataDirInUseError          another broker holds the data directory
    │   └── CompactionStoppedError     the broker stops; the log is as it was
    ├── TopicError
    │   ├── UnknownTopicError  TopicExistsError  InvalidTopicError  TopicDeletionDisabledError
    │   ├── InvalidPartitionsError  InvalidReplicationFactorError  InvalidConfigError
    │   ├── NotEnoughReplicasError     fewer in sync than min.insync.replicas
    │   ├── InconsistentTopicIdError   the topic of this name has another id
    │   └── NotLeaderError
    ├── InvalidRequestError    a request that can be read and makes no sense
    ├── PolicyViolationError   the topic's configuration forbids it
    ├── GroupError             a group can't be served here and now, or refuses what its member asks
    │   ├── CoordinatorNotAvailableError  CoordinatorLoadInProgressError  NotCoordinatorError
    │   ├── InvalidGroupIdError  GroupIdNotFoundError  UnknownMemberIdError
    │   ├── GroupMaxSizeReachedError  InvalidGroupRequestError
    │   ├── FencedMemberEpochError  StaleMemberEpochError  FencedInstanceIdError  UnreleasedInstanceIdError
    │   ├── UnsupportedAssignorError  InvalidRegularExpressionError
    │   └── IllegalGenerationError  RebalanceInProgressError  InconsistentGroupProtocolError
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

from typing import ClassVar

from millrace.error_codes import ErrorCode as ErrorCode  # noqa: PLC0414  # given on to whoever imports errors


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
    """The topic has been made anew: its id is another one now."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID
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


class GroupError(MillraceError):
    """A group can't be served here and now, or refuses what its member asks."""


class CoordinatorNotAvailableError(GroupError):
    """The topic of committed offsets is not there, or can't be written."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    retriable = True


class CoordinatorLoadInProgressError(GroupError):
    """The group's partition is being read."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    retriable = True


class InvalidGroupIdError(GroupError):
    """A group id that can't be kept."""

    code = ErrorCode.INVALID_GROUP_ID


class NotCoordinatorError(GroupError):
    """Another broker leads the group's partition."""

    code = ErrorCode.NOT_COORDINATOR
    retriable = True


class InvalidGroupRequestError(GroupError):
    """A field of the request that can't be as it is."""

    code = ErrorCode.INVALID_REQUEST


class GroupIdNotFoundError(GroupError):
    """No such group, or it is of another type."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class UnknownMemberIdError(GroupError):
    """The group has no member of this id: it has left, or was removed after a timeout."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class GroupMaxSizeReachedError(GroupError):
    """The group takes no more members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedMemberEpochError(GroupError):
    """The member is not at the epoch that the coordinator knows: it gives up its partitions and joins again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(GroupError):
    """Offsets of a member that is not at this epoch (any more); it goes on after its next heartbeat."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    retriable = True


class FencedInstanceIdError(GroupError):
    """Another member holds this static member's instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(GroupError):
    """The instance id is in use by a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(GroupError):
    """A server-side assignor that this broker does not have."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(GroupError):
    """A subscription's regular expression that can't be read."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class IllegalGenerationError(GroupError):
    """A generation that is not the group's."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgressError(GroupError):
    """The member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS
    retriable = True


class InconsistentGroupProtocolError(GroupError):
    """Protocols of which the group's members have none in common."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


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
