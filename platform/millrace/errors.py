"""The tree of errors, each with the protocol's code and whether a retry may help.

    MillraceError
    ├── RecordError       what a producer sent, or the disk gave back, is not a valid batch
    ├── LogError          the log can't do what was asked; below it ProducerError and StorageError
    ├── TopicError        a topic or a partition is not so, or not here
    ├── GroupError        a group can't be served here and now, or refuses what its member asks
    ├── SecurityError     not allowed, or not proven
    ├── WireError         the peer's bytes are not a request that is served
    ├── ClusterError      ZooKeeper, the controller and the brokers' part in the cluster
    ├── ClientError       a broker's answer, or no answer, as a client sees it
    ├── SetupError        this machine lacks something (Java, a free port, a package)
    ├── PlatformError     a process of the platform ended, or did not come up
    └── WarehouseError    a load can't go on; pipelines derive from it

What a class does not say, code or `retriable`, is as in the class above it.
"""

from __future__ import annotations

from typing import ClassVar

from millrace.error_codes import ErrorCode as ErrorCode
from millrace.error_codes import error_name as error_name


class MillraceError(Exception):
    """Base class of Millrace's errors; `code` is the protocol's error code, `retriable`: a retry may succeed."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: ErrorCode | None = None, retriable: bool | None = None) -> None:
        """Sets a subclass's `code` and `retriable`; one that is not given is inherited from the base class."""
        super().__init_subclass__()
        if code is not None:
            cls.code = code
        if retriable is not None:
            cls.retriable = retriable


def is_unforeseen(error: BaseException) -> bool:
    """Returns whether an error is not a MillraceError, so that it should be logged with its traceback."""
    return not isinstance(error, MillraceError)


class RecordError(MillraceError, code=ErrorCode.INVALID_RECORD):
    """Bytes that are not a valid batch of records."""


class CorruptRecordError(RecordError, code=ErrorCode.CORRUPT_MESSAGE, retriable=True):
    """A batch has a wrong CRC or an impossible length, or is damaged in another way."""


class InvalidRecordError(RecordError):
    """A well-formed batch that breaks a rule of the format."""


class RejectedRecordsError(InvalidRecordError):
    """Records for which a broker refuses a whole batch; `record_errors` has each one's index and reason (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RecordTooLargeError(RecordError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A batch is larger than `max.message.bytes`, or than another limit of bytes allows."""


class InvalidTimestampError(RejectedRecordsError, code=ErrorCode.INVALID_TIMESTAMP):
    """Records further in time from the broker than `message.timestamp.before.max.ms` or `.after.max.ms` allow.

    Also a batch that a producer sends with timestamps of the type LogAppendTime.
    """


