"""A broker's error codes as the typed errors of the tree, and which of them a retry can mend.

A code that has a class of its own raises that class; every other raises BrokerError, which carries the code.
"""

from __future__ import annotations

from millrace import errors
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, ErrorCode, MillraceError

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
        ErrorCode.OFFSET_NOT_AVAILABLE,
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


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raises the error for a `code` other than 0: `subject`, then the broker's `message` or the code's meaning."""
    if code == ErrorCode.NONE:
        return
    kind = TYPED_ERRORS.get(code)
    if kind is None:
        raise BrokerError(code, _about(subject, message or error_sentence(code)))
    raise kind(_about(subject, message or error_sentence(code)))


def is_retriable(error: BaseException) -> bool:
    """Returns whether the request that failed with this error may succeed if it is sent again."""
    if isinstance(error, BrokerError):
        return error.broker_code in RETRIABLE_CODES
    return isinstance(error, MillraceError) and error.retriable


def _about(subject: str, text: str) -> str:
    """Returns `SUBJECT: TEXT`, or the text alone where it begins with the subject already."""
    return text if text.startswith(subject) else f"{subject}: {text}"
