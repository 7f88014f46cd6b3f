"""What a broker's error code means for a batch: whether it may be sent again, and whether it may be in the log."""

from __future__ import annotations

from enum import Enum, auto

from millrace.client.answers import RETRIABLE_CODES, TYPED_ERRORS
from millrace.errors import ErrorCode

NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20


class ErrorAction(Enum):
    """What the producer does with a batch after the response to it."""

    DONE = auto()
    AGAIN = auto()  # surely not appended
    UNSURE = auto()  # perhaps appended; again all the same
    TOO_LARGE = auto()  # not appended; its records may be, in smaller batches
    OUT_OF_LINE = auto()  # its number, or its epoch, does not follow on what the broker knows
    REFUSED = auto()


def action_for(code: int) -> ErrorAction:
    """Returns the meaning of an error code in the answer to a Produce request."""
    match code:
        case ErrorCode.NONE | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return ErrorAction.DONE
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.UNKNOWN_PRODUCER_ID | ErrorCode.INVALID_PRODUCER_EPOCH:
            return ErrorAction.OUT_OF_LINE
        case ErrorCode.MESSAGE_TOO_LARGE:
            return ErrorAction.TOO_LARGE
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.NETWORK_EXCEPTION:
            return ErrorAction.UNSURE
    if code == NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return ErrorAction.UNSURE
    kind = TYPED_ERRORS.get(code)
    return (
        ErrorAction.AGAIN if code in RETRIABLE_CODES or (kind is not None and kind.retriable) else ErrorAction.REFUSED
    )