class UnsupportedMagicError(RecordError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """A version of the message format that is not supported."""


class UnsupportedCodecError(RecordError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """A compression codec that the format does not define."""


class LogError(MillraceError):
    """A request that a partition's log can't meet; the base class of more exact errors."""


class OffsetOutOfRangeError(LogError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """A request names an offset below the log start offset or above the log end offset."""


class InvalidRequiredAcksError(LogError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """A number of acknowledgements other than -1, 0 and 1."""


class ProducerError(LogError):
    """A batch or transaction marker that does not continue what the log has of its producer."""


class OutOfOrderSequenceError(ProducerError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A batch's sequence number does not follow the last one of its producer."""


class InvalidProducerEpochError(ProducerError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A batch of a producer that is fenced: a newer instance of it, with a higher epoch, has written."""


class InvalidTransactionStateError(ProducerError, code=ErrorCode.INVALID_TXN_STATE):
    """A batch outside the transaction that its producer has open."""


class TransactionalIdError(ProducerError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """A batch of a transaction from a producer that may not write under a transactional id, or has none."""


class UnknownProducerIdError(ProducerError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """A batch of a transaction from a producer that its transactional id does not know."""


class TransactionAbortableError(ProducerError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """A batch for a partition that is not in the transaction: the producer must abort it, and may then go on."""


class CoordinatorFencedError(ProducerError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """A transaction marker of a coordinator that has been replaced."""


class ProducerIdsExhaustedError(LogError):
    """All 2⁶³ producer ids are used up."""


class StorageError(LogError, code=ErrorCode.KAFKA_STORAGE_ERROR, retriable=True):
    """The disk refused a read or a write; the log is as it was before."""


class DataDirInUseError(StorageError):
    """Another broker holds the data directory."""


class CompactionStoppedError(LogError):
    """A log's compaction ended half-way because the broker stops; the log is as it was."""


class TopicError(MillraceError):
    """A request about a topic that can't be met; the base class of more exact errors."""


class UnknownTopicError(TopicError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, retriable=True):
    """The broker, or the cluster, has no such topic or partition."""


class UnknownTopicIdError(TopicError, code=ErrorCode.UNKNOWN_TOPIC_ID, retriable=True):
    """The broker, or the cluster, has no topic with this id."""


class InconsistentTopicIdError(TopicError, code=ErrorCode.INCONSISTENT_TOPIC_ID, retriable=True):
    """The topic was deleted and created again: it has another id now."""


class TopicExistsError(TopicError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name exists."""


class TopicBeingDeletedError(TopicExistsError, retriable=True):
    """A topic of this name exists still, and its deletion is under way."""


class InvalidTopicError(TopicError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """A name that is empty, too long, or has characters outside [a-zA-Z0-9._-]."""


class TopicDeletionDisabledError(TopicError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """`delete.topic.enable` is false."""


class InvalidPartitionsError(TopicError, code=ErrorCode.INVALID_PARTITIONS):
    """A partition count below one or above the limit."""


class InvalidReplicationFactorError(TopicError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """A replication factor that the live brokers can't give."""


class InvalidReplicaAssignmentError(TopicError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """A manual assignment that names unknown brokers or leaves partitions out."""


class InvalidConfigError(TopicError, code=ErrorCode.INVALID_CONFIG):
    """A property that is unknown, or has a value outside its range or of a wrong form."""


class MalformedValueError(InvalidConfigError):
    """A text of the wrong form, such as an address without a port. A command line with one is wrong: status 2."""


class NotEnoughReplicasError(TopicError, code=ErrorCode.NOT_ENOUGH_REPLICAS, retriable=True):
    """Fewer replicas are in sync than `min.insync.replicas`, and the producer wants all of them."""


class NotLeaderError(TopicError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER, retriable=True):
    """Another broker leads this partition."""


class FencedLeaderEpochError(TopicError, code=ErrorCode.FENCED_LEADER_EPOCH, retriable=True):
    """The client's request names an older leader epoch than this broker knows."""


class UnknownLeaderEpochError(TopicError, code=ErrorCode.UNKNOWN_LEADER_EPOCH, retriable=True):
    """The client's request names a newer leader epoch than this broker knows."""


class InvalidRequestError(MillraceError, code=ErrorCode.INVALID_REQUEST):
    """A request, or a part of one, that can be decoded but is not valid."""


class PolicyViolationError(MillraceError, code=ErrorCode.POLICY_VIOLATION):
    """The topic's configuration forbids what was asked."""


class GroupError(MillraceError):
    """A coordinator can't handle a group's request now or at all."""


class CoordinatorNotAvailableError(GroupError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE, retriable=True):
    """The topic of committed offsets is not there, or can't be written."""


class CoordinatorLoadInProgressError(GroupError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retriable=True):
    """The coordinator is still reading the partition that holds the group."""


class InvalidGroupIdError(GroupError, code=ErrorCode.INVALID_GROUP_ID):
    """A group id that is not allowed, such as one that is too long."""


class NotCoordinatorError(GroupError, code=ErrorCode.NOT_COORDINATOR, retriable=True):
    """Another broker leads the group's partition."""


class InvalidGroupRequestError(GroupError, code=ErrorCode.INVALID_REQUEST):
    """A request about a group has a field with an impossible value."""


class GroupIdNotFoundError(GroupError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """There is no group of this id, or it is of another type than the request needs."""


class UnknownMemberIdError(GroupError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group has no member of this id: it has left, or was removed after a timeout."""


class GroupMaxSizeReachedError(GroupError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has as many members as the broker allows, and takes no more."""


class FencedMemberEpochError(GroupError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The coordinator has another epoch for the member, which has to give up its partitions and join again."""


class FencedInstanceIdError(GroupError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member holds this static member's instance id."""


class UnreleasedInstanceIdError(GroupError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """The instance id is in use by a member that has not left."""


class UnsupportedAssignorError(GroupError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """A server-side assignor that this broker does not have."""


class InvalidRegularExpressionError(GroupError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """A subscription's regular expression that can't be read."""


class IllegalGenerationError(GroupError, code=ErrorCode.ILLEGAL_GENERATION):
    """A request that names another generation than the group has now."""


class InconsistentGroupProtocolError(GroupError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """A member's assignment protocols, of which none is common to all of the group's members."""


class SecurityError(MillraceError):
    """A request is not allowed, or a client's or a server's identity can't be proven.

    No message has a secret in it, and that of a failed authentication does not tell an unknown user from a wrong
    password.
    """


class TlsError(SecurityError, code=ErrorCode.NETWORK_EXCEPTION):
    """A certificate, a key or a handshake that can't be used; the message names the file or the peer."""


class SaslAuthenticationError(SecurityError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """A SASL authentication has failed: the credentials do not prove the user's identity."""


class UnsupportedSaslMechanismError(SecurityError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """A mechanism that the listener does not offer."""


class IllegalSaslStateError(SecurityError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """A request that does not come next in an authentication."""


class AuthorizationError(SecurityError):
    """An authenticated user lacks a permission that a request needs."""


class TopicAuthorizationError(AuthorizationError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """An authenticated user lacks the permission on a topic that a request needs."""


class GroupAuthorizationError(AuthorizationError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """An authenticated user lacks the permission on a group that a request needs."""


class ClusterAuthorizationError(AuthorizationError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """An authenticated user lacks the permission on the cluster that a request needs."""


class TransactionalIdAuthorizationError(AuthorizationError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """An authenticated user lacks the permission on a transactional id that a request needs."""


class DelegationTokenAuthorizationError(AuthorizationError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    """An authenticated user lacks the permission on a delegation token that a request needs."""


class DelegationTokenError(SecurityError):
    """A delegation token that can't be made, changed, seen or used."""


class DelegationTokensDisabledError(DelegationTokenError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """The broker has no `delegation.token.secret.key`, so that it can't make delegation tokens."""


class DelegationTokenNotFoundError(DelegationTokenError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """No delegation token has this secret or id."""


class DelegationTokenOwnerMismatchError(DelegationTokenError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """Neither the owner nor a renewer of the token asks."""


class DelegationTokenRequestNotAllowedError(DelegationTokenError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """A client that has not authenticated, or only by a token, asks for a token."""


class DelegationTokenExpiredError(DelegationTokenError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The token's time is over."""


class InvalidPrincipalTypeError(SecurityError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """A principal of another type than User, where only users are allowed."""


class SecurityDisabledError(SecurityError, code=ErrorCode.SECURITY_DISABLED):
    """A request about access control to a broker that is not set up for it."""


class UnacceptableCredentialError(SecurityError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """A credential that is too weak, or incomplete, to be stored."""


class ResourceNotFoundError(SecurityError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """A user, a credential or an entity that does not exist."""


class DuplicateResourceError(SecurityError, code=ErrorCode.DUPLICATE_RESOURCE):
    """A request that names one user or entity twice."""


class ThrottlingQuotaExceededError(SecurityError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True):
    """A change to the cluster for which the quota `controller_mutation_rate` leaves no room now."""


class WireError(MillraceError, code=ErrorCode.INVALID_REQUEST):
    """Bytes from the peer that are no valid or supported request."""


class FrameSizeError(WireError):
    """A frame length that is negative or above `socket.request.max.bytes`; `size_bytes` is that length."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} bytes; the limit is {limit_bytes}")
        self.size_bytes = size_bytes


class MalformedRequestError(WireError):
    """A request, or a response, whose bytes end too early or have impossible lengths."""


class UnsupportedVersionError(WireError, code=ErrorCode.UNSUPPORTED_VERSION):
    """An API key or version that the broker does not support."""


class ClusterError(MillraceError):
    """Something fails in the cluster: between brokers, or with ZooKeeper."""


class BrokerIdTakenError(ClusterError):
    """Another live broker is registered with this id."""


class ZooKeeperError(ClusterError, retriable=True):
    """ZooKeeper can't be reached, or the session is lost."""


class DamagedNodeError(ZooKeeperError, retriable=False):
    """A node of ZooKeeper has invalid data, which stays until an operator corrects it."""


class NotControllerError(ClusterError, code=ErrorCode.NOT_CONTROLLER, retriable=True):
    """This broker is not the controller, or no longer: another broker has become the controller."""


class MetadataTimeoutError(ClusterError, code=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """A change of the cluster's metadata is not seen in time; it may still come."""


class StaleControllerEpochError(ClusterError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """A request from a former controller; the broker knows a newer controller epoch."""


class StaleBrokerEpochError(ClusterError, code=ErrorCode.STALE_BROKER_EPOCH):
    """A request that is meant for a former registration of this broker (KIP-380)."""


class InconsistentClusterIdError(ClusterError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """A data directory that belongs to another cluster."""


class ClientError(MillraceError):
    """A request of a client has failed."""


class BrokerUnreachableError(ClientError, code=ErrorCode.NETWORK_EXCEPTION, retriable=True):
    """No connection to a broker could be made, or it broke before the response."""


class AnswerLostError(BrokerUnreachableError):
    """A request was sent but its response did not come, so whether it was carried out is not known."""


class QueueFullError(ClientError, retriable=True):
    """A producer's queue has no room within `queue.enqueue.timeout.ms`: the record was not taken."""


class DeliveryTimeoutError(ClientError, code=ErrorCode.REQUEST_TIMED_OUT):
    """A record was not acknowledged within `delivery.timeout.ms`, or not all were when a flush had to end."""


class ProducerClosedError(ClientError):
    """A record was given to a closed producer, or to one of the process from which this one was forked."""


class ConsumerTimeoutError(ClientError, retriable=True):
    """A stream had nothing to hand out for `consumer.timeout.ms`; the stream can be read on."""


class RebalanceFailedError(ClientError, retriable=True):
    """After `rebalance.max.retries` attempts other members still own partitions that are assigned to this one."""


class ConsumerIdTakenError(ClientError):
    """A live member of the group has this `consumer.id`."""


class OwnershipLostError(ClientError):
    """A commit included partitions that this member does not own any more; for them nothing was committed."""


class GroupHasMembersError(ClientError):
    """Offsets of a group can't be set while it has live members, which would go on from where they are."""


class BrokerError(ClientError):
    """The broker answered with an error code; `broker_code` is that code, and its name stands behind the message."""

    def __init__(self, broker_code: int, message: str) -> None:
        name = f"({error_name(broker_code)})"
        super().__init__(message if message.endswith(name) else f"{message} {name}")
        self.broker_code = broker_code


class SetupError(MillraceError):
    """This machine lacks something that the command needs."""


class PlatformError(MillraceError):
    """ZooKeeper, a broker or Dagster ended by itself, did not come up, or did not do what was asked."""


class WarehouseError(MillraceError):
    """A load, or other work on tables, can't go on."""
