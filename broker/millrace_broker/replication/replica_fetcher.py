"""Fetches, in a loop, the partitions that this broker follows at one other broker.

    Fetch v17, one in flight ──► each partition: append, cut, start again, wait, or stop ──► the next Fetch
    far behind               ──► the next Fetch ──► each partition: append

| the answer for a partition | what follows |
|---|---|
| batches, high watermark, log start | they are taken (`followed_partition`) |
| a diverging epoch (KIP-595) | the log is cut; the next fetch tells whether further |
| OFFSET_OUT_OF_RANGE | ListOffsets tells: a log that ends above the leader's is cut where that ends, and one that |
| | ends below the leader's start is emptied and begins there |
| FENCED_LEADER_EPOCH | nothing until LeaderAndIsr tells of a newer epoch |
| batches that break a rule, a full disk | again after `backoff_ms`; of damage the leader is told (`damage_reports`) |
| any other error | again after a pause that doubles from 20 ms to `backoff_ms`: a leader may not know its role yet |

A log that a worker cuts or moves has it for itself meanwhile; the partition is asked for again when it is free.

What `flush.messages` demands is synced before the next fetch tells the leader that it is here. The syncs of an answer
have `SYNC_WAIT_MS`; a partition whose sync takes longer is left out of the next fetches, which wait for news no longer
than that, so that a slow disk holds up none of the other partitions.

A partition that is throttled (`replication_quota`) and not in sync is fetched again after `backoff_ms`, once the quota
allows that.

A broker that can't be reached, hangs, refuses the whole request or answers nonsense is asked again after `backoff_ms`.
The leader answers for those partitions that have news (KIP-227, `follower_session`).

An answer counts only for a partition that is still followed in the epoch in which it was asked for (KAFKA-6880), and
whose log ends where the request said.

Where all records of an answer lie below the high watermark, the next request leaves before they are written
(`asked_ahead`).

Runs on the event loop, and lets others have their turn between the partitions of an answer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millrace.addresses import Address
from millrace.config import MAX_INT, MAX_LONG
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, BrokerUnreachableError, ErrorCode, MalformedRequestError, MillraceError
from millrace.wire.api import ApiKey
from millrace.wire.fetch import (
    FOLLOWERS_VERSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionFetched,
    PartitionKey,
    decode_fetch_response,
    encode_fetch_request,
)
from millrace_broker.replication.broker_link import BrokerLink, Connect
from millrace_broker.replication.followed_partition import (
    EARLIEST,
    FIRST_PAUSE_MS,
    LATEST,
    FollowedPartition,
    FollowerLogs,
    LeaderOffset,
    WhenTold,
    leader_offsets,
)
from millrace_broker.replication.follower_session import Asked, FollowerSession, SessionRequest, asked_ahead
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.storage import LogManager

logger = logging.getLogger(__name__)

LONG_APPEND_BYTES = 64 << 10
SYNC_WAIT_MS = 50
MAX_RESPONSE_BYTES = 1 << 30  # a batch comes whole, however large it is
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchSettings(NamedTuple):
    """The properties `replica.fetch.*` and `replica.socket.timeout.ms`, with Kafka's defaults.

    `max_bytes` limits one partition, `response_max_bytes` a whole answer; a first batch above that is sent whole.
    """

    min_bytes: int = 1
    wait_max_ms: int = 500
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000


class FollowingBroker(NamedTuple):
    """The id of this broker, and the functions and limits that its fetchers need.

    `epoch` returns the broker's epoch, -1 where it has none. `address_of` returns where a broker listens, None where
    that is not known at the time. `quota` limits what the broker fetches as a follower. `connect` makes the
    connections.
    """

    broker_id: int
    epoch: Callable[[], int]
    address_of: Callable[[int], Address | None]
    logs: LogManager
    when_offline: WhenTold
    when_committed: WhenTold
    quota: ReplicationQuota
    connect: Connect = BrokerLink.connect


class _Sent(NamedTuple):
    """A request that was sent, and the task that waits for its answer."""

    link: BrokerLink
    answer: asyncio.Task[memoryview]


class ReplicaFetcher:
    """Fetches followed partitions from one leading broker, `source`, which may have several, told apart by `number`."""

    def __init__(self, source: int, number: int, settings: FetchSettings, broker: FollowingBroker) -> None:
        self.source = source
        self._number = number
        self._settings = settings
        self._broker = broker
        self._logs = FollowerLogs(broker.logs, self._pause, broker.when_offline, broker.when_committed)
        self._partitions: dict[PartitionKey, FollowedPartition] = {}
        self._asked: dict[PartitionKey, Asked] = {}  # partitions that got records most recently come last
        self._stale: set[PartitionKey] = set()  # whose position has to be looked at again
        self._paused: list[tuple[float, int, FollowedPartition]] = []  # a heap by the time at which they are due
        self._pause_numbers = itertools.count()
        self._session = FollowerSession()
        self._unsynced: set[PartitionKey] = set()  # that are not asked for before they are synced
        self._owes_anew = False
        self._ahead: _Sent | None = None
        self._link: BrokerLink | None = None
        self._changed = asyncio.Event()
        self._is_failing = False
        self._now_s = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[FollowedPartition]:
        """The partitions that this fetcher fetches."""
        return list(self._partitions.values())

    def follow(self, followed: FollowedPartition) -> None:
        """Begins to fetch a partition, at once even if another fetcher had paused it."""
        followed.retry_at_s = 0.0
        followed.when_synced = partial(self._synced, followed)
        followed.when_cut = partial(self._was_cut, followed)
        self._partitions[followed.key] = followed
        self._unsynced.discard(followed.key)
        self._asked.pop(followed.key, None)
        self._stale.add(followed.key)
        self._changed.set()

    def unfollow(self, followed: FollowedPartition) -> None:
        """Stops fetching a partition; what comes of it in an answer under way is dropped."""
        if self._partitions.get(followed.key) is followed:
            del self._partitions[followed.key]
            self._asked.pop(followed.key, None)
            self._unsynced.discard(followed.key)

    def _was_cut(self, followed: FollowedPartition) -> None:
        """Has the next requests ask the leader for a partition's records from the end of this broker's log on."""
        if self._follows(followed):
            self.follow(followed)

    def _synced(self, followed: FollowedPartition) -> None:
        """Asks for a partition again after its log was synced or released; takes it offline if its disk has failed."""
        if self._follows(followed) and followed.key in self._unsynced:
            self._logs.check(followed)
            self._unsynced.discard(followed.key)
            self._stale.add(followed.key)
            self._changed.set()

    async def run(self) -> None:
        """Fetches until the task is cancelled."""
        try:
            while True:
                self._look_at_stale()
                if self._owes_anew:
                    await self._let_sync()
                self._hold_back_throttled()
                if self._asked or self._ahead is not None:
                    await self._fetch_or_back_off()
                elif not self._stale:
                    await self._until_one_is_due()
        finally:
            self._forget_ahead()
            self._disconnect()

    # What is asked for.

    def _look_at_stale(self) -> None:
        """Updates the positions to ask for, of partitions that had news or whose pause is over."""
        now_s = self._now_s()
        while self._paused and self._paused[0][0] <= now_s:
            self._stale.add(heapq.heappop(self._paused)[-1].key)
        stale, self._stale = self._stale, set()
        for key in stale:
            self._asked.pop(key, None)
            followed = self._partitions.get(key)
            if followed is not None and followed.failure is None and followed.retry_at_s <= now_s:
                self._ask_for(followed)

    def _ask_for(self, followed: FollowedPartition) -> None:
        if followed.log.is_held:
            self._unsynced.add(followed.key)
            return
        position = followed.asked()
        if position.fetch_offset < followed.log.log_end_offset:
            self._logs.truncate({followed: position.fetch_offset})
            self._unsynced.add(followed.key)
        elif followed.log.owes_sync():
            self._unsynced.add(followed.key)
            self._owes_anew = True
        else:
            self._asked[followed.key] = position

    async def _let_sync(self) -> None:
        """Waits up to `SYNC_WAIT_MS` for logs to be synced, so that the next request can acknowledge their records."""
        self._owes_anew = False
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_WAIT_MS / 1000):
                while self._unsynced:
                    self._changed.clear()
                    await self._changed.wait()
        self._look_at_stale()

    def _hold_back_throttled(self) -> None:
        if not self._broker.quota.is_exceeded:
            return
        for followed in [self._partitions[key] for key in self._asked]:
            if not followed.is_in_sync and self._is_listed(followed):
                del self._asked[followed.key]
                self._pause(followed)

    def _is_listed(self, followed: FollowedPartition) -> bool:
        listed = followed.log.config.follower_replication_throttled_replicas
        return self._broker.quota.lists(listed, followed.key.partition)

    async def _until_one_is_due(self) -> None:
        """Waits until a partition's pause ends or a partition is added or synced."""
        self._changed.clear()
        try:
            async with asyncio.timeout_at(self._paused[0][0] if self._paused else None):
                await self._changed.wait()
        except TimeoutError:
            return

    def _pause(self, followed: FollowedPartition, at_most_ms: int = MAX_INT) -> None:
        if not self._follows(followed):
            return  # another fetcher asks for it, and meets what is wrong itself
        followed.retry_at_s = self._now_s() + min(self._settings.backoff_ms, at_most_ms) / 1000
        heapq.heappush(self._paused, (followed.retry_at_s, next(self._pause_numbers), followed))

    # The request.

    async def _fetch_or_back_off(self) -> None:
        try:
            await self._fetch()
            self._is_failing = False
        except MillraceError as error:
            if not self._is_failing:
                logger.warning("broker %d is asked again until it can be followed: %s", self.source, error)
            await self._back_off()
        except Exception:  # the fetcher goes on for its other partitions
            logger.exception("an answer of broker %d could not be taken", self.source)
            self._disconnect()
            await self._back_off()

    async def _back_off(self) -> None:
        self._forget_ahead()
        self._session.failed()
        self._is_failing = True
        await asyncio.sleep(self._settings.backoff_ms / 1000)

    async def _fetch(self) -> None:
        sent, self._ahead = self._ahead or self._send(await self._connected()), None
        body = await sent.answer
        try:
            await self._answered(sent.link, body)
        finally:
            sent.link.give_back(body)

    def _send(self, link: BrokerLink) -> _Sent:
        message = self._encoded(self._session.request(self._asked))
        wait_s = self._wait_max_ms / 1000
        answer = link.exchange(ApiKey.FETCH, FOLLOWERS_VERSION, message, wait_s=wait_s)
        return _Sent(link, asyncio.get_running_loop().create_task(answer))

    @property
    def _wait_max_ms(self) -> int:
        """The milliseconds that the leader may wait for records; few while logs are synced, to ask for them soon."""
        longest_ms = self._settings.wait_max_ms
        return min(SYNC_WAIT_MS, longest_ms) if self._unsynced else longest_ms

    async def _answered(self, link: BrokerLink, body: memoryview) -> None:
        try:
            answer = decode_fetch_response(body)
        except MalformedRequestError:
            self._disconnect()
            raise
        if answer.error_code == ErrorCode.NONE:
            fetched = self._still_asked_for(answer)
            self._session.answered(answer.session_id)
            await self._ask_ahead(link, fetched)
            await self._take(link, fetched)
        elif answer.error_code in SESSION_ERRORS and self._session.is_established:
            self._session.failed(answer.error_code)
        else:
            self._session.failed(answer.error_code)
            raise BrokerError(answer.error_code, error_sentence(answer.error_code))

    async def _connected(self) -> BrokerLink:
        if self._link is None or self._link.is_closed:
            self._session.failed()
            address = self._broker.address_of(self.source)
            if address is None:
                raise BrokerUnreachableError(f"it is not known where broker {self.source} listens")
            self._link = await self._broker.connect(
                address,
                client_id=f"broker-{self._broker.broker_id}-fetcher-{self._number}",  # as Kafka's brokers have it
                timeout_s=self._settings.socket_timeout_ms / 1000,
                max_response_bytes=MAX_RESPONSE_BYTES,
            )
        return self._link

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()

    def _encoded(self, request: SessionRequest) -> bytes:
        settings = self._settings
        wanted = {
            key: FetchPartition(
                one.fetch_offset, settings.max_bytes, one.leader_epoch, one.last_fetched_epoch, one.log_start_offset
            )
            for key, one in request.asked.items()
        }
        return encode_fetch_request(
            FetchRequest(
                self._broker.broker_id,
                self._wait_max_ms,
                settings.min_bytes,
                settings.response_max_bytes,
                READ_UNCOMMITTED,
                request.session_id,
                request.session_epoch,
                wanted,
                list(request.forgotten),
                replica_epoch=self._broker.epoch(),
                damaged=self._damaged(),
            )
        )

    def _damaged(self) -> dict[PartitionKey, int]:
        """Returns where the newest answers were damaged, of the partitions that are asked for."""
        known = ((key, self._partitions[key].damaged_at) for key in self._asked if key in self._partitions)
        return {key: offset for key, offset in known if offset is not None}

    # The answer.

    def _still_asked_for(self, answer: FetchResponse) -> dict[PartitionKey, PartitionFetched]:
        """Returns the answer's partitions whose position has not changed since the request."""
        asked, asked_now = self._session.asked, self._asked
        still = {
            key: one
            for key, one in answer.fetched.items()
            if key in asked and key in asked_now and asked[key].position == asked_now[key].position
        }
        if len(still) < len(answer.fetched):
            self._session.missed_news()
        return still

    async def _ask_ahead(self, link: BrokerLink, fetched: Mapping[PartitionKey, PartitionFetched]) -> None:
        """Sends the next request before the answer's records are appended, if `asked_ahead` allows it.

        It doesn't where a partition is throttled, or has to be synced before anything more is asked for.
        """
        ahead = asked_ahead(self._asked, fetched)
        if ahead and not any(self._is_held_back(self._partitions[key]) for key in fetched):
            for key, one in ahead.items():
                del self._asked[key]
                self._asked[key] = one
            self._ahead = self._send(link)
            await asyncio.sleep(0)  # the request leaves

    def _is_held_back(self, followed: FollowedPartition) -> bool:
        return followed.log.config.flush_messages < MAX_LONG or self._is_listed(followed)

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.answer.cancel()
            self._ahead = None

    async def _take(self, link: BrokerLink, answered: Mapping[PartitionKey, PartitionFetched]) -> None:
        diverging: dict[FollowedPartition, tuple[int, int]] = {}
        out_of_range: list[FollowedPartition] = []
        for key, fetched in answered.items():
            if key not in self._asked:
                self._session.missed_news()
                continue
            followed = self._partitions[key]
            self._stale.add(key)
            if followed.log.is_held:
                self._session.missed_news()
                continue
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(followed)
            elif fetched.error_code != ErrorCode.NONE:
                self._refused(followed, fetched.error_code)
            elif fetched.diverging_epoch is not None:
                diverging[followed] = fetched.diverging_epoch
            else:
                followed.next_pause_ms = FIRST_PAUSE_MS
                self._logs.append(followed, fetched)
                if len(fetched.records) and self._is_listed(followed):
                    self._broker.quota.record(len(fetched.records))
                await _let_others(fetched)
        self._logs.cut({one: end for one, end in diverging.items() if self._may_change(one)})
        if out_of_range:
            await self._reset(link, out_of_range)

    def _follows(self, followed: FollowedPartition) -> bool:
        return self._partitions.get(followed.key) is followed

    def _may_change(self, followed: FollowedPartition) -> bool:
        return self._follows(followed) and not followed.log.is_held

    def _refused(self, followed: FollowedPartition, code: int) -> None:
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.failure = error_sentence(code)
            logger.info("%s waits for the controller: %s", followed.topic_partition, followed.failure)
            return
        is_news = code == ErrorCode.KAFKA_STORAGE_ERROR and followed.next_pause_ms == FIRST_PAUSE_MS
        log = logger.warning if is_news else logger.debug
        log("%s is asked for again at broker %d: %s", followed.topic_partition, self.source, error_sentence(code))
        self._pause(followed, followed.next_pause_ms)
        followed.next_pause_ms = min(2 * followed.next_pause_ms, self._settings.backoff_ms)

    async def _reset(self, link: BrokerLink, out_of_range: Sequence[FollowedPartition]) -> None:
        """Truncates logs that end above their leader's log, and empties those that end below its start."""
        ends = await self._listed(link, out_of_range, LATEST)
        shorter = [one for one, end in ends.items() if end.offset < one.log.log_end_offset]
        self._logs.truncate({one: ends[one].offset for one in shorter})
        others = [one for one in ends if one not in shorter]
        starts = await self._listed(link, others, EARLIEST) if others else {}
        for followed, start in starts.items():
            if start.offset > followed.log.log_end_offset:
                self._logs.start_again(followed, start.offset)
            else:
                self._pause(followed)  # the leader has appended meanwhile, or the files of epochs are damaged
                self._logs.compare_epochs(followed)

    async def _listed(
        self, link: BrokerLink, partitions: Sequence[FollowedPartition], timestamp: int
    ) -> dict[FollowedPartition, LeaderOffset]:
        """Returns the leader's answer to ListOffsets for partitions still fetched here whose logs no worker holds."""
        listed = await leader_offsets(link, self._broker.broker_id, partitions, timestamp)
        found: dict[FollowedPartition, LeaderOffset] = {}
        for followed, answer in listed.items():
            if not self._may_change(followed):
                continue
            if answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                found[followed] = answer
            else:
                self._refused(followed, answer.error_code)
        return found


async def _let_others(fetched: PartitionFetched) -> None:
    """Lets other tasks of the event loop run after a long append."""
    if len(fetched.records) >= LONG_APPEND_BYTES:
        await asyncio.sleep(0)
