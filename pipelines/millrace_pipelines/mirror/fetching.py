"""Fetches many partitions of a cluster, with one request to each leader, all of them under way at once.

    ask every leader ──► then read the answers ──► per partition its data, or its error

No partition holds up another: an error is that partition's answer, and nothing is repeated here but what a quota has
kept empty. A leader is asked for again after an error. An answer has bounds; the partition that got nothing within them
is named first the next time.

A topic goes by its id where its cluster has ids (Fetch 13, KIP-516). So one that was deleted and created again is not
taken for the former one, even if nobody has asked for a while: its id is the one that it had when its leader was found.

That an offset is outside of a log, the newest leader has to say: a former one, which has slept and has not heard that
another one leads, lacks what was written since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.addresses import Address
from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, Unanswered
from millrace.client.fetched import FetchedData, FetchThrottledError, IsolationLevel, fetched_data, left_out
from millrace.client.metadata import ClusterMetadata, Partition
from millrace.client.simple_consumer import CONSUMER
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.wire.api import ApiKey
from millrace.wire.messages import FETCH
from millrace_pipelines.mirror.rights import explained

if TYPE_CHECKING:
    from millrace.wire.api_messages import Ask
    from millrace.wire.messages.fetch import FetchResponse

ANSWER_BYTES = 16 << 20  # of one leader
PARTITION_BYTES = 4 << 20
WAIT_MS = 500
FETCH_BY_ID = 13  # the first version that names topics by their ids
WAIT_FOR_MANY_MS = 20  # where several leaders are asked, one that has nothing holds the answers of others up

Ids = Mapping[Partition, UUID]
Answers = Mapping[Partition, FetchedData | MillraceError]


class Bounds(NamedTuple):
    """How much one leader answers, how much of a partition, and how long it waits for the first byte."""

    answer_bytes: int = ANSWER_BYTES
    partition_bytes: int = PARTITION_BYTES
    wait_ms: int = WAIT_MS


USUAL = Bounds()
ONE_BATCH = Bounds(1, 1, 0)


class Fetcher:
    """Fetches from one cluster, for one thread; `side` is how sentences name the cluster."""

    def __init__(self, cluster: Cluster, isolation: IsolationLevel, side: str) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._side = side
        self._leaders: dict[Partition, Address] = {}
        self._ids: dict[Partition, UUID | None] = {}

    def fetch(self, offsets: Mapping[Partition, int], bounds: Bounds = USUAL) -> Answers:
        """Returns what each partition has from its offset on, or its error; raises none of these."""
        found = self._asked(offsets, bounds)
        deadline_s = self._cluster.clock.monotonic_s() + self._cluster.timeout_s
        while throttled := {one: offsets[one] for one, answer in found.items() if _is_throttled(answer)}:
            if self._cluster.clock.monotonic_s() > deadline_s:
                break
            found |= self._asked(throttled, bounds)
        doubted = {one: self._leaders.get(one) for one, answer in found.items() if _is_outside(answer)}
        if doubted:
            elsewhere = self._elsewhere(doubted, found)
            found |= self._asked({one: offsets[one] for one in elsewhere}, bounds)
        for one, answer in found.items():
            if isinstance(answer, MillraceError):
                self._leaders.pop(one, None)
                found[one] = explained(answer, self._side, topic=f"Read on topic {one[0]}")
        return found

    def _elsewhere(
        self, doubted: Mapping[Partition, Address | None], found: dict[Partition, FetchedData | MillraceError]
    ) -> list[Partition]:
        """Finds the newest leaders; returns the partitions that others lead than those who were asked."""
        try:
            metadata = self._cluster.newest_metadata(sorted({topic for topic, _ in doubted}))
        except MillraceError as error:
            found |= dict.fromkeys(doubted, error)
            return []
        self._take_leaders(doubted, metadata, found)
        return [one for one, asked in doubted.items() if self._leaders.get(one) not in (None, asked)]

    def _asked(self, offsets: Mapping[Partition, int], bounds: Bounds) -> dict[Partition, FetchedData | MillraceError]:
        found: dict[Partition, FetchedData | MillraceError] = {}
        by_leader = self._by_leader(offsets, found)
        if len(by_leader) > 1:
            bounds = bounds._replace(wait_ms=min(bounds.wait_ms, WAIT_FOR_MANY_MS))
        sent: list[tuple[Connection, Unanswered[FetchResponse], list[Partition], Ids]] = []
        for address, partitions in by_leader.items():
            try:
                connection = self._cluster.connection_to(address)
                ids = self._ids_for(connection, partitions)
                ask = _fetching({one: offsets[one] for one in partitions}, ids, self._isolation, bounds)
                sent.append((connection, connection.begin(*ask, version=FETCH_BY_ID if ids else None), partitions, ids))
            except MillraceError as error:
                found |= dict.fromkeys(partitions, error)
        for connection, unanswered, partitions, ids in sent:
            found |= _answer(connection, unanswered, {one: offsets[one] for one in partitions}, ids, bounds.wait_ms)
        return found

    def _ids_for(self, connection: Connection, partitions: Sequence[Partition]) -> Ids:
        """Returns the ids of the topics of partitions; none where a topic, or the broker, goes by names."""
        ids = {one: topic_id for one in partitions if (topic_id := self._ids.get(one)) is not None}
        is_by_id = len(ids) == len(partitions) and connection.serves(ApiKey.FETCH, FETCH_BY_ID)
        return ids if is_by_id else {}

    def _by_leader(
        self, partitions: Iterable[Partition], found: dict[Partition, FetchedData | MillraceError]
    ) -> dict[Address, list[Partition]]:
        wanted = list(partitions)
        self._find_leaders([one for one in wanted if one not in self._leaders], found)
        by_leader: dict[Address, list[Partition]] = {}
        for one in wanted:
            if one in self._leaders:
                by_leader.setdefault(self._leaders[one], []).append(one)
        return by_leader

    def _find_leaders(self, unknown: Sequence[Partition], found: dict[Partition, FetchedData | MillraceError]) -> None:
        if not unknown:
            return
        try:
            metadata = self._cluster.metadata(sorted({topic for topic, _ in unknown}))
        except MillraceError as error:
            found |= dict.fromkeys(unknown, error)
            return
        self._take_leaders(unknown, metadata, found)

    def _take_leaders(
        self,
        partitions: Iterable[Partition],
        metadata: ClusterMetadata,
        found: dict[Partition, FetchedData | MillraceError],
    ) -> None:
        for one in partitions:
            try:
                self._leaders[one] = metadata.leader(*one).address
                self._ids[one] = metadata.topic(one[0]).topic_id
            except MillraceError as error:
                found[one] = error


def _is_outside(answer: FetchedData | MillraceError) -> bool:
    return isinstance(answer, OffsetOutOfRangeError)


def _is_throttled(answer: FetchedData | MillraceError) -> bool:
    return isinstance(answer, FetchThrottledError)


def _answer(
    connection: Connection,
    unanswered: Unanswered[FetchResponse],
    offsets: Mapping[Partition, int],
    ids: Ids,
    wait_ms: int,
) -> dict[Partition, FetchedData | MillraceError]:
    names = {topic_id: topic for (topic, _), topic_id in ids.items()}
    found: dict[Partition, FetchedData | MillraceError] = {}
    try:
        answer = connection.finish(unanswered, wait_ms / 1000)
        check(answer.error_code, "fetch")
    except MillraceError as error:
        return dict.fromkeys(offsets, error)
    for topic in answer.responses:
        for one in topic.partitions:
            name = names.get(topic.topic_id, "") if topic.topic_id is not None else topic.topic
            place = (name, int(one.partition_index))
            if place not in offsets:
                continue
            subject = f"fetch of {place[0]}-{place[1]} at offset {offsets[place]}"
            try:
                found[place] = fetched_data(one, subject, offsets[place])
            except MillraceError as error:
                found[place] = error
    for place in offsets.keys() - found.keys():
        found[place] = left_out(answer, f"fetch of {place[0]}-{place[1]}")
    return found


def _fetching(
    offsets: Mapping[Partition, int], ids: Ids, isolation: IsolationLevel, bounds: Bounds
) -> Ask[FetchResponse]:
    return FETCH.ask(
        {
            "replica_id": CONSUMER,
            "max_wait": bounds.wait_ms,
            "min_bytes": 1,
            "isolation_level": isolation,
            "max_bytes": bounds.answer_bytes,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": ids.get((topic, index)),
                    "partitions": [
                        {"partition": index, "fetch_offset": offset, "partition_max_bytes": bounds.partition_bytes}
                    ],
                }
                for (topic, index), offset in offsets.items()
            ],
            "forgotten_topics_data": (),
        }
    )
