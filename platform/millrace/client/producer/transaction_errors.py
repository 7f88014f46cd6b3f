"""The errors of transactions, and what a broker's answer means for the transaction that is open (KIP-98, KIP-447).

    TransactionError
    ├── TransactionStateError      a call out of its turn, which did nothing
    ├── TransactionTimeoutError    no answer within `max.block.ms`: the same call may be made again
    ├── TransactionFailedError     the transaction can't be committed: abort it, and begin another one
    ├── TransactionAbortedError    why a record was not sent: its transaction was aborted
    └── FatalTransactionError      the producer can't go on: close it, and make another one
        └── ProducerFencedError    its transactional id has another owner, or its transaction took too long

What a broker refuses otherwise, such as a topic that may not be written to, fails the transaction alone.
"""

from __future__ import annotations

from millrace.client.answers import is_retriable
from millrace.errors import BrokerError, ClientError, ErrorCode, MillraceError, UnsupportedVersionError


class TransactionError(ClientError):
    """A transaction, or a call that is about one, has failed."""


class TransactionStateError(TransactionError, code=ErrorCode.INVALID_TXN_STATE):
    """A call out of its turn, such as a send while no transaction is open; it did nothing."""


class TransactionTimeoutError(TransactionError, code=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """The coordinator gave no answer within `max.block.ms`; the same call may be made again, and no other."""


class TransactionFailedError(TransactionError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction can't be committed: abort it, and begin another one. `__cause__` is the first error."""


class TransactionAbortedError(TransactionError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """A record was not sent, or was given up, since its transaction was aborted or has failed.

    `__cause__` is the first error of a transaction that has failed.
    """


class FatalTransactionError(TransactionError):
    """Says that the producer can't go on: close it, and make another one. `__cause__` is the broker's error."""


class ProducerFencedError(FatalTransactionError, code=ErrorCode.PRODUCER_FENCED):
    """Another producer has taken over the transactional id, or the coordinator has ended a transaction in its stead.

    The coordinator does that where a transaction is open for longer than `transaction.timeout.ms`.
    """


FENCED_CODES = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
FATAL_CODES = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
COORDINATORS_FATAL_CODES = FATAL_CODES | {ErrorCode.INVALID_TXN_STATE}
LATE_CODES = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})


def is_fenced(error: MillraceError) -> bool:
    """Returns whether a broker says that it knows a later epoch of the producer."""
    return isinstance(error, BrokerError) and error.broker_code in FENCED_CODES


def may_pass(error: MillraceError) -> bool:
    """Returns whether a request to a coordinator may succeed if it is sent again."""
    return is_retriable(error) or (isinstance(error, BrokerError) and error.broker_code in LATE_CODES)


def fatal_error(transactional_id: str, error: MillraceError) -> FatalTransactionError:
    """Returns the error of a producer that can't go on, caused by this one."""
    fatal = FatalTransactionError(f"transactional id {transactional_id}: {error}; close this producer and make another")
    if is_fenced(error):
        fatal = ProducerFencedError(
            f"transactional id {transactional_id}: another producer has it now, or the transaction was open for longer "
            f"than transaction.timeout.ms; close this producer: {error}"
        )
    fatal.__cause__ = error
    return fatal


def is_fatal(error: MillraceError, *, from_coordinator: bool) -> bool:
    """Returns whether a producer can't go on after this error.

    That another has fenced it is not the last word: its abort asks the coordinator whether there is another.
    """
    if isinstance(error, UnsupportedVersionError):
        return True
    codes = COORDINATORS_FATAL_CODES if from_coordinator else FATAL_CODES
    return isinstance(error, BrokerError) and error.broker_code in codes


def failed_error(transactional_id: str, error: MillraceError) -> TransactionFailedError:
    """Returns the error of a transaction that can't be committed, caused by this one."""
    failed = TransactionFailedError(f"transactional id {transactional_id}: the transaction has to be aborted: {error}")
    failed.__cause__ = error
    return failed
