"""The requests of a transactional producer to its coordinator, and to that of a group (KIP-98, KIP-360, KIP-447).

Each function returns an action on a connection, which sends one request and raises the error of its answer.
Versions are those before KIP-890, in which a client names the partitions of its transaction: all brokers serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from millrace.client.answers import check
from millrace.client.connection import Connection, asking
from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.client.producer.batch import NOBODY, Identity
from millrace.errors import ErrorCode, UnsupportedVersionError
from millrace.wire.api import ApiKey
from millrace.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

Action: TypeAlias = Callable[[Connection], None]
FIRST_INIT_WITH_EPOCH = 3
FIRST_COMMIT_WITH_MEMBER = 3


def init_producer(transactional_id: str, timeout_ms: int, expected: Identity) -> Callable[[Connection], Identity]:
    """Returns an action that gets the id's next epoch, which fences all others.

    With an identity other than NOBODY it gets one only where that still is the id's owner.
    """
    ask = INIT_PRODUCER_ID.ask(
        {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": expected.producer_id,
            "producer_epoch": expected.epoch,
        }
    )

    def action(connection: Connection) -> Identity:
        if expected != NOBODY and connection.version(ApiKey.INIT_PRODUCER_ID) < FIRST_INIT_WITH_EPOCH:
            raise UnsupportedVersionError(f"the broker at {connection.address} is too old to give a next epoch")
        answer = asking(ask, f"transactional id {transactional_id}")(connection)
        return Identity(int(answer.producer_id), int(answer.producer_epoch), is_transactional=True)

    return action


def add_partitions(transactional_id: str, identity: Identity, partitions: Iterable[Partition]) -> Action:
    """Returns an action that adds partitions to the transaction, all or none; the first ones begin it."""
    ask = ADD_PARTITIONS_TO_TXN.ask(
        {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": indexes} for topic, indexes in indexes_by_topic(partitions).items()
            ],
        }
    )

    def action(connection: Connection) -> None:
        codes = {
            (topic.name, int(one.partition_index)): int(one.partition_error_code)
            for topic in connection.request(*ask).results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        for one in sorted(codes, key=lambda one: codes[one] == ErrorCode.OPERATION_NOT_ATTEMPTED):
            check(codes[one], f"transactional id {transactional_id}: partition {one[0]}-{one[1]}")

    return action


def add_group(transactional_id: str, identity: Identity, group_id: str) -> Action:
    """Returns an action that adds a group's offsets to the transaction."""
    ask = ADD_OFFSETS_TO_TXN.ask(
        {
            "transactional_id": transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "group_id": group_id,
        }
    )
    subject = f"transactional id {transactional_id}: group {group_id}"

    def action(connection: Connection) -> None:
        asking(ask, subject)(connection)

    return action


def commit_offsets(
    transactional_id: str, identity: Identity, group: GroupMetadata, offsets: Mapping[Partition, GroupOffset]
) -> Action:
    """Returns an action for the group's coordinator, by which the offsets count once the transaction is committed."""
    ask = TXN_OFFSET_COMMIT.ask(
        {
            "transactional_id": transactional_id,
            "group_id": group.group_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.group_instance_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": offsets[topic, index].offset,
                            "committed_leader_epoch": offsets[topic, index].leader_epoch,
                            "committed_metadata": offsets[topic, index].metadata,
                        }
                        for index in indexes
                    ],
                }
                for topic, indexes in indexes_by_topic(offsets).items()
            ],
        }
    )

    def action(connection: Connection) -> None:
        if group != GroupMetadata(group.group_id) and (
            connection.version(ApiKey.TXN_OFFSET_COMMIT) < FIRST_COMMIT_WITH_MEMBER
        ):
            raise UnsupportedVersionError(f"the broker at {connection.address} is too old to fence members of groups")
        for topic in connection.request(*ask).topics:
            for one in topic.partitions:
                check(one.error_code, f"offset of group {group.group_id} in {topic.name}-{one.partition_index}")

    return action


def end(transactional_id: str, identity: Identity, *, commit: bool) -> Action:
    """Returns an action that commits or aborts the transaction; it may be repeated."""
    ask = END_TXN.ask(
        {
            "transactional_id": transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "committed": commit,
        }
    )
    subject = f"transactional id {transactional_id}"

    def action(connection: Connection) -> None:
        asking(ask, subject)(connection)

    return action
