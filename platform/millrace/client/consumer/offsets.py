"""The offsets of a group: in ZooKeeper, in the coordinator, or, during a migration, in both.

Some commits to the coordinator can be made only by the newest taker of a partition (docs/adr/0009, KIP-98, KIP-447):

    take      InitProducerId as [group]/[topic]/[partition]     a new epoch; what the last one left open is aborted
    commit    AddOffsetsToTxn, TxnOffsetCommit, EndTxn          under that epoch, or refused

A member that takes a partition and *then* finds in ZooKeeper that it owns it knows that every later owner takes it
later: once that has happened, the coordinators refuse what the former owner still has in flight. A member that takes
a partition without owning it disturbs the owner once, which finds that it is still the owner, and takes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from millrace.client.cluster import TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import asking, asking_for
from millrace.client.consumer.assignment import Partition
from millrace.client.groups import Groups
from millrace.client.membership import NO_GENERATION
from millrace.config import MAX_LONG
from millrace.errors import BrokerError, DamagedNodeError, ErrorCode, InvalidConfigError
from millrace.records.batch import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.wire.messages import ADD_OFFSETS_TO_TXN, END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession


def read_zookeeper(session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Returns these partitions' committed offsets in ZooKeeper, without partitions that have none.

    Raises DamagedNodeError for a node that holds no number; raises ZooKeeperError.
    """
    return {one: _number(one, data) for one, data in _nodes(session, group_id, partitions).items()}


def read_sound_zookeeper(
    session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """Returns these partitions' committed offsets in ZooKeeper, without partitions whose node holds no number."""
    found: dict[Partition, int] = {}
    for one, data in _nodes(session, group_id, partitions).items():
        with suppress(DamagedNodeError):
            found[one] = _number(one, data)
    return found


def read_all_zookeeper(session: ZooKeeperSession, group_id: str) -> dict[Partition, int]:
    """Returns all committed offsets that ZooKeeper has of a group, by partition."""
    partitions = [
        Partition(topic, int(index))
        for topic in session.children(paths.consumer_offsets(group_id))
        for index in session.children(paths.consumer_offsets(group_id, topic))
        if index.isdecimal()
    ]
    return read_zookeeper(session, group_id, sorted(partitions))


def check_names(*names: str) -> None:
    """Raises InvalidConfigError for a group or a topic whose name no node of ZooKeeper can have."""
    for name in names:
        if not paths.is_name(name):
            raise InvalidConfigError(f"{name!r} can't be a name in ZooKeeper")


def write_zookeeper(session: ZooKeeperSession, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Sets a group's offsets in ZooKeeper; the group must have no live members.

    Raises InvalidConfigError, before any offset is set, for a topic that can't be the name of a node.
    """
    check_names(*{partition.topic for partition in offsets})
    for partition, offset in offsets.items():
        session.put(paths.consumer_offset(group_id, *partition), str(offset).encode())


def read_coordinator(
    groups: Groups, group_id: str, partitions: Iterable[Partition] | None = None
) -> dict[Partition, int]:
    """Returns the offsets that the coordinator has, of all partitions or, once no transaction is open, of some."""
    found = groups.offsets(group_id, partitions).items()
    return {Partition(*partition): one.offset for partition, one in found if one.offset != NO_OFFSET}


def furthest(*stores: Mapping[Partition, int]) -> dict[Partition, int]:
    """Returns each partition's highest offset in these mappings, such as ZooKeeper's and the coordinator's."""
    offsets: dict[Partition, int] = {}
    for store in stores:
        for partition, offset in store.items():
            offsets[partition] = max(offset, offsets.get(partition, NO_OFFSET))
    return offsets


def _nodes(session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, bytes]:
    wanted = list(partitions)
    found = session.get_many([paths.consumer_offset(group_id, *one) for one in wanted])
    return {one: data for one, data in zip(wanted, found, strict=True) if data is not None}


def _number(partition: Partition, data: bytes) -> int:
    try:
        offset = int(data)
    except ValueError:
        raise DamagedNodeError(f"the offset of {partition} is {data[:100]!r}, not a number") from None
    if offset > MAX_LONG:
        raise DamagedNodeError(f"the offset of {partition} is {offset}, which no log has")
    return offset


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
    """The producer id and epoch with which a member commits a partition's offset, so that former owners are refused."""

    producer_id: int
    producer_epoch: int


class FencedCommits:
    """Commits one group's offsets to the coordinator, which refuses former owners; only for one thread at a time."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._fences: dict[Partition, CommitFence] = {}

    def take(self, cluster: Cluster, partitions: Iterable[Partition]) -> None:
        """Takes a new producer epoch for each of these partitions, so that former owners' commits are refused.

        Raises BrokerError or BrokerUnreachableError.
        """
        for partition in sorted(partitions):
            self._fences[partition] = self._take(cluster, partition)

    def commit(self, cluster: Cluster, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Commits offsets and waits until readers see them; returns the partitions that another member has taken."""
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
