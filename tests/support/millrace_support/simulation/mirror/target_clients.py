"""What an instance that copies asks of the target's coordinators and leaders: a group's member, and transactions.

Requests are sent again where the real clients do so, for a while. What they then raise is what these raise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millrace.client.groups import GroupOffset
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    CoordinatorNotAvailableError,
    ErrorCode,
    MillraceError,
)
from millrace.records.batch import HEADER_BYTES, NO_LEADER_EPOCH, TRANSACTIONAL_FLAG, read_header, sealed_batch
from millrace.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DELETE_GROUPS,
    END_TXN,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.group_members import session_timeout_ms
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.workloads.transactional_producers import AGAIN, ELSEWHERE

if TYPE_CHECKING:
    from millrace.records.batch import Buffer

GROUP, PROTOCOL_TYPE, ASSIGNOR = "millrace-mirror-east", "mirror", "rendezvous"
OF_GROUPS, OF_TRANSACTIONS = 0, 1
TIMEOUT_S, PATIENCE_S, PAUSE_S = 12.0, 10.0, (0.05, 0.4)
TRANSACTION_TIMEOUT_MS = 12_000  # longer than a session, so that one that has slept may still commit
PRODUCE_WAIT_MS = 3_000
REQUIRES_STABLE = True  # offsets that are about to be committed are waited for
FENCED = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
    | {ErrorCode.REBALANCE_IN_PROGRESS}
)


class FencedError(ClientError):
    """The group has another generation, or does not know this member."""


class RefusedError(ClientError):
    """A broker has refused a request for good, or for too long."""


def _check(code: int, subject: str) -> None:
    if code in FENCED:
        raise FencedError(f"{subject} is answered {ErrorCode(code).name}")
    if code:
        raise RefusedError(f"{subject} is answered {ErrorCode(code).name}")


class TargetClient:
    """The connections of one process to the coordinators of the target."""

    def __init__(self, cluster: SimulatedCluster, machine: int, name: str, transactional_id: str) -> None:
        self.cluster = cluster
        self._links = ClientLinks(cluster.network, machine, TIMEOUT_S, name)
        self._id = transactional_id
        self._coordinators: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: Counter[TopicPartition] = Counter()
        self._member_id = ""
        self.generation = -1

    def close(self) -> None:
        """Closes all connections."""
        self._links.close()

    async def _once(self, kind: int, api: Any, version: int, fields: Any) -> Any:
        try:
            if kind not in self._coordinators:
                self._coordinators[kind] = await self._find(kind)
            link = await self._links.to(self._coordinators[kind])
            return await link.request(api, version, fields)
        except MillraceError:
            self._coordinators.pop(kind, None)
            raise

    async def _find(self, kind: int) -> int:
        link = await self._links.to(self.cluster.chance.choice(tuple(self.cluster.brokers)))
        fields: Any = {"key_type": kind, "coordinator_keys": [GROUP if kind == OF_GROUPS else self._id]}
        (found,) = (await link.request(FIND_COORDINATOR, 6, fields)).coordinators
        if found.error_code:
            raise CoordinatorNotAvailableError(f"no coordinator: {found.error_code}")
        return int(found.node_id)

    async def _ask(self, kind: int, api: Any, version: int, fields: Any, error_of: Any, *, patience_s: float) -> Any:
        """Returns an answer without an error, asked again for a while; raises the last error."""
        deadline = self.cluster.loop.time() + patience_s
        while True:
            try:
                answer = await self._once(kind, api, version, fields)
                code = ErrorCode(error_of(answer))
                if code in ELSEWHERE:
                    self._coordinators.pop(kind, None)
                if code not in AGAIN:
                    _check(code, api.key.name)
                    return answer
                late: MillraceError = RefusedError(f"{api.key.name} is answered {code.name} for too long")
            except (FencedError, RefusedError):
                raise
            except MillraceError as error:
                late = error
            if self.cluster.loop.time() >= deadline:
                raise late
            await asyncio.sleep(self.cluster.chance.uniform(*PAUSE_S))

    # The member.

    async def join(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Joins the group, and returns the partitions that are this member's; raises MillraceError."""
        timeout_ms = session_timeout_ms(self.cluster.network)
        fields: dict[str, Any] = {
            "group_id": GROUP, "session_timeout": timeout_ms, "rebalance_timeout": timeout_ms,
            "member_id": self._member_id, "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": ASSIGNOR, "metadata": b""}],
        }  # fmt: skip
        joined = await self._once(OF_GROUPS, JOIN_GROUP, 9, fields)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._once(OF_GROUPS, JOIN_GROUP, 9, {**fields, "member_id": self._member_id})
        self._check_member(joined.error_code)
        members = sorted(one.member_id for one in joined.members)
        divided: dict[str, list[str]] = {member: [] for member in members}
        for key in keys if members else ():
            divided[self.cluster.chance.choice(members)].append(f"{key.topic} {key.partition}")
        sync = {
            "group_id": GROUP, "generation_id": joined.generation_id, "member_id": self._member_id,
            "protocol_type": PROTOCOL_TYPE, "protocol_name": ASSIGNOR,
            "assignments": [{"member_id": one, "assignment": ",".join(own).encode()} for one, own in divided.items()],
        }  # fmt: skip
        synced = await self._once(OF_GROUPS, SYNC_GROUP, 5, sync)
        self._check_member(synced.error_code)
        self.generation = joined.generation_id
        names = bytes(synced.assignment).decode().split(",") if synced.assignment else []
        return [TopicPartition(name.split()[0], int(name.split()[1])) for name in names]

    async def heartbeat(self) -> None:
        """Tells that it is alive; raises FencedError where it is to join again, and another MillraceError."""
        fields = {"group_id": GROUP, "generation_id": self.generation, "member_id": self._member_id}
        self._check_member((await self._once(OF_GROUPS, HEARTBEAT, 4, fields)).error_code)

    def _check_member(self, code: int) -> None:
        if code in ELSEWHERE:
            self._coordinators.pop(OF_GROUPS, None)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        _check(code, GROUP)

    async def delete_group(self) -> ErrorCode:
        """Deletes the group with its offsets, as an administrator does; returns the answer, or raises MillraceError."""
        answer = await self._once(OF_GROUPS, DELETE_GROUPS, 2, {"groups_names": [GROUP]})
        return ErrorCode(answer.results[0].error_code)

    async def progress(self, key: TopicPartition) -> GroupOffset:
        """Returns the offset that the group has committed, once no transaction is about to commit another one."""
        topics = [{"name": key.topic, "partition_indexes": [key.partition]}]
        fields = {"groups": [{"group_id": GROUP, "topics": topics}], "require_stable": REQUIRES_STABLE}
        answer = await self._ask(
            OF_GROUPS, OFFSET_FETCH, 9, fields,
            lambda one: one.groups[0].error_code or one.groups[0].topics[0].partitions[0].error_code,
            patience_s=0,
        )  # fmt: skip
        (told,) = answer.groups[0].topics[0].partitions
        return GroupOffset(told.committed_offset, told.metadata or "", told.committed_leader_epoch)

    # Transactions.

    async def begin(self) -> None:
        """Has a producer id, with which nothing is open."""
        if self._producer is None:
            fields = {"transactional_id": self._id, "transaction_timeout": TRANSACTION_TIMEOUT_MS}
            given = await self._ask(
                OF_TRANSACTIONS, INIT_PRODUCER_ID, 4, fields, lambda one: one.error_code, patience_s=PATIENCE_S
            )
            self._producer = given.producer_id, given.producer_epoch
            self._sequences.clear()

    def forget_producer(self) -> None:
        """Begins the next transaction with another epoch, since nobody knows what became of the last one."""
        self._producer = None

    def _fields(self, **more: Any) -> dict[str, Any]:
        producer_id, epoch = self._producer or (-1, -1)
        return {"transactional_id": self._id, "producer_id": producer_id, "producer_epoch": epoch, **more}

    async def add_partition(self, key: TopicPartition) -> None:
        """Adds a partition to the transaction."""
        producer_id, epoch = self._producer or (-1, -1)
        fields = {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": key.topic, "partitions": [key.partition]}],
        }

        def error_of(answer: Any) -> int:
            (topic,) = answer.results_by_topic_v3_and_below
            return int(topic.results_by_partition[0].partition_error_code)

        await self._ask(OF_TRANSACTIONS, ADD_PARTITIONS_TO_TXN, 3, fields, error_of, patience_s=PATIENCE_S)

    async def produce(self, key: TopicPartition, batch: Buffer) -> int:
        """Writes a ready batch in the transaction, sent again until it is answered; returns its offset."""
        header = read_header(batch)
        producer_id, epoch = self._producer or (-1, -1)
        stamped = header._replace(
            base_offset=0, partition_leader_epoch=NO_LEADER_EPOCH, attributes=header.codec_id | TRANSACTIONAL_FLAG,
            producer_id=producer_id, producer_epoch=epoch, base_sequence=self._sequences[key],
        )  # fmt: skip
        data = sealed_batch(stamped, bytes(batch)[HEADER_BYTES:])
        topics = [{"name": key.topic, "partition_data": [{"index": key.partition, "records": data}]}]
        fields: Any = {
            "transactional_id": self._id, "acks": -1, "timeout": PRODUCE_WAIT_MS, "topic_data": topics
        }  # fmt: skip
        offset = await self._produced(key, fields)
        self._sequences[key] += header.record_count
        return offset

    async def produce_plainly(self, key: TopicPartition, batch: bytes) -> None:
        """Writes a batch outside of all transactions, as no mirror may."""
        topics = [{"name": key.topic, "partition_data": [{"index": key.partition, "records": batch}]}]
        fields: Any = {"transactional_id": None, "acks": -1, "timeout": PRODUCE_WAIT_MS, "topic_data": topics}
        await self._produced(key, fields)

    async def _produced(self, key: TopicPartition, fields: Any) -> int:
        loop = self.cluster.loop
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline:
            leader = self.cluster.leader(key)
            with suppress(BrokerUnreachableError, AnswerLostError):
                if leader is not None:
                    answer: Any = await (await self._links.to(leader)).request(PRODUCE, 11, fields)
                    told = answer.responses[0].partition_responses[0]
                    if told.error_code not in AGAIN:
                        _check(told.error_code, f"a batch for {key}")
                        return int(told.base_offset)
            await asyncio.sleep(self.cluster.chance.uniform(*PAUSE_S))
        raise ClientError(f"a batch for {key} is not answered")

    async def send_offsets(self, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commits the progress of this member of the group with the transaction."""
        await self._ask(
            OF_TRANSACTIONS, ADD_OFFSETS_TO_TXN, 3, self._fields(group_id=GROUP),
            lambda one: one.error_code, patience_s=PATIENCE_S,
        )  # fmt: skip
        topics = [
            {
                "name": key.topic,
                "partitions": [
                    {
                        "partition_index": key.partition, "committed_offset": one.offset,
                        "committed_leader_epoch": one.leader_epoch, "committed_metadata": one.metadata,
                    }
                ],
            }
            for key, one in offsets.items()
        ]  # fmt: skip
        fields = self._fields(group_id=GROUP, topics=topics, **self._member_fields())

        def error_of(answer: Any) -> int:
            codes = (one.error_code for topic in answer.topics for one in topic.partitions)
            return int(next((code for code in codes if code), 0))

        await self._ask(OF_GROUPS, TXN_OFFSET_COMMIT, 3, fields, error_of, patience_s=PATIENCE_S)

    def _member_fields(self) -> dict[str, Any]:
        """Returns what says in a commit of offsets whose they are (KIP-447)."""
        return {"generation_id": self.generation, "member_id": self._member_id}

    async def end(self, *, is_commit: bool) -> None:
        """Ends the transaction; raises MillraceError where that is refused, or nobody answers for a while."""
        await self._ask(
            OF_TRANSACTIONS, END_TXN, 3, self._fields(committed=is_commit),
            lambda one: one.error_code, patience_s=PATIENCE_S,
        )  # fmt: skip
