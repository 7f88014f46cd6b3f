"""Asks the broker that coordinates a transaction about its partitions, by AddPartitionsToTxn (KIP-890).

For clients that add partitions themselves, it verifies only that a partition is in the transaction. For those that
leave it to the partition's leader, it adds the partition.

A coordinator that runs Apache Kafka before 3.5 can't be asked. Then nothing is verified, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.error_codes import known_error_code
from millrace.errors import ErrorCode, UnsupportedVersionError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import ADD_PARTITIONS_TO_TXN
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.request_batcher import RequestBatcher, in_rounds
from millrace_broker.storage import TopicPartition, by_topic
from millrace_broker.txns.metadata import Producer

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
    """A question to a coordinator: whether a producer's transaction has these partitions, or can get them."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    is_verify_only: bool


PartitionRequests = RequestBatcher[Question, Errors]


async def ask_about_partitions(link: BrokerLink, questions: Sequence[Question]) -> list[Errors]:
    """Asks one broker, and returns an error, or NONE, for each partition. Raises what `BrokerLink.request` raises.

    A response names transactions by their ids, so a request has one question about each.
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
    """Returns what becomes of a question that can't be asked: a partition is not added, but need not be verified."""
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
