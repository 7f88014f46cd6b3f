"""A broker's error codes as the typed errors of the tree, and which of them a retry can help.

A code that has a class of its own raises that class; every other raises BrokerError, which carries the code.
"""

from __future__ import annotations

from millrace import errors
from millrace.errors import BrokerError, ErrorCode, MillraceError, error_name

TYPED_ERRORS: dict[int, type[MillraceError]] = {
    kind.code: kind
    for kind in (
        errors.OffsetOutOfRangeError,
        errors.CorruptRecordError,
        errors.UnknownTopicError,
        errors.NotLeaderError,
        errors.RecordTooLargeError,
        errors.InvalidTopicError,
        errors.TopicExistsError,
        errors.InvalidPartitionsError,
        errors.InvalidReplicationFactorError,
        errors.InvalidReplicaAssignmentError,
        errors.InvalidConfigError,
        errors.StorageError,
        errors.FencedLeaderEpochError,
        errors.UnknownLeaderEpochError,
        errors.UnsupportedCodecError,
        errors.UnsupportedMagicError,
        errors.InvalidRecordError,
        errors.UnsupportedVersionError,
    )
}

# Answers after which nothing was done, and the same request may soon be served.
RETRIABLE_CODES = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

# What a code says where the protocol leaves no room for a message, with the words that Kafka's own tools print.
SENTENCES: dict[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the requested offset is not within the range of offsets that the broker holds",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist: this server does not host this topic-partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading and can't serve it yet",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.NOT_COORDINATOR: "this is not the correct coordinator",
    ErrorCode.NOT_ENOUGH_REPLICAS: "there are fewer in-sync replicas than required",
    ErrorCode.INVALID_GROUP_ID: "the group id is invalid",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access topics",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for the cluster, cluster authorization failed",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use the transactional id",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker is not satisfied",
    ErrorCode.NON_EMPTY_GROUP: "the group is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group id does not exist",
    ErrorCode.TOPIC_DELETION_DISABLED: "topic deletion is disabled",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is actively subscribed to the topic",
}


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raise the error of a code other than 0. `subject` names what was asked; `message` is what the broker says."""
    if code == ErrorCode.NONE:
        return
    kind = TYPED_ERRORS.get(code)
    sentence = SENTENCES.get(code, "")
    if kind is None:
        raise BrokerError(code, _about(subject, message or sentence))
    named = f"{sentence}: {error_name(code)}" if sentence else error_name(code)
    raise kind(_about(subject, message or named))


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, BrokerError):
        return error.broker_code in RETRIABLE_CODES
    return isinstance(error, MillraceError) and error.retriable


def _about(subject: str, text: str) -> str:
    """The text with the subject before it, unless it names the subject itself."""
    if not text or text.startswith(subject):
        return text or subject
    return f"{subject}: {text}"
