"""Brings chunks of owned partitions from the brokers that lead them, with a thread for each broker.

    add ──► homeless ──leader finder: metadata, first offset──► the leader's fetcher ──chunks──► streams
                ▲                                                   │
                └────── moved leader, broken connection, offset out of range

A fetcher asks for all its partitions at once, except those whose stream has no room: a slow stream holds up only its
own partitions. A feed that was given up is dropped wherever it turns up.

A broker that is cut off from the others may take itself for a leader whose log ends early. So where an offset is out of
range, all brokers are asked who leads, and that one has to say it, too, in its leader epoch (KIP-320), before the feed
begins somewhere else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from millrace.addresses import Address
from millrace.client.answers import check, is_retriable
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.consumer.config import ERROR, SMALLEST, ConsumerConfig
from millrace.client.consumer.streams import Chunk, Feed
from millrace.client.damaged_batches import AbsentOffsets, is_damage
from millrace.client.fetched import FetchedData, fetched_data, starts_with_cut_batch
from millrace.client.metadata import ClusterMetadata
from millrace.client.simple_consumer import CONSUMER, LARGEST_FETCH_BYTES, SimpleConsumer, log_end, serves
from millrace.clock import Clock
from millrace.errors import (
    ErrorCode,
    MillraceError,
    OffsetOutOfRangeError,
    RecordError,
    RecordTooLargeError,
    error_name,
)
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.records.intervals import Interval
from millrace.records.record import Record
from millrace.wire.messages import FETCH

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import PartitionData

logger = logging.getLogger(__name__)

FETCH_ANSWER_MAX_BYTES = 50 << 20
IDLE_WAIT_S = 1.0
LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class Fetchers:
    """Fetches a `ConsumerConnector`'s partitions, by one thread for each leading broker, and one that finds leaders."""

    def __init__(self, config: ConsumerConfig, bootstrap: Callable[[], str], clock: Clock) -> None:
        self._config = config
        self._bootstrap = bootstrap
        self.clock = clock
        self.changed = threading.Condition()
        self._homeless: set[Feed] = set()
        self._fetchers: dict[Address, _Fetcher] = {}
        self.is_closed = False
        self._finder = threading.Thread(target=self._find_leaders, name="leader-finder", daemon=True)
        self.absent = AbsentOffsets(self.cluster, log_end, serves, accept=config.accept_missing_offsets)

    def start(self) -> None:
        """Starts the thread that looks for leaders."""
        self._finder.start()

    def add(self, feeds: Iterable[Feed]) -> None:
        """Begins to fetch these partitions as well, once their leaders are found."""
        with self.changed:
            self._homeless.update(feeds)
            self.changed.notify_all()

    def notice_room(self) -> None:
        """Wakes the fetchers: a stream has room in its queue again, or a partition is given up."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """Ends the threads; waits for fetches under way, which brokers hold for no longer than their maximum wait."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        if self._finder.is_alive():
            self._finder.join()
        for fetcher in list(self._fetchers.values()):
            fetcher.thread.join()

    def ended(self, fetcher: _Fetcher) -> None:
        """Removes a fetcher whose thread ends, for lack of partitions or of its broker; the caller holds `changed`."""
        if self._fetchers.get(fetcher.address) is fetcher:
            del self._fetchers[fetcher.address]

    def _find_leaders(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._homeless or self.is_closed)
                if self.is_closed:
                    return
                feeds = {feed for feed in self._homeless if feed.is_active}
                self._homeless.clear()
            left = self._settle(feeds) if feeds else set()
            if left:
                with self.changed:
                    self._homeless |= left
                    self.changed.wait_for(lambda: self.is_closed, self._config.refresh_leader_backoff_ms / 1000)

    def _settle(self, feeds: set[Feed]) -> set[Feed]:
        """Hands each partition (feed) to the fetcher of its leader; returns the partitions without a known leader."""
        try:
            with self.cluster() as cluster:
                ask = cluster.newest_metadata if any(feed.doubts_leader for feed in feeds) else cluster.metadata
                metadata = ask(sorted({feed.partition.topic for feed in feeds}))
                return {feed for feed in feeds if not self._place(cluster, metadata, feed)}
        except MillraceError as error:
            logger.info("leaders are looked for again: %s", error)
            return feeds

    def cluster(self) -> Cluster:
        """Returns a new `Cluster` with the connector's settings; the caller closes it."""
        return Cluster(
            self._bootstrap(),
            client_id=self._config.client_id or self._config.group_id,
            timeout_s=self._config.socket_timeout_ms / 1000,
            clock=self.clock,
            security=self._config.security,
        )

    def _place(self, cluster: Cluster, metadata: ClusterMetadata, feed: Feed) -> bool:
        try:
            leader = metadata.leader(*feed.partition).address
            if feed.doubts_leader:
                topic, index = feed.partition
                feed.leader_epoch = metadata.topic(topic).partitions[index].leader_epoch
                feed.doubts_leader = False
            else:
                feed.leader_epoch = None
            if feed.fetch_offset is None:
                feed.begin_at(first_offset(SimpleConsumer(cluster), feed, self._config))
        except OffsetOutOfRangeError as error:
            feed.stream.fail(error)
            return True
        except MillraceError as error:
            logger.info("%s has no leader to fetch from yet: %s", feed.partition, error)
            return False
        with self.changed:
            fetcher = self._fetchers.get(leader)
            if fetcher is None:
                fetcher = self._fetchers[leader] = _Fetcher(self, self._config, leader)
                fetcher.feeds.add(feed)
                fetcher.thread.start()
            fetcher.feeds.add(feed)
            self.changed.notify_all()
        return True


