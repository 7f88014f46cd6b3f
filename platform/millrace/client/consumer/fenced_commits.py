"""Commits to the coordinator that only the newest taker of a partition can make (docs/adr/0009, KIP-98, KIP-447).

    take      InitProducerId as [group]/[topic]/[partition]     a new epoch; what the last one left open is aborted
    commit    AddOffsetsToTxn, TxnOffsetCommit, EndTxn          under that epoch, or refused

A member that takes a partition and *then* finds in ZooKeeper that it owns it knows that every later owner takes it
later: once that has happened, the coordinators refuse what the former owner still has in flight. A member that takes
a partition without owning it disturbs the owner once, which finds that it is still the owner, and takes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.client.cluster import TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import asking, asking_for
from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.offsets import read_coordinator
from millrace.client.groups import NO_GENERATION, Groups
from millrace.errors import BrokerError, ErrorCode
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.wire.messages import ADD_OFFSETS_TO_TXN, END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT

TRANSACTION_TIMEOUT_MS = 10_000
TAKEN_SINCE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class CommitFence(NamedTuple):
    """The producer id and epoch under which a partition's offset is committed."""

    producer_id: int
    producer_epoch: int


class FencedCommits:
    """The commits of one member of a group. One thread at a time takes or commits a partition."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._fences: dict[Partition, CommitFence] = {}

    def take(self, cluster: Cluster, partitions: Iterable[Partition]) -> None:
        """Takes these partitions, so that commits of former takers are refused.

        Raises BrokerError or BrokerUnreachableError.
        """
        for partition in sorted(partitions):
            self._fences[partition] = self._take(cluster, partition)

    def commit(self, cluster: Cluster, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Commits, and waits until readers see it; returns those not committed because another has taken them since."""
        refused = {one for one, offset in sorted(offsets.items()) if not self._commit(cluster, one, offset)}
        committed = [one for one in offsets if one not in refused]
        if committed:
            read_coordinator(Groups(cluster), self._group_id, committed)
        return refused

    def _name(self, partition: Partition) -> str:
        return f"{self._group_id}/{partition.topic}/{partition.number}"

    def _take(self, cluster: Cluster, partition: Partition) -> CommitFence:
        name = self._name(partition)
        ask = INIT_PRODUCER_ID.ask(
            {
                "transactional_id": name,
                "transaction_timeout": TRANSACTION_TIMEOUT_MS,
                "producer_id": NO_PRODUCER_ID,
                "producer_epoch": NO_PRODUCER_EPOCH,
            }
        )
        action = asking(ask, f"producer id of {name}")
        answer = cluster.on_coordinator(name, action, key_type=TRANSACTION_KEY_TYPE)
        return CommitFence(int(answer.producer_id), int(answer.producer_epoch))

    def _commit(self, cluster: Cluster, partition: Partition, offset: int) -> bool:
        fence = self._fences.get(partition)
        if fence is None:
            return False
        try:
            self._commit_under(cluster, fence, partition, offset)
        except BrokerError as error:
            if error.broker_code in TAKEN_SINCE:
                return False
            raise
        return True

    def _commit_under(self, cluster: Cluster, fence: CommitFence, partition: Partition, offset: int) -> None:
        name = self._name(partition)
        producer_id, producer_epoch = fence
        begin = ADD_OFFSETS_TO_TXN.ask(
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "group_id": self._group_id,
            }
        )
        store = TXN_OFFSET_COMMIT.ask(
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "group_id": self._group_id,
                "generation_id": NO_GENERATION,
                "member_id": "",
                "topics": [
                    {
                        "name": partition.topic,
                        "partitions": [
                            {"partition_index": partition.number, "committed_offset": offset, "committed_metadata": ""}
                        ],
                    }
                ],
            }
        )
        end = END_TXN.ask(
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "committed": True,
            }
        )
        stored = f"offset of group {self._group_id} in {partition}"
        cluster.on_coordinator(name, asking(begin, f"transaction {name}"), key_type=TRANSACTION_KEY_TYPE)
        cluster.on_coordinator(self._group_id, asking_for(store, lambda answer: answer.topics[0].partitions[0], stored))
        cluster.on_coordinator(name, asking(end, f"transaction {name}"), key_type=TRANSACTION_KEY_TYPE)
