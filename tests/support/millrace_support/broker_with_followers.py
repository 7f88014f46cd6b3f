"""A standalone broker in the test's own event loop whose partitions are given followers, and a connection to it.

The followers are invented: a test says what they have, or sends Fetch requests with their ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from millrace.clock import SystemClock
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.broker import Broker
from millrace_broker.handlers.api import Services
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.roles import Leadership
from millrace_broker.startup.options import parse_options
from millrace_broker.storage import TopicPartition

ALL, LEADER = -1, 1
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 10, 17, 7
LONG_MS = 60_000
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])
FIRST, SECOND = TopicPartition("events", 0), TopicPartition("events", 1)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    while True:
        if is_so():
            return
        await asyncio.sleep(0)


class Home:
    """A standalone broker with id 0, whose partitions are given followers 2 and 3, and a connection to it.

    Attributes:
        produce_version: That of the Produce requests.
    """

    def __init__(self, services: Services, link: BrokerLink) -> None:
        self.link = link
        self.produce_version = PRODUCE_VERSION
        self.services = services
        self.replicas = services.replicas
        self.metadata = services.metadata
        self.broker_id = services.broker_id

    def lead(
        self, key: TopicPartition = FIRST, *, isr: tuple[int, ...] = (2,), config: dict[str, str] | None = None
    ) -> Partition:
        """Begins a new epoch with followers 2 and 3, of which `isr` are in sync."""
        partition = self.replicas.partition(key)
        me = self.broker_id
        leadership = Leadership(partition.leader_epoch + 1, 0, (me, 2, 3), (me, *isr))
        self.replicas.lead(key, partition.topic_id, config or partition.config, leadership)
        return partition

    def fetched(self, offset: int, key: TopicPartition = FIRST, follower: int = 2) -> None:
        """Has a follower fetch at an offset."""
        self.replicas.fetched(self.replicas.partition(key), follower, offset)

    def produce(
        self, acks: int = ALL, timeout_ms: int = LONG_MS, keys: tuple[TopicPartition, ...] = (FIRST,)
    ) -> asyncio.Task[list[tuple[int, int]]]:
        """Begins to produce a record to each partition; the result is each error code and base offset."""
        partitions = [{"index": key.partition, "records": BATCH} for key in keys]
        topic_id = self.metadata.image.topics[FIRST.topic].topic_id
        fields = {
            "transactional_id": None, "acks": acks, "timeout": timeout_ms,
            "topic_data": [{"name": FIRST.topic, "topic_id": topic_id, "partition_data": partitions}],
        }  # fmt: skip
        body = encode(ApiKey.PRODUCE, self.produce_version, Direction.REQUEST, fields)
        return asyncio.ensure_future(self._produce(self.produce_version, body))

    async def _produce(self, version: int, body: bytes) -> list[tuple[int, int]]:
        answer = decode(
            ApiKey.PRODUCE,
            version,
            Direction.RESPONSE,
            await self.link.exchange(ApiKey.PRODUCE, version, body),
        )
        return [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]

    async def fetch(
        self,
        offset: int,
        replica_id: int = 2,
        *,
        key: TopicPartition = FIRST,
        rack: str = "",
        session: tuple[int, int] = (0, -1),
        **wanted: int,
    ) -> Any:
        """Fetches as a follower, or as a consumer by -1, and returns the answer for the partition.

        A session has an id and an epoch; without one, all is answered.
        """
        partition = self.replicas.replica(key)
        session_id, session_epoch = session
        fields = {
            "max_wait": wanted.pop("max_wait", LONG_MS), "min_bytes": wanted.pop("min_bytes", 1), "max_bytes": 1 << 20,
            "isolation_level": 0, "session_id": session_id, "session_epoch": session_epoch,
            "forgotten_topics_data": [], "rack_id": rack,
            "replica_state": {"replica_id": replica_id, "replica_epoch": wanted.pop("replica_epoch", -1)},
            "topics": [
                {
                    "topic_id": self.metadata.image.topics[key.topic].topic_id,
                    "partitions": [
                        {
                            "partition": key.partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20,
                            "current_leader_epoch": NO_LEADER_EPOCH if partition is None else partition.leader_epoch,
                            "last_fetched_epoch": NO_LEADER_EPOCH, "log_start_offset": -1, **wanted,
                        }
                    ],
                }
            ],
        }  # fmt: skip
        body = encode(ApiKey.FETCH, FETCH_VERSION, Direction.REQUEST, fields)
        answer = decode(
            ApiKey.FETCH, FETCH_VERSION, Direction.RESPONSE, await self.link.exchange(ApiKey.FETCH, FETCH_VERSION, body)
        )
        return answer.responses[0].partitions[0]

    async def list_offset(
        self, timestamp: int, replica_id: int, version: int = LIST_OFFSETS_VERSION
    ) -> tuple[int, int]:
        """Asks for an offset, and returns the error code and the offset."""
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        fields = {
            "replica_id": replica_id, "isolation_level": 0, "topics": [{"name": FIRST.topic, "partitions": [wanted]}],
        }  # fmt: skip
        body = encode(ApiKey.LIST_OFFSETS, version, Direction.REQUEST, fields)
        answer = decode(
            ApiKey.LIST_OFFSETS, version, Direction.RESPONSE,
            await self.link.exchange(ApiKey.LIST_OFFSETS, version, body),
        )  # fmt: skip
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    async def appended(self, next_offset: int, key: TopicPartition = FIRST) -> None:
        """Waits until the leader has the records."""
        await until(lambda: self.replicas.partition(key).log.log_end_offset >= next_offset)


@asynccontextmanager
async def broker_with_followers(*folders: Path) -> AsyncIterator[Home]:
    """Yields a started broker, of one data directory or more, with the topic `events` of two partitions."""
    directories = [part for folder in folders for part in ("--data", str(folder))]
    broker = Broker(parse_options(["--standalone", *directories, "--listen", "127.0.0.1:0"]), SystemClock())
    address = await broker.start()
    try:
        services = broker._services  # noqa: SLF001  # no controller gives its partitions followers
        await services.topics.create(FIRST.topic, partitions=2)
        link = await BrokerLink.connect(address, client_id="c", timeout_s=60, max_response_bytes=1 << 20)
        yield Home(services, link)
        link.close()
    finally:
        await broker.stop()
