"""Waits for the coordinator's response about partitions of a transaction, and guards the appends until then (KIP-890).

    asked ──► the coordinator says yes ──► marker of the transaction ──► append: a hanging transaction (KAFKA-14884)

So a yes holds for an append only as long as no marker is written. Each partition is guarded from the question to the
append; where the guard does not hold, the client asks again.

A coordinator that is still carrying out the decision on the transaction before is asked again for a while, as it does
not take long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millrace.errors import ErrorCode, MillraceError
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import Producer

logger = logging.getLogger(__name__)

ASK_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # producers and members ask the same broker again
Errors = Mapping[TopicPartition, ErrorCode]
Response = Errors | asyncio.Future[Errors]
Sleep = Callable[[float], Awaitable[object]]


class ClientSupport(IntEnum):
    """What a client understands, by the version of its request."""

    NONE = 0
    GENERIC_ERROR = 1
    EPOCH_BUMP = 2

    @classmethod
    def of(cls, version: int, *, generic_error_since: int, epoch_bump_since: int) -> ClientSupport:
        """Returns what the sender of a version understands, by the first versions of the API that imply it."""
        if version >= epoch_bump_since:
            return cls.EPOCH_BUMP
        return cls.GENERIC_ERROR if version >= generic_error_since else cls.NONE


class TransactionalWrite(NamedTuple):
    """A producer that is about to write in a transaction."""

    transactional_id: str
    producer: Producer
    support: ClientSupport


class Retries(NamedTuple):
    """How often, and after which pause, a coordinator that has not completed the transaction before is asked again."""

    attempts: int
    pause_s: float
    sleep: Sleep = asyncio.sleep

    def are_due(self, errors: Errors) -> bool:
        """Returns whether the coordinator, which answered with these errors, is to be asked again."""
        return self.attempts > 0 and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


NO_RETRIES = Retries(0, 0.0)


class Verification:
    """The coordinator's response about some partitions, which is on its way.

    Args:
        write: what the producer is about to do.
        partitions: the partitions that the coordinator is asked about.
        response: its first response.
        ask: asks it again.
        retries: how often it is asked again.
    """

    def __init__(
        self,
        write: TransactionalWrite,
        partitions: Mapping[TopicPartition, Partition],
        response: Response,
        ask: Callable[[], Response],
        retries: Retries,
    ) -> None:
        self._write = write
        self._partitions = partitions
        self._response = response
        self._ask = ask
        self._retries = retries
        self._guards = self._guarded()

    async def errors(self) -> Errors:
        """Waits for the response, and returns an error, or NONE, for each partition that was asked about.

        The append has to follow without another wait, as the guards are looked at last.
        """
        try:
            errors = await self._last_response()
        except MillraceError as error:
            logger.warning("transaction %s can't be verified: %s", self._write.transactional_id, error)
            return dict.fromkeys(self._partitions, ASK_AGAIN)
        support = self._write.support
        return {key: named(errors[key], support) if self._holds(key) else ASK_AGAIN for key in self._partitions}

    async def _last_response(self) -> Errors:
        errors, retries = await _whole(self._response), self._retries
        while retries.are_due(errors):
            await retries.sleep(retries.pause_s)
            retries = retries._replace(attempts=retries.attempts - 1)
            self._guards = self._guarded()
            errors = await _whole(self._ask())
        return errors

    def _guarded(self) -> Mapping[TopicPartition, object]:
        return {key: self._guard(one) for key, one in self._partitions.items()}

    def _holds(self, key: TopicPartition) -> bool:
        partition = self._partitions[key]
        has_begun = partition.log.producers.has_open_transaction(*self._write.producer)
        return has_begun or self._guard(partition) is self._guards[key]

    def _guard(self, partition: Partition) -> object:
        return partition.log.producers.guard(self._write.producer.producer_id)


async def _whole(response: Response) -> Errors:
    return await response if isinstance(response, asyncio.Future) else response


def named(error: ErrorCode, support: ClientSupport) -> ErrorCode:
    """Returns the error by which the client knows what to do."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.NONE:
        return ErrorCode.INVALID_TXN_STATE
    return error