def first_offset(consumer: SimpleConsumer, feed: Feed, config: ConsumerConfig) -> int:
    """Returns the offset that `auto.offset.reset` means: the log start offset, or that after the last readable record.

    It is for partitions without a usable committed offset. Raises OffsetOutOfRangeError if the property is `error`.
    """
    if config.auto_offset_reset == ERROR:
        raise OffsetOutOfRangeError(f"{feed.partition}: no usable offset, and auto.offset.reset=error")
    if config.auto_offset_reset == SMALLEST:
        return consumer.earliest(*feed.partition)
    return consumer.latest(*feed.partition, config.isolation)


class _Fetcher:
    """The thread that fetches from one broker the partitions that it leads."""

    def __init__(self, owner: Fetchers, config: ConsumerConfig, address: Address) -> None:
        self.address = address
        self.feeds: set[Feed] = set()
        self.thread = threading.Thread(target=self._run, name=f"fetcher-{address}", daemon=True)
        self._owner = owner
        self._config = config

    def _run(self) -> None:
        try:
            with Connection(
                self.address,
                client_id=self._config.client_id or self._config.group_id,
                timeout_s=self._config.socket_timeout_ms / 1000,
                clock=self._owner.clock,
                security=self._config.security,
            ) as connection:
                while feeds := self._ready():
                    self._fetch(connection, feeds)
        except MillraceError as error:
            logger.info("the fetcher of %s ends: %s", self.address, error)
            with self._owner.changed:
                self._owner.changed.wait_for(
                    lambda: self._owner.is_closed, self._config.refresh_leader_backoff_ms / 1000
                )
        finally:
            with self._owner.changed:
                self._owner.ended(self)
                left, self.feeds = self.feeds, set()
                self._owner.add(feed for feed in left if feed.is_active)

    def _ready(self) -> list[Feed]:
        """Waits for room in streams; returns the partitions (feeds) to fetch, none if this fetcher is to end."""
        with self._owner.changed:
            while not self._owner.is_closed:
                self.feeds = {feed for feed in self.feeds if feed.is_active}
                if not self.feeds:
                    self._owner.ended(self)
                    return []
                ready = [feed for feed in self.feeds if feed.stream.has_room]
                if ready:
                    return sorted(ready, key=lambda feed: feed.partition)
                self._owner.changed.wait(IDLE_WAIT_S)
            return []

    def _fetch(self, connection: Connection, feeds: list[Feed]) -> None:
        topics: dict[str, list[Feed]] = {}
        for feed in feeds:
            topics.setdefault(feed.partition.topic, []).append(feed)
        ask = FETCH.ask(
            {
                "replica_id": CONSUMER,
                "max_wait": self._config.fetch_wait_max_ms,
                "min_bytes": self._config.fetch_min_bytes,
                "max_bytes": max(FETCH_ANSWER_MAX_BYTES, *(feed.max_bytes for feed in feeds), 0),
                "isolation_level": self._config.isolation,
                "topics": [
                    {
                        "topic": topic,
                        "partitions": [
                            {
                                "partition": feed.partition.number,
                                "current_leader_epoch": NO_LEADER_EPOCH
                                if feed.leader_epoch is None
                                else feed.leader_epoch,
                                "fetch_offset": feed.fetch_offset or 0,
                                "partition_max_bytes": feed.max_bytes or self._config.fetch_message_max_bytes,
                            }
                            for feed in wanted
                        ],
                    }
                    for topic, wanted in topics.items()
                ],
                "forgotten_topics_data": (),
            }
        )
        answer = connection.request(*ask, wait_s=self._config.fetch_wait_max_ms / 1000)
        check(answer.error_code, f"fetch from {self.address}")
        by_partition = {tuple(feed.partition): feed for feed in feeds}
        for topic in answer.responses:
            for one in topic.partitions:
                self._take(by_partition[topic.topic, one.partition_index], one)

    def _take(self, feed: Feed, answer: PartitionData) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            logger.warning("%s: offset %s is out of range at %s", feed.partition, feed.fetch_offset, self.address)
            feed.doubts_leader = feed.leader_epoch is None
            if not feed.doubts_leader:
                feed.fetch_offset = None
            self._send_home(feed)
        elif answer.error_code in LEADER_MOVED:
            logger.info("%s: %s", feed.partition, error_name(answer.error_code))
            self._send_home(feed)
        else:
            try:
                self._queue_or_read_on(feed, answer)
            except MillraceError as error:
                if is_retriable(error) and not isinstance(error, RecordError):  # a damaged record stays so
                    self._send_home(feed)
                else:
                    self._give_up(feed, error)

    def _queue_or_read_on(self, feed: Feed, answer: PartitionData) -> None:
        offset = feed.fetch_offset or 0
        try:
            self._queue(feed, fetched_data(answer, f"fetch of {feed.partition}", offset))
        except MillraceError as error:
            if not is_damage(error):
                raise
            with self._owner.cluster() as cluster:
                consumer = SimpleConsumer(cluster, accept_missing_offsets=self._config.accept_missing_offsets)
                isolation = self._config.isolation
                span = Interval(offset, consumer.latest(*feed.partition, isolation))
                found = consumer.read_on(*feed.partition, span, error, isolation=isolation)
            self._put(feed, found.records, found.next_offset)

    def _queue(self, feed: Feed, fetched: FetchedData) -> None:
        if starts_with_cut_batch(fetched.records):
            asked = feed.max_bytes or self._config.fetch_message_max_bytes
            if asked >= LARGEST_FETCH_BYTES:
                raise RecordTooLargeError(f"{feed.partition}: the batch at {feed.fetch_offset} is above {asked} bytes")
            feed.max_bytes = min(2 * asked, LARGEST_FETCH_BYTES)
            return
        offset = next_offset = feed.fetch_offset or 0
        records: list[Record] = []
        for batch in fetched.batches():
            if batch.absent is not None:
                self._owner.absent.check(*feed.partition, batch.absent, is_inside=batch.lacks_records)
            records += [record for record in batch.records() if record.offset >= offset]
            next_offset = max(next_offset, batch.header.next_offset)
        if next_offset > offset:
            self._put(feed, records, next_offset)

    def _put(self, feed: Feed, records: list[Record], next_offset: int) -> None:
        feed.fetch_offset, feed.max_bytes = next_offset, 0
        feed.stream.put(Chunk(feed, records, next_offset))

    def _send_home(self, feed: Feed) -> None:
        with self._owner.changed:
            self.feeds.discard(feed)
        self._owner.add([feed])

    def _give_up(self, feed: Feed, error: MillraceError) -> None:
        with self._owner.changed:
            self.feeds.discard(feed)
        feed.stream.fail(error)
