"""The requests of a mirror's instance to one cluster, over the simulated network; an error is an answer.

A leader is believed until an error comes from it. Nothing is sent again here: what the instance does with an error, its
decisions say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace.client.answers import check
from millrace.client.fetched import FetchedData, IsolationLevel, fetched_data
from millrace.errors import AnswerLostError, MillraceError, NotLeaderError
from millrace.wire.messages import APPEND_MIRRORED, DELETE_RECORDS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.mishaps import Mishaps

TIMEOUT_S, WAIT_MS, END_WAIT_MS = 4.0, 300, 3_000
EARLIEST, LATEST = -2, -1
NO_EPOCH = NO_REPLICA = NO_OFFSET = -1
BYTES = (1, 300, 5_000)
FETCH_VERSION, LIST_OFFSETS_VERSION, EPOCH_VERSION, DELETE_RECORDS_VERSION = 11, 7, 4, 2


class Ends(NamedTuple):
    """Where a log starts, and its high watermark."""

    start: int
    end: int


class Appended(NamedTuple):
    """Where the target's log ends after an append, and its error."""

    end_offset: int
    error: MillraceError | None


class Door:
    """The connections of an instance to one cluster; `mishaps` befall what is fetched and appended there."""

    def __init__(self, cluster: SimulatedCluster, machine: int, name: str, mishaps: Mishaps | None = None) -> None:
        self.cluster = cluster
        self._mishaps = Mishaps() if mishaps is None else mishaps
        self._links = ClientLinks(cluster.network, machine, TIMEOUT_S, name)
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Closes all connections."""
        self._links.close()

    async def ends(self, key: TopicPartition) -> Ends:
        """Returns where a log starts and ends; raises MillraceError."""
        return Ends(await self._offset(key, EARLIEST), await self._offset(key, LATEST))

    async def epoch_end(self, key: TopicPartition, epoch: int) -> tuple[int, int]:
        """Returns an epoch of a log that is not above this one, and where it ends; raises MillraceError."""
        one = {"partition": key.partition, "current_leader_epoch": NO_EPOCH, "leader_epoch": epoch}
        fields = {"replica_id": NO_REPLICA, "topics": [{"topic": key.topic, "partitions": [one]}]}
        answer = await self._ask(key, OFFSET_FOR_LEADER_EPOCH, EPOCH_VERSION, fields)
        (told,) = answer.topics[0].partitions
        self._check(key, told.error_code)
        return told.leader_epoch, told.end_offset

    async def fetch(
        self, key: TopicPartition, offset: int, isolation: IsolationLevel, *, wait_ms: int = WAIT_MS
    ) -> FetchedData | MillraceError:
        """Returns what a partition has from an offset on, at least one batch if there is any, or its error."""
        limit = self.cluster.chance.choice(BYTES)
        one = {
            "partition": key.partition, "current_leader_epoch": NO_EPOCH, "fetch_offset": offset,
            "last_fetched_epoch": NO_EPOCH, "log_start_offset": NO_OFFSET, "partition_max_bytes": limit,
        }  # fmt: skip
        fields = {
            "replica_id": NO_REPLICA, "max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20,
            "isolation_level": int(isolation), "session_epoch": NO_EPOCH, "forgotten_topics_data": (),
            "topics": [{"topic": key.topic, "partitions": [one]}],
        }  # fmt: skip
        try:
            answer = await self._ask(key, FETCH, FETCH_VERSION, fields)
            (partition,) = answer.responses[0].partitions
            found = fetched_data(partition, f"fetch of {key} at offset {offset}", offset)
            return self._mishaps.fetched(key, found)
        except MillraceError as error:
            self._leaders.pop(key, None)
            return error

    async def append(self, key: TopicPartition, end_offset: int, records: bytes, start_offset: int) -> Appended:
        """Appends batches where the log of a mirrored partition ends at an offset."""
        one = {
            "partition_index": key.partition,
            "log_start_offset": start_offset,
            "log_end_offset": end_offset,
            "records": self._mishaps.sent(records),
        }
        told = await self._append(key, one)
        is_lost = told.error is None and self._mishaps.loses_answer()
        return Appended(NO_OFFSET, AnswerLostError(f"{key}: no answer to an append")) if is_lost else told

    async def end_mirroring(self, key: TopicPartition) -> Appended:
        """Ends the mirroring into a partition."""
        one = {"partition_index": key.partition, "log_end_offset": NO_OFFSET, "records": None, "ends_mirroring": True}
        return await self._append(key, one)

    async def delete_records(self, key: TopicPartition, offset: int) -> int:
        """Deletes the records below an offset; returns where the log begins then. Raises MillraceError."""
        one = {"partition_index": key.partition, "offset": offset}
        fields = {"timeout": END_WAIT_MS, "topics": [{"name": key.topic, "partitions": [one]}]}
        answer = await self._ask(key, DELETE_RECORDS, DELETE_RECORDS_VERSION, fields)
        (told,) = answer.topics[0].partitions
        self._check(key, told.error_code)
        return int(told.low_watermark)

    async def _append(self, key: TopicPartition, one: Any) -> Appended:
        fields = {"timeout_ms": END_WAIT_MS, "topics": [{"name": key.topic, "partitions": [one]}]}
        try:
            answer = await self._ask(key, APPEND_MIRRORED, 0, fields)
            (told,) = answer.topics[0].partitions
        except MillraceError as error:
            return Appended(NO_OFFSET, error)
        try:
            self._check(key, told.error_code)
        except MillraceError as error:
            return Appended(told.log_end_offset, error)
        return Appended(told.log_end_offset, None)

    async def _offset(self, key: TopicPartition, timestamp: int) -> int:
        one = {"partition_index": key.partition, "timestamp": timestamp, "current_leader_epoch": NO_EPOCH}
        fields = {
            "replica_id": NO_REPLICA, "isolation_level": 0, "topics": [{"name": key.topic, "partitions": [one]}]
        }  # fmt: skip
        answer = await self._ask(key, LIST_OFFSETS, LIST_OFFSETS_VERSION, fields)
        (told,) = answer.topics[0].partitions
        self._check(key, told.error_code)
        return int(told.offset)

    def _check(self, key: TopicPartition, code: int) -> None:
        if code:
            self._leaders.pop(key, None)
        check(code, str(key))

    async def _ask(self, key: TopicPartition, api: Any, version: int, fields: Any) -> Any:
        if key not in self._leaders:
            leader = self.cluster.leader(key)
            if leader is None:
                raise NotLeaderError(f"{key} has no leader")
            self._leaders[key] = leader
        try:
            link = await self._links.to(self._leaders[key])
            return await link.request(api, version, fields)
        except MillraceError:
            self._leaders.pop(key, None)
            raise
