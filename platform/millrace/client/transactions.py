"""The transactions of a cluster, as their coordinators list and describe them (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition
from millrace.errors import BrokerError, ErrorCode
from millrace.wire.cold import milliseconds
from millrace.wire.messages import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS

if TYPE_CHECKING:
    from millrace.wire.messages.describe_transactions import DescribeTransactionsRequestFields
    from millrace.wire.messages.list_transactions import ListTransactionsRequestFields

NO_START = -1


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id and its newest transaction; `started_ms` is None where none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[Partition, ...]


def list_transactions(cluster: Cluster) -> list[TransactionListing]:
    """Returns every transactional id of every coordinator, sorted.

    Raises UnsupportedVersionError before Apache Kafka 3.0.
    """
    fields: ListTransactionsRequestFields = {"state_filters": (), "producer_id_filters": ()}

    def action(connection: Connection) -> list[TransactionListing]:
        answer = connection.request(LIST_TRANSACTIONS, fields)
        check(answer.error_code, "transactions")
        return [
            TransactionListing(one.transactional_id, int(one.producer_id), one.transaction_state)
            for one in answer.transaction_states
        ]

    return sorted(one for listed in cluster.on_each_broker(action) for one in listed)


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
    """Returns the description of each transactional id that there still is, in their order."""
    found = (_describe(cluster, one) for one in transactional_ids)
    return [one for one in found if one is not None]


def _describe(cluster: Cluster, transactional_id: str) -> TransactionDescription | None:
    fields: DescribeTransactionsRequestFields = {"transactional_ids": [transactional_id]}

    def action(connection: Connection) -> TransactionDescription:
        [one] = connection.request(DESCRIBE_TRANSACTIONS, fields).transaction_states
        check(one.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            milliseconds(one.transaction_timeout),
            None if one.transaction_start_time == NO_START else one.transaction_start_time,
            tuple((topic.topic, index) for topic in one.topics for index in topic.partitions),
        )

    try:
        return cluster.on_coordinator(transactional_id, action, key_type=TRANSACTION_KEY_TYPE)
    except BrokerError as error:
        if error.broker_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None
