"""A leader for followers in tests: real logs behind a socket, which answer Fetch v17 and ListOffsets v7 as Kafka does.

    leader = LeadingBroker({LedLog(log, topic_id, leader_epoch=1)})
    async with ScriptedBroker(leader.answer) as broker:
        …

Fetches of followers see all up to the log's end, those of others what is committed, or the end of a range that they
heal. They begin sessions if there is a table for them. Nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError, OffsetOutOfRangeError
from millrace.wire.api import ApiKey
from millrace.wire.fetch import (
    CONSUMER,
    FetchPartition,
    FetchRequest,
    PartitionFetched,
    PartitionKey,
    TopicFetched,
    decode_fetch_request,
    encode_fetch_response,
)
from millrace.wire.header import RequestHeader
from millrace.wire.messages import LIST_OFFSETS
from millrace_broker.replication.epoch_ends import UNKNOWN, Entries, end_of_epoch
from millrace_broker.replication.fetch_sessions import Fetched, FetchSessions
from millrace_broker.storage import Log, TopicPartition
from millrace_support.scripted_broker import answer_frame

if TYPE_CHECKING:
    from millrace.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponseFields,
        ListOffsetsResponseFields,
        ListOffsetsTopicResponseFields,
    )

LATEST = -1


@dataclass(slots=True, eq=False)
class LedLog:
    """A log that is led in an epoch; `high_watermark` is the log's end where it is None."""

    log: Log
    topic_id: UUID
    leader_epoch: int
    high_watermark: int | None = None
    error_code: int = ErrorCode.NONE

    @property
    def key(self) -> PartitionKey:
        """The partition as a fetch names it."""
        return PartitionKey(self.topic_id, self.log.topic_partition.partition)

    @property
    def epochs(self) -> Entries:
        """The log's epochs, with the current one."""
        entries = self.log.leader_epochs.entries
        if self.log.leader_epochs.latest < self.leader_epoch:
            return (*entries, (self.leader_epoch, self.log.log_end_offset))
        return entries

    def checked(self, leader_epoch: int) -> ErrorCode:
        """Returns the error of a request that names another leader epoch."""
        if self.error_code:
            return ErrorCode(self.error_code)
        if leader_epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        newer = leader_epoch > self.leader_epoch
        return ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH

    def fetched(self, wanted: FetchPartition, *, is_follower: bool, healed_up_to: int) -> PartitionFetched:
        """Returns the answer to a fetch."""
        index, log = self.log.topic_partition.partition, self.log
        code = self.checked(wanted.current_leader_epoch)
        if code:
            return failed(index, code)
        end = log.log_end_offset
        high_watermark = end if self.high_watermark is None else self.high_watermark
        plain = PartitionFetched(index, 0, high_watermark, high_watermark, log.log_start_offset, b"")
        try:
            if wanted.last_fetched_epoch >= 0:
                epoch_end = end_of_epoch(self.epochs, wanted.last_fetched_epoch, end)
                if epoch_end == UNKNOWN or wanted.fetch_offset < log.log_start_offset:
                    return failed(index, OffsetOutOfRangeError.code)
                if epoch_end[0] < wanted.last_fetched_epoch or epoch_end[1] < wanted.fetch_offset:
                    return plain._replace(diverging_epoch=epoch_end)
            visible = end if is_follower else max(high_watermark, min(healed_up_to, end))
            return plain._replace(records=log.read(wanted.fetch_offset, wanted.max_bytes, up_to_offset=visible))
        except MillraceError as error:
            return failed(index, error.code)

    def listed(self, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponseFields:
        """Returns the answer to a request for the log's start or end."""
        code = self.checked(wanted.current_leader_epoch)
        log = self.log
        offset = log.log_end_offset if wanted.timestamp == LATEST else log.log_start_offset
        return {
            "partition_index": wanted.partition_index,
            "error_code": code,
            "offset": -1 if code else offset,
            "leader_epoch": self.leader_epoch,
        }


class LeadingBroker:
    """Leads some logs; `sessions` is the table of its fetch sessions, without room for any by default."""

    def __init__(self, led: Iterable[LedLog], sessions: FetchSessions | None = None) -> None:
        self.led = {one.key: one for one in led}
        self.sessions = FetchSessions(0, lambda: 1) if sessions is None else sessions
        self.fetches = 0
        self.fetched_partitions = 0  # named by requests

    async def answer(self, header: RequestHeader, message: memoryview) -> bytes:
        """Answers a request as a `ScriptedBroker` has it."""
        if header.api_key == ApiKey.FETCH:
            return answer_frame(header, self._fetch(header.api_version, message))
        assert header.api_key == ApiKey.LIST_OFFSETS
        return answer_frame(header, self._list_offsets(header.api_version, message))

    def _fetch(self, version: int, message: memoryview) -> bytes:
        request = decode_fetch_request(version, message)
        self.fetches += 1
        self.fetched_partitions += len(request.wanted)
        context = self.sessions.context(
            request.session_id,
            request.session_epoch,
            request.wanted,
            request.forgotten,
            uses_topic_ids=True,
            now_ms=0,
        )
        answer = context.respond([(key, self._one(request, key, wanted)) for key, wanted in context.wanted.items()], 0)
        topics = topics_of(answer.fetched)
        parts = encode_fetch_response(version, topics, answer.error_code, session_id=answer.session_id)
        return b"".join(bytes(part) for part in parts if isinstance(part, bytes | memoryview))

    def _one(self, request: FetchRequest, key: PartitionKey, wanted: FetchPartition) -> PartitionFetched:
        led, healed = self.led.get(key), (request.healed or {}).get(key, 0)
        if led is None:
            return failed(key.partition, ErrorCode.UNKNOWN_TOPIC_ID)
        return led.fetched(wanted, is_follower=request.replica_id != CONSUMER, healed_up_to=healed)

    def _list_offsets(self, version: int, message: memoryview) -> bytes:
        request = LIST_OFFSETS.decode_request(version, message)
        by_name = {one.log.topic_partition: one for one in self.led.values()}
        topics: list[ListOffsetsTopicResponseFields] = [
            {
                "name": topic.name,
                "partitions": [
                    by_name[TopicPartition(topic.name, one.partition_index)].listed(one) for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        fields: ListOffsetsResponseFields = {"throttle_time": 0, "topics": topics}
        return LIST_OFFSETS.encode_response(version, fields)


def failed(index: int, code: int) -> PartitionFetched:
    """Returns the answer for a partition that has an error."""
    return PartitionFetched(index, code, -1, -1, -1, b"")


def topics_of(fetched: Fetched) -> list[TopicFetched]:
    """Returns what was fetched, by topic id."""
    topics: dict[UUID, list[PartitionFetched]] = {}
    for key, one in fetched:
        assert isinstance(key.topic, UUID)
        topics.setdefault(key.topic, []).append(one)
    return [TopicFetched("", topic_id, partitions) for topic_id, partitions in topics.items()]
