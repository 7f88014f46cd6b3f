"""Whether a partition may take a producer's records in a transaction (KIP-890).

A partition that has records of the transaction already takes more. For the first ones it depends on the client:

    before KIP-890        the coordinator is asked; INVALID_TXN_STATE where it does not have the partition
    with generic errors   the coordinator is asked; TRANSACTION_ABORTABLE where it does not have the partition
    that bumps epochs     the coordinator adds the partition to the transaction

So a batch that comes late, when its transaction has ended, can't begin another one that would never end. The
coordinator may be another broker; then, and where its replicas take their time, the response comes later.

    asked ──► the coordinator says yes ──► marker of the transaction ──► append: a hanging transaction (KAFKA-14884)

So a yes holds for an append only as long as no marker is written. Each partition is guarded from the question to the
append; where the guard does not hold, the client asks again. A coordinator that is still carrying out the decision on
the transaction before is asked again for a while, as it does not take long.

Another broker that coordinates a transaction is asked about its partitions by AddPartitionsToTxn (KIP-890). For clients
that add partitions themselves, it verifies only that a partition is in the transaction. For those that leave it to the
partition's leader, it adds the partition.

A coordinator that runs Apache Kafka before 3.5 can't be asked. Then nothing is verified, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millrace.error_codes import known_error_code
from millrace.errors import ErrorCode, MillraceError, UnsupportedVersionError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import ADD_PARTITIONS_TO_TXN
from millrace_broker.replication.broker_link import BrokerLink, RequestBatcher, in_rounds
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition, by_topic
from millrace_broker.txns.state import EPOCH_BUMP_VERSION, Producer
from millrace_broker.txns.transaction import Result
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from millrace.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequestFields,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTransactionFields,
    )


VERSIONS = VersionRange(4, 5)  # those of brokers; 5 tells of TRANSACTION_ABORTABLE
logger = logging.getLogger(__name__)
Errors = Mapping[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """A question to a coordinator: whether a transaction has these partitions, or else to add them to it."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    is_verify_only: bool


PartitionRequests = RequestBatcher[Question, Errors]


async def ask_about_partitions(link: BrokerLink, questions: Sequence[Question]) -> list[Errors]:
    """Asks one broker the questions; returns for each the error, or NONE, of its partitions.

    Raises BrokerUnreachableError or AnswerLostError. A response names transactions by their ids alone, so questions
    about the same transaction go into separate requests.
    """
    try:
        version = await link.newest_version(ApiKey.ADD_PARTITIONS_TO_TXN, VERSIONS)
    except UnsupportedVersionError as error:
        logger.warning("partitions of transactions are not verified: %s", error)
        return [_unverified(question, error.code) for question in questions]
    errors: dict[int, Errors] = {}
    for one_round in in_rounds(enumerate(questions), lambda numbered: numbered[1].transactional_id):
        fields: AddPartitionsToTxnRequestFields = {"transactions": [_fields(question) for _, question in one_round]}
        response = await link.request(ADD_PARTITIONS_TO_TXN, version, fields)
        failure = known_error_code(response.error_code)
        found = {transactional_id: dict(each) for transactional_id, each in _errors(response)}
        for number, question in one_round:
            told = found.get(question.transactional_id, {})
            errors[number] = {
                one: failure or told.get(one, ErrorCode.UNKNOWN_SERVER_ERROR) for one in question.partitions
            }
    return [errors[number] for number in range(len(questions))]


def _unverified(question: Question, error: ErrorCode) -> Errors:
    """Returns the outcome where the broker is too old to be asked: NONE if it was only to verify, else `error`."""
    return dict.fromkeys(question.partitions, ErrorCode.NONE if question.is_verify_only else error)


