"""`ConsumerConnector`: streams of the partitions that this member of a ZooKeeper-backed group owns.

    with ConsumerConnector({"group.id": "g", "zookeeper.connect": "127.0.0.1:2181"}) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            ...

Any number of threads may each read one stream. docs/clients.md shows more, docs/consumer-groups.md has the guarantees.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Self

from millrace.client.consumer.assignment import (
    Partition,
    Pattern,
    Registration,
    check_counts,
    encode_registration,
    filter_expression,
    member_name,
)
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.consumer.fetcher import Fetchers
from millrace.client.consumer.group_view import read_bootstrap
from millrace.client.consumer.member import Consumption, GroupMember
from millrace.client.consumer.offsets import FencedCommits, furthest, read_coordinator, read_zookeeper
from millrace.client.consumer.ownership import Observe, Ownership, ignore
from millrace.client.consumer.streams import ConsumerStream, Feed
from millrace.client.groups import Groups
from millrace.clock import Clock, SystemClock
from millrace.errors import InvalidRequestError, MillraceError, OwnershipLostError, ZooKeeperError
from millrace.security.client_security import ClientSecurity
from millrace.zk.security import ZooKeeperSecurity, split_security

logger = logging.getLogger(__name__)

StreamOf = Callable[[Partition, int], ConsumerStream]
Positions = Callable[[Iterable[Partition]], Mapping[Partition, int]]


class ConsumerConnector:
    """A consumer that ZooKeeper coordinates: one member of a group, whose streams hand out messages.

    Raises InvalidConfigError for properties that are unknown, missing or out of range.

    Args:
        properties: Kafka's names for its high-level consumer (docs/clients.md has the table).
        positions: returns the offsets at which newly owned partitions begin, for an application whose own output
            keeps the offsets; partitions that it leaves out begin at the group's offsets. The member's thread calls
            it, and calls it again after an error of `millrace.errors`.
        observe: called with each claim, hand-out, commit and release; for tests and audits.
        security: how connections to brokers are secured, where the properties don't say it.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        positions: Positions = lambda _: {},
        observe: Observe = ignore,
        clock: Clock | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        securing, others = split_security(properties)
        config = ConsumerConfig.from_properties(others)
        self._config = config if security is None else replace(config, security=security)
        self._zookeeper_security = ZooKeeperSecurity.from_properties(securing)
        self._positions = positions
        self._observe = observe
        self._clock = clock or SystemClock()
        self._consumer: _Consumer | None = None
        self._lock = threading.Lock()
        self._is_shut_down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def create_message_streams(self, topic_counts: Mapping[str, int]) -> dict[str, list[ConsumerStream]]:
        """Joins the group and returns, by topic, as many streams as `topic_counts` says; can be called only once.

        Messages of a partition come by one stream. Raises InvalidRequestError for a second call or a count outside 1
        to 10,000; raises RebalanceFailedError or ZooKeeperError; raises DamagedNodeError where ZooKeeper's node of an
        offset holds no number.
        """
        check_counts(topic_counts)
        consumer = self._join(Registration(dict(topic_counts)))
        streams = {
            topic: [consumer.add_stream(f"{topic}-{index}") for index in range(count)]
            for topic, count in topic_counts.items()
        }
        consumer.start(lambda partition, index: streams[partition.topic][index])
        return streams

    def create_message_streams_by_filter(
        self, *, whitelist: str | None = None, blacklist: str | None = None, count: int = 1
    ) -> list[ConsumerStream]:
        """Returns `count` streams with all topics that match `whitelist`, or that don't match `blacklist`.

        Topics that are created later are included. The regular expression has to match the whole name; a comma in it
        means "or". Raises the errors of `create_message_streams`.
        """
        if (whitelist is None) == (blacklist is None):
            raise InvalidRequestError("either a whitelist or a blacklist is needed")
        pattern = Pattern.WHITE_LIST if blacklist is None else Pattern.BLACK_LIST
        expression = filter_expression(blacklist if whitelist is None else whitelist)  # type: ignore[arg-type]
        check_counts({expression: count})
        consumer = self._join(Registration({expression: count}, pattern))
        streams = [consumer.add_stream(f"{pattern.value}-{index}") for index in range(count)]
        consumer.start(lambda _, index: streams[index])
        return streams

    def commit_offsets(self) -> None:
        """Commits all that was handed out, including the messages that the application's threads are processing.

        Raises OwnershipLostError, which names partitions that another member owns by now; the others are committed.
        Raises ZooKeeperError, BrokerError or another retriable error after `offsets.commit.max.retries`.
        """
        if self._consumer is not None:
            self._consumer.commit(with_last=True, retries=self._config.offsets_commit_max_retries)

    def owned_partitions(self) -> set[Partition]:
        """Returns the partitions that this member owns, without asking ZooKeeper; some may be lost already."""
        return set() if self._consumer is None else set(self._consumer.member.owners.owned())

    @property
    def member_name(self) -> str | None:
        """This member's name in the group; None before it has joined."""
        return None if self._consumer is None else self._consumer.member.name

    def shutdown(self) -> None:
        """Ends the streams, commits what was handed out if `auto.commit.enable`, and leaves the group.

        A second call does nothing.
        """
        with self._lock:
            if self._is_shut_down:
                return
            self._is_shut_down = True
        if self._consumer is not None:
            self._consumer.close()

    def _join(self, registration: Registration) -> _Consumer:
        with self._lock:
            if self._is_shut_down or self._consumer is not None:
                raise InvalidRequestError("a connector makes its streams only once")
            self._consumer = _Consumer(
                self._config,
                registration,
                self._positions,
                self._observe,
                clock=self._clock,
                security=self._zookeeper_security,
            )
            return self._consumer


