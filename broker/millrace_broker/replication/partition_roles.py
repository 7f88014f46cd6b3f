"""Makes this broker the leader or a follower of partitions, or neither, and tells the coordinators.

    LeaderAndIsr, StopReplica, or the metadata image of a standalone broker
        → the tables of `roles`            what each partition becomes, or its error
        → logs made, or later deleted      on a worker thread; requests are answered meanwhile
        → `ReplicaManager`                 leads, follows, stops
        → coordinators, fetchers           serve what is led; fetch what is followed

Requests are done one at a time, in the order of their arrival, and to the end, whether the controller waits for the
answer or not. A partition that fails has its error in the answer, and the others go on.

`ReplicaFetchers` holds the fetchers for each broker at which partitions are followed; one that has no partitions ends.
A broker is asked by at most `num.replica.fetchers` of them at a time. The partitions of a topic are spread evenly over
these, and a partition is always fetched by the same one.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID
from zlib import crc32

from millrace.errors import ErrorCode, MillraceError, StorageError, UnknownTopicIdError, ZooKeeperError
from millrace.leader_states import NO_LEADER
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker, ReplicaFetcher
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import (
    Hosted,
    Leadership,
    PartitionState,
    Role,
    StopState,
    new_role,
    stop_refusal,
)
from millrace_broker.storage import NewLog, TopicPartition

logger = logging.getLogger(__name__)

CHANGED_AT_ONCE = 500  # partitions, before other requests have their turn

Outcome = TypeVar("Outcome")
Outcomes = dict[TopicPartition, ErrorCode]


class _Running(NamedTuple):
    fetcher: ReplicaFetcher
    task: asyncio.Task[None]


class ReplicaFetchers:
    """Spreads the followed partitions over fetchers, at most `fetchers_per_source` for each leading broker."""

    def __init__(self, settings: FetchSettings, broker: FollowingBroker, fetchers_per_source: int = 1) -> None:
        self._settings = settings
        self._broker = broker
        self._fetchers_per_source = fetchers_per_source
        self._running: dict[tuple[int, int], _Running] = {}  # by the broker that is asked, and the number
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def sources(self) -> list[int]:
        """The ids of the leading brokers from which partitions are fetched."""
        return sorted({source for source, _ in self._running})

    def follow(self, followed: FollowedPartition) -> None:
        """Begins to fetch a partition from its leader, unless it has none or the broker stops."""
        if followed.leader == NO_LEADER or self._is_closed:
            return
        key = self._key(followed)
        running = self._running.get(key)
        if running is None:
            fetcher = ReplicaFetcher(*key, self._settings, self._broker)
            running = _Running(fetcher, asyncio.get_running_loop().create_task(fetcher.run()))
            running.task.add_done_callback(self._ended)
            self._running[key] = running
        running.fetcher.follow(followed)

    def unfollow(self, followed: FollowedPartition) -> None:
        """Stops fetching a partition, and ends its fetcher if that has no other."""
        key = self._key(followed)
        running = self._running.get(key)
        if running is None:
            return
        running.fetcher.unfollow(followed)
        if not len(running.fetcher):
            del self._running[key]
            self._end(running.task)

    def resize(self, fetchers_per_source: int) -> None:
        """Spreads all partitions over up to this number of fetchers for each leading broker."""
        if fetchers_per_source == self._fetchers_per_source:
            return
        all_followed = [followed for running in self._running.values() for followed in running.fetcher.partitions]
        for followed in all_followed:
            self.unfollow(followed)
        self._fetchers_per_source = fetchers_per_source
        for followed in all_followed:
            self.follow(followed)

    def _key(self, followed: FollowedPartition) -> tuple[int, int]:
        topic, index = followed.topic_partition
        return followed.leader, (crc32(topic.encode()) + index) % self._fetchers_per_source

    async def close(self) -> None:
        """Ends all fetchers, and returns when none works any more; no partition is fetched from then on."""
        self._is_closed = True
        for running in self._running.values():
            self._end(running.task)
        self._running.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a replica fetcher has ended", exc_info=task.exception())


class LeadershipListener(Protocol):
    """Gets to know which partitions are led here, and serves some of them, such as a coordinator its topic's."""

    def elected(self, topic_partition: TopicPartition) -> None:
        """Begins to serve a partition that is led now, or is led again in a newer epoch."""

    def resigned(self, topic_partition: TopicPartition) -> None:
        """Stops serving a partition that is no longer led here, if it was served."""