def _fields(question: Question) -> AddPartitionsToTxnTransactionFields:
    topics = by_topic(question.partitions)
    return {
        "transactional_id": question.transactional_id,
        "producer_id": question.producer.producer_id,
        "producer_epoch": question.producer.epoch,
        "verify_only": question.is_verify_only,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _errors(response: AddPartitionsToTxnResponse) -> Iterator[tuple[str, Iterator[tuple[TopicPartition, ErrorCode]]]]:
    for one in response.results_by_transaction:
        yield (
            one.transactional_id,
            (
                (TopicPartition(topic.name, each.partition_index), known_error_code(each.partition_error_code))
                for topic in one.topic_results
                for each in topic.results_by_partition
            ),
        )


ASK_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # producers and members ask the same broker again
Response = Errors | asyncio.Future[Errors]
Sleep = Callable[[float], Awaitable[object]]


class ClientSupport(IntEnum):
    """Which errors and requests of KIP-890 a client understands, as the version of its request tells."""

    NONE = 0
    GENERIC_ERROR = 1
    EPOCH_BUMP = 2

    @classmethod
    def of(cls, version: int, generic_error_since: int, epoch_bump_since: int) -> ClientSupport:
        """Returns what a client understands by its request's version, given the first versions with each feature."""
        if version >= epoch_bump_since:
            return cls.EPOCH_BUMP
        return cls.GENERIC_ERROR if version >= generic_error_since else cls.NONE


class TransactionalWrite(NamedTuple):
    """A producer that is about to write in a transaction, and what its client understands."""

    transactional_id: str
    producer: Producer
    support: ClientSupport


class Retries(NamedTuple):
    """How often, and after which pause, a coordinator is asked again while it still ends the previous transaction."""

    attempts: int
    pause_s: float
    sleep: Sleep = asyncio.sleep

    def are_due(self, errors: Errors) -> bool:
        """Returns whether to ask again, as an error is CONCURRENT_TRANSACTIONS and attempts are left."""
        return self.attempts > 0 and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


NO_RETRIES = Retries(0, 0.0)


class Verification:
    """The coordinator's outstanding response about some partitions, with the retries that it may need.

    Args:
        write: what the producer is about to do.
        partitions: the partitions that the coordinator is asked about.
        response: the coordinator's first response.
        ask: asks the coordinator again.
        retries: how often the coordinator is asked again.
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
        """Waits for the coordinator's answer; returns an error, or NONE, for each partition it was asked about.

        The caller must append without awaiting anything in between: it is checked last that no marker has come
        meanwhile.
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
    """Returns an older error for PRODUCER_FENCED, or for TRANSACTION_ABORTABLE to old clients; any other as it is."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.NONE:
        return ErrorCode.INVALID_TXN_STATE
    return error


class Admission:
    """Checks, before records of a transaction are appended here, that its coordinator knows of the partitions.

    Args:
        coordinator: the transactions that this broker coordinates.
        requests: asks the brokers that coordinate the others.
    """

    def __init__(self, coordinator: TransactionCoordinator, requests: PartitionRequests) -> None:
        self._coordinator = coordinator
        self._requests = requests
        config = coordinator.config
        pause_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._retries = Retries(config.add_partitions_to_txn_retry_backoff_max_ms // pause_ms, pause_ms / 1000)

    def admit(self, write: TransactionalWrite, partitions: Mapping[TopicPartition, Partition]) -> Errors | Verification:
        """Returns an error or NONE for each partition; a `Verification`, to be awaited, if the coordinator is asked."""
        unknown = {
            key: one for key, one in partitions.items() if not one.log.producers.has_open_transaction(*write.producer)
        }
        errors = dict.fromkeys(partitions, ErrorCode.NONE)
        adds = write.support is ClientSupport.EPOCH_BUMP
        if not unknown or not (adds or self._coordinator.config.transaction_partition_verification_enable):
            return errors
        ask = partial(self._ask, Question(write.transactional_id, write.producer, tuple(unknown), not adds))
        response, retries = ask(), self._retries if adds else NO_RETRIES
        if isinstance(response, asyncio.Future) or retries.are_due(response):
            return Verification(write, unknown, response, ask, retries)
        return errors | {key: named(error, write.support) for key, error in response.items()}

    def _ask(self, question: Question) -> Response:
        transactional_id, producer, partitions, is_verify_only = question
        broker_id = self._coordinator.other_coordinator(transactional_id) if transactional_id else None
        if broker_id is not None:
            return self._requests.ask(broker_id, question)
        if is_verify_only:
            return self._coordinator.verify(transactional_id, producer, partitions)
        adding = self._coordinator.add_partitions(transactional_id, producer, partitions, EPOCH_BUMP_VERSION)
        if adding.done():
            return dict.fromkeys(partitions, adding.result().error)
        return asyncio.ensure_future(_added(partitions, adding))


async def _added(partitions: Iterable[TopicPartition], adding: asyncio.Future[Result]) -> Errors:
    return dict.fromkeys(partitions, (await adding).error)