class _Consumer(Consumption):
    """A `ConsumerConnector` that has joined its group: the group member, its streams, fetchers and offsets."""

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        positions: Positions,
        observe: Observe,
        *,
        clock: Clock,
        security: ZooKeeperSecurity,
    ) -> None:
        now_ms = clock.now_ms()
        name = member_name(config.group_id, config.consumer_id, now_ms)
        self.member = GroupMember(
            config,
            name,
            encode_registration(registration, now_ms),
            self,
            observe=observe,
            clock=clock,
            security=security,
        )
        self._config = config
        self._positions = positions
        self._observe = observe
        self._bootstrap = ""
        self._coordinator = FencedCommits(config.group_id)
        self._fetchers = Fetchers(config, self._brokers, clock)
        self._streams: list[ConsumerStream] = []
        self._stream_of: StreamOf
        self._feeds: dict[Partition, Feed] = {}
        self._commits = threading.RLock()
        self._ends = threading.Event()
        self._committer = threading.Thread(target=self._commit_regularly, name="auto-commit", daemon=True)

    def add_stream(self, name: str) -> ConsumerStream:
        """Returns a new stream with this name, to which messages are fed once the member owns partitions."""
        stream = ConsumerStream(
            name,
            self.member.lease,
            self._observe,
            max_chunks=self._config.queued_max_message_chunks,
            timeout_ms=self._config.consumer_timeout_ms,
            on_room=self._fetchers.notice_room,
        )
        self._streams.append(stream)
        return stream

    def start(self, stream_of: StreamOf) -> None:
        """Joins the group and begins to fetch; `stream_of` returns the stream for a partition and a stream's number."""
        self._stream_of = stream_of
        self._fetchers.start()
        self.member.start()
        if self._config.auto_commit_enable:
            self._committer.start()

    def close(self) -> None:
        """Ends the streams, commits if `auto.commit.enable` is set, leaves the group and stops the fetchers."""
        self._ends.set()
        if self._committer.is_alive():
            self._committer.join()
        for stream in self._streams:
            stream.close()
        with self._commits:
            for feed in self._feeds.values():
                with feed.lock:
                    feed.done = feed.handed
        self.member.close()
        self._fetchers.close()

    def begin(self, partitions: Mapping[Partition, Ownership]) -> None:
        """Begins to fetch these partitions from their committed offsets on; refuses former owners' commits before.

        Where the application gives another position, the partition begins there, and that position is committed.
        """
        if self._config.commits_to_coordinator:
            self.take_elsewhere(partitions)
        committed = self._committed(partitions)
        offsets = {**committed, **self._positions(partitions)}
        feeds = {
            one: Feed(one, ownership, self._stream_of(one, ownership.thread.number), offsets.get(one))
            for one, ownership in partitions.items()
        }
        for one, feed in feeds.items():
            if offsets.get(one) != committed.get(one):
                feed.committed = None
        with self._commits:
            self._feeds.update(feeds)
        self._fetchers.add(feeds.values())

    def stop(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Stops handing out messages of these partitions; returns the offsets to commit, none without auto-commit."""
        with self._commits:
            feeds = {one: self._feeds[one] for one in partitions if one in self._feeds}
            for feed in feeds.values():
                feed.stop()
            for stream in self._streams:
                stream.drop(set(feeds.values()))
            wanted = {one: feed.to_commit(with_last=False) for one, feed in feeds.items()}
        if not self._config.auto_commit_enable:
            return {}
        return {one: offset for one, offset in wanted.items() if offset is not None}

    def take_elsewhere(self, partitions: Iterable[Partition]) -> None:
        """Makes the coordinator refuse commits of these partitions by former owners."""
        with self._fetchers.cluster() as cluster:
            self._coordinator.take(cluster, partitions)

    def commit_elsewhere(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Commits the offsets to the coordinator; returns the partitions that another member has taken."""
        with self._fetchers.cluster() as cluster:
            return self._coordinator.commit(cluster, offsets)

    def commit(self, *, with_last: bool, retries: int = 0) -> None:
        """Commits the offsets that have advanced since the last commit; a failed attempt is repeated `retries` times.

        `with_last` includes messages that the application may still be processing. Raises OwnershipLostError for
        partitions that another member owns by now.
        """
        owed: dict[Feed, int] = {}
        while True:
            try:
                self._commit(owed, with_last=with_last)
            except MillraceError:
                if not retries or self._ends.wait(self._config.refresh_leader_backoff_ms / 1000):
                    raise
                retries -= 1
            else:
                break
        lost = {feed.partition for feed, offset in owed.items() if feed.committed is None or feed.committed < offset}
        if lost:
            raise OwnershipLostError(f"not owned any more: {', '.join(map(str, sorted(lost)))}")

    def _commit(self, owed: dict[Feed, int], *, with_last: bool) -> None:
        """Commits once the offsets that have advanced; before that, adds all of them to `owed`, to be checked later."""
        with self._commits:
            active = {one: feed for one, feed in self._feeds.items() if feed.is_active}
            wanted = {one: feed.to_commit(with_last=with_last) for one, feed in active.items()}
            offsets = {one: offset for one, offset in wanted.items() if offset is not None}
            owed.update({active[one]: offset for one, offset in offsets.items()})
            lost = self.member.commit(offsets) if offsets else set[Partition]()
            for one, offset in offsets.items():
                if one in lost:
                    active[one].stop()
                else:
                    active[one].committed = offset

    def _commit_regularly(self) -> None:
        while not self._ends.wait(self._config.auto_commit_interval_ms / 1000):
            try:
                self.commit(with_last=False)
            except MillraceError as error:
                logger.warning("%s: the next commit will do: %s", self.member.name, error)

    def _committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the group's committed offsets; where both ZooKeeper and the coordinator keep them, the higher one."""
        wanted = set(partitions)
        stores: list[Mapping[Partition, int]] = []
        if self._config.commits_to_zookeeper:
            stores.append(read_zookeeper(self.member.session, self._config.group_id, wanted))
        if self._config.commits_to_coordinator:
            with self._fetchers.cluster() as cluster:
                stores.append(read_coordinator(Groups(cluster), self._config.group_id, wanted))
        return furthest(*stores)

    def _brokers(self) -> str:
        """Returns `HOST:PORT,…` of the live brokers in ZooKeeper, or the last known ones while it can't be reached."""
        try:
            self._bootstrap = read_bootstrap(self.member.session, self._config.security.protocol)
        except ZooKeeperError:
            if not self._bootstrap:
                raise
        return self._bootstrap