class PartitionRoles:
    """Makes this broker lead, follow and stop partitions, as the controller says, one request after the other.

    Args:
        broker_id: the id of this broker.
        replicas: has the partitions that are led and followed.
        fetchers: fetch what is followed.
        listeners: are told of partitions that are led, or led no longer.
        topic_config: returns the properties of a topic, none for an unknown one.
        topic_id: returns the id of the topic that has a name now, None if there is none; a worker thread calls it.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        fetchers: ReplicaFetchers,
        listeners: Sequence[LeadershipListener],
        topic_config: Callable[[str], Mapping[str, str]],
        *,
        topic_id: Callable[[str], UUID | None] = lambda _: None,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._fetchers = fetchers
        self._listeners = listeners
        self._topic_config = topic_config
        self._topic_id = topic_id
        self._turn = asyncio.Lock()
        self._at_work: set[asyncio.Task[Any]] = set()
        self._is_leaving = False

    def in_turn(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> asyncio.Future[Outcome]:
        """Runs `work` after all work given before; returns a future of the result. Cancelling that doesn't stop it."""
        task = asyncio.get_running_loop().create_task(self._alone(work))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        return asyncio.shield(task)

    def follow_no_more(self) -> None:
        """Lets partitions that this broker begins to follow go unfetched from now on, as it is about to stop.

        Otherwise a leader would propose it for the ISR again, which the controller refuses for a broker that leaves.
        """
        self._is_leaving = True

    def resize_fetchers(self, fetchers_per_source: int) -> None:
        """Sets how many fetchers there may be for each leading broker."""
        self._fetchers.resize(fetchers_per_source)

    async def close(self) -> None:
        """Waits until all work of `in_turn` is done, fetchers have ended and no worker holds a log; none may follow."""
        await asyncio.gather(*self._at_work, return_exceptions=True)
        await self._fetchers.close()
        await self._replicas.until_free()

    async def become(self, states: Sequence[PartitionState]) -> Outcomes:
        """Leads and follows partitions as LeaderAndIsr says; returns each one's error or NONE. Call by `in_turn`."""
        outcomes: Outcomes = {}
        roles: dict[TopicPartition, tuple[PartitionState, Role]] = {}
        for state in states:
            topic_partition = state.topic_partition
            await self._replicas.until_free(topic_partition)
            hosted = self._replicas.hosted(topic_partition)
            role = new_role(state, self._broker_id, hosted)
            if isinstance(role, Role):
                roles[topic_partition] = state._replace(topic_id=state.topic_id or hosted.topic_id), role
            else:
                outcomes[topic_partition] = role
                self._tell_of_another_topic(state, hosted, role)
                self._leave_failed(state, hosted)
        await self._make_logs([state for state, _ in roles.values()])
        for count, (topic_partition, (state, role)) in enumerate(roles.items(), 1):
            await self._replicas.until_free(topic_partition)
            outcomes[topic_partition] = self._change(state, role)
            if count % CHANGED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return outcomes

    async def set_aside_others(self, states: Sequence[PartitionState]) -> None:
        """Renames the logs of topics that had the same names but other ids, to make room for these partitions.

        For a broker that decides about topics itself, without a controller. It runs inside `in_turn`.
        """
        others = [
            state.topic_partition
            for state in states
            if self._replicas.hosted(state.topic_partition).is_of_another_topic(state.topic_id)
        ]
        if not others:
            return
        try:
            await asyncio.to_thread(self._replicas.logs.set_aside, *others)
        except StorageError:
            logger.exception("not every log of another topic makes way")

    async def stop(self, states: Sequence[StopState]) -> Outcomes:
        """Stops replicas, and deletes logs, as StopReplica says; returns each one's error. It runs inside `in_turn`.

        StopReplica names no topic ids: a log that is neither led nor followed, and belongs to a deleted topic of the
        same name, is left as it is, which counts as done. Where it is not known which topic has the name now, that is
        the partition's error, and nothing happens to it.
        """
        former, unknown = await self._former_logs(
            [topic_partition for topic_partition, _, deletes in states if deletes]
        )
        outcomes = dict(unknown)
        deleted: list[TopicPartition] = []
        for topic_partition, leader_epoch, deletes in states:
            if topic_partition in unknown:
                continue
            state = StopState(topic_partition, leader_epoch, deletes)
            await self._replicas.until_free(topic_partition)
            outcomes[topic_partition] = stop_refusal(state, self._replicas.hosted(topic_partition))
            if outcomes[topic_partition] is not ErrorCode.NONE or topic_partition in former:
                continue
            if deletes:
                self.leave(topic_partition)
                deleted.append(topic_partition)
            else:
                self._end_service(topic_partition)
                self._replicas.stop(topic_partition)
        if deleted:
            outcomes |= await self._delete_logs(deleted)
        return outcomes

    async def _former_logs(self, topic_partitions: Sequence[TopicPartition]) -> tuple[set[TopicPartition], Outcomes]:
        """Returns the partitions neither led nor followed whose logs belong to an earlier topic of the same name.

        Beside them it returns the errors of those of which that is not known.
        """
        held = {
            one: hosted
            for one in topic_partitions
            if self._replicas.replica(one) is None and (hosted := self._replicas.hosted(one)).topic_id is not None
        }
        names = {one.topic for one in held}
        known, errors = await asyncio.to_thread(self._topic_ids, names) if names else ({}, {})
        former = {one for one, hosted in held.items() if hosted.is_of_another_topic(known.get(one.topic))}
        for one in sorted(former):
            logger.warning("%s is left as it is: its log is that of a former topic of this name", one)
        return former, {one: errors[one.topic] for one in held if one.topic in errors}

    def _topic_ids(self, names: Iterable[str]) -> tuple[dict[str, UUID | None], dict[str, ErrorCode]]:
        """Returns the ids of the topics that have these names now, and the errors of those that can't be read."""
        known: dict[str, UUID | None] = {}
        errors: dict[str, ErrorCode] = {}
        for name in names:
            try:
                known[name] = self._topic_id(name)
            except ZooKeeperError as error:
                logger.warning("it is not known which topic is %s, so no log of it is deleted: %s", name, error)
                errors[name] = error.code
        return known, errors

    def lead(
        self, topic_partition: TopicPartition, topic_id: UUID, config: Mapping[str, str], leadership: Leadership
    ) -> None:
        """Leads a partition, tells the listeners; raises InconsistentTopicIdError, InvalidConfigError, StorageError."""
        self._unfollow(topic_partition)
        self._replicas.lead(topic_partition, topic_id, config, leadership)
        for listener in self._listeners:
            listener.elected(topic_partition)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stops leading or following a partition, as its log is to be deleted."""
        self._end_service(topic_partition)
        self._replicas.forget(topic_partition)

    async def _alone(self, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        async with self._turn:
            return await work()

    def _tell_of_another_topic(self, state: PartitionState, hosted: Hosted, outcome: ErrorCode) -> None:
        """Says in the broker's log why a partition isn't served: only StopReplica deletes another topic's log."""
        if outcome is ErrorCode.INCONSISTENT_TOPIC_ID:
            logger.error(
                "%s of the topic with id %s is not served: there is the log of the topic of this name with id %s, which"
                " is left as it is",
                state.topic_partition,
                state.topic_id,
                hosted.topic_id,
            )

    def _leave_failed(self, state: PartitionState, hosted: Hosted) -> None:
        """Takes a partition whose log has failed offline, once a request names a newer leader epoch."""
        if hosted.is_offline and state.leader_epoch > hosted.leader_epoch:
            self.leave(state.topic_partition)
            self._replicas.offline.add(state.topic_partition)

    async def _make_logs(self, states: Sequence[PartitionState]) -> None:
        wanted = [
            NewLog(state.topic_partition, state.topic_id, self._topic_config(state.topic_partition.topic))
            for state in states
            if state.topic_id is not None
        ]
        if not all(map(self._replicas.logs.is_made, wanted)):
            await asyncio.to_thread(self._replicas.logs.create_all, wanted)

    def _change(self, state: PartitionState, role: Role) -> ErrorCode:
        topic_partition = state.topic_partition
        try:
            if state.topic_id is None:
                raise UnknownTopicIdError(f"{topic_partition} has no topic id")
            config = self._topic_config(topic_partition.topic)
            if role is Role.LEADER:
                leadership = Leadership(
                    state.leader_epoch, state.partition_epoch, state.replicas, state.isr, state.adding
                )
                self.lead(topic_partition, state.topic_id, config, leadership)
            else:
                self._follow(state, state.topic_id, config)
        except MillraceError as error:
            logger.exception("%s can't become %s", topic_partition, role.value)
            return error.code
        return ErrorCode.NONE

    def _follow(self, state: PartitionState, topic_id: UUID, config: Mapping[str, str]) -> None:
        self._end_service(state.topic_partition)
        leader = state.leader if state.leader >= 0 else NO_LEADER
        followed = self._replicas.follow(
            state.topic_partition, topic_id, config, leader=leader, leader_epoch=state.leader_epoch
        )
        if not self._is_leaving:
            self._fetchers.follow(followed)

    def _end_service(self, topic_partition: TopicPartition) -> None:
        """Has the listeners stop serving a partition, and its fetcher stop fetching it."""
        if topic_partition in self._replicas.partitions:
            for listener in self._listeners:
                listener.resigned(topic_partition)
        self._unfollow(topic_partition)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        followed = self._replicas.followed.get(topic_partition)
        if followed is not None:
            self._fetchers.unfollow(followed)

    async def _delete_logs(self, topic_partitions: Sequence[TopicPartition]) -> Outcomes:
        """Deletes logs; returns the error of each that could not be deleted."""
        try:
            await asyncio.to_thread(self._replicas.logs.delete, *topic_partitions)
        except StorageError as error:
            logger.exception("not every log that is to go can be deleted")
            return {one: error.code for one in topic_partitions if self._replicas.logs.get(one) is not None}
        return {}
