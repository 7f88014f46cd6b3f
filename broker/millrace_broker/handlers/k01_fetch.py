"""Fetch, versions 0 to 18.

    v0-v1  messages of format v0     v2-v3  messages of format v1; v3 adds max bytes
    v4     batches, isolation level, aborted transactions
    v5     log start offset          v7     fetch sessions (KIP-227)
    v9     leader epoch fencing      v11    rack, preferred read replica (KIP-392)
    v12    flexible, diverging epochs
    v13    topics by id              v15    replica state in a tagged field
    v16    the response names the leader (KIP-951)                         v17, v18  tagged fields of followers

A replica, which gives its broker's id, may read up to the log end. Its fetch offset is where its log ends: the leader
notes that once for each request (`ReplicaManager.fetched`), after leader epoch and topic id were checked, and where the
response has neither OFFSET_OUT_OF_RANGE nor a diverging epoch. In a session a replica's fetch reads what has changed,
and waits for changes (`fetch_sessions`).

A consumer that exceeds a quota is answered without partitions, and is throttled. What it may fetch at once is cut to
its quota for all windows.

A response below min bytes waits in the purgatory for max wait, unless a read failed or diverged: a replica's waits for
appends, a consumer's for the high watermark or the last stable offset. A replica is not told at once that the high
watermark has moved (KAFKA-9952). A replica that is throttled (`replication_quota`) and not in sync gets no records, and
waits.

A consumer may read from a follower from v11 on, up to the high watermark that the follower knows. `in_rack` says
where a leader sends it. A follower refuses a consumer that names neither its rack nor the leader epoch: it may have old
metadata and take the follower for the leader. Kafka's kafka-replica-verification, whose replica id is -2, reads as
a consumer does, from any follower.

An answer ends before damage, and a fetch of what is damaged is an error after which clients ask again; a follower is
told from which offset on the log leaves out none, and tells where an answer was damaged (`damage_reports`).

Partitions that the cluster does not have stand behind the others in the response, with their error, and do not end the
wait for the others. From v3 on the first batch is returned whole even above the byte limits (KIP-74).
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    MillraceError,
    NotLeaderError,
    UnknownLeaderEpochError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from millrace.leader_states import NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import Later, each, later, later_too
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Part, Parts
from millrace.wire.fetch import (
    CONSUMER,
    REPLICA_COMPARISON,
    FetchPartition,
    PartitionFetched,
    PartitionKey,
    TopicFetched,
    decode_fetch_request,
    encode_fetch_response,
)
from millrace_broker.cluster.metadata_image import reachable
from millrace_broker.handlers.api import Api, Guard, InTurns, Reply, Request, Services, Throttled
from millrace_broker.handlers.partitions import endpoints, is_known, isolation_of, leader_hint, not_led
from millrace_broker.handlers.responses import count_errors
from millrace_broker.properties.broker_config import RACK_AWARE_SELECTOR
from millrace_broker.quotas.limits import Client
from millrace_broker.replication.damage_reports import fetch_error
from millrace_broker.replication.down_conversion import (
    FIRST_VERSION_OF_BATCHES,
    FIRST_VERSION_WITH_WHOLE_BATCH,
    FIRST_VERSION_WITH_ZSTD,
    converted_soon,
    for_old_client,
)
from millrace_broker.replication.fetch_sessions import Fetched, FetchSessionError
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.in_sync_replicas import in_rack
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import settle
from millrace_broker.replication.replica import MissingBytes, Replica
from millrace_broker.replication.replica_manager import ANY_WITH_FOLLOWERS
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_RACKS = 11
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
TELL_THE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
MANY_PARTITIONS = 500
GUARD = Guard(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC)
BROKER_GUARD = Guard(ApiKey.FETCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


class _Read(NamedTuple):
    """The outcome of one pass over all partitions; with `is_urgent` the response does not wait for more records."""

    fetched: Fetched
    size_bytes: int
    is_urgent: bool
    again: list[PartitionKey]  # what a follower's session has to read for the next request, too


class _Target(NamedTuple):
    """A partition that the request names and the cluster has; `wanted` has the request's offset and limits for it."""

    key: PartitionKey
    topic_partition: TopicPartition
    wanted: FetchPartition


def handle(services: Services, request: Request) -> Reply | InTurns:
    """Handles Fetch: responds with records at once, or waits for more; interrupts the work on many partitions."""
    fetch = _Fetch(services, request)
    return InTurns(lambda: _first_reply(fetch)) if fetch.has_many else _first_reply(fetch)


def _first_reply(fetch: _Fetch) -> Reply:
    fetch.resolve_all()
    read = fetch.read_at_first()
    if fetch.is_enough(read) or fetch.max_wait_ms <= 0 or not fetch.may_get_more:
        return fetch.respond(read)
    return fetch.wait(read)


class _Fetch:
    """One Fetch request: reads its partitions, and waits in the purgatory where there are too few records yet."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._version = request.version
        self._session = request.session
        message = decode_fetch_request(request.version, request.body)
        self._context = services.fetch_sessions.context(
            message.session_id,
            message.session_epoch,
            message.wanted,
            message.forgotten,
            uses_topic_ids=request.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            now_ms=self._now_ms(),
            is_followers=message.replica_id >= 0,
        )
        self._isolation = isolation_of(max(message.replica_id, CONSUMER), message.isolation_level)
        self._rack = message.rack
        self._follower = message.replica_id if message.replica_id >= 0 else None
        self._follower_epoch, self._is_noted = message.replica_epoch, False
        self._damaged, self._healed = message.damaged, message.healed
        self._compares_replicas = message.replica_id == REPLICA_COMPARISON
        self._max_bytes = min(message.max_bytes, services.config.fetch_max_bytes)
        self._client: Client | None = None  # one whose quotas are looked at
        if services.quotas.is_enabled and message.replica_id < 0:
            self._client = Client(request.session.principal.name, request.client_id or "")
            self._max_bytes = services.quotas.fetch_max_bytes(self._client, self._max_bytes)
            self._started_s = services.clock.monotonic_s()
        self.min_bytes = min(message.min_bytes, self._max_bytes)
        self.max_wait_ms = message.max_wait_ms
        self.targets: list[_Target] = []
        self._unknown: list[tuple[PartitionKey, PartitionFetched]] = []
        self._reply: asyncio.Future[Parts | Throttled]
        self._last_read: _Read
        self._later: Later  # where there are many partitions

    @cached_property
    def _missing(self) -> MissingBytes:
        return MissingBytes(self._isolation, self._is_throttled)

    @property
    def has_many(self) -> bool:
        """Returns whether there are so many partitions that other requests are handled while they are read."""
        return len(self._context.wanted) > MANY_PARTITIONS

    def resolve_all(self) -> None:
        """Looks up each partition that the request or its session names; `targets` gets those that the cluster has."""
        for key, wanted in each(self._context.wanted.items()):
            self._resolve(key, wanted)
        if self._follower is not None and (damaged := self._damaged):
            named = {one.topic_partition: damaged[one.key] for one in self.targets if one.key in damaged}
            self._services.replicas.damage_reports.hear(self._services.replicas.partitions, named)

    @property
    def may_get_more(self) -> bool:
        """Returns whether a wait could bring records: a partition is known, or the session may get changed ones."""
        return bool(self.targets) or (self._context.is_told_of_changes and not self._unknown)

    def is_enough(self, read: _Read) -> bool:
        """Returns whether to respond now: min bytes are read, or the client must learn of an error or divergence."""
        return read.is_urgent or read.size_bytes >= self.min_bytes

    def read_at_first(self) -> _Read:
        """Reads every partition, and once more if any log has changed meanwhile.

        To read for a follower tells the leader where its log ends. That may complete other requests, by which records
        are appended, and would not wake this fetch, which is not in the purgatory yet.
        """
        changes = self._services.replicas.changes
        end, read = changes.end, self.read()
        if self.is_enough(read) or changes.end == end:
            return read
        self._take_changes()
        return self.read()

    def read(self) -> _Read:
        """Reads every partition in the order of the request, until max bytes are reached."""
        fetched: list[tuple[PartitionKey, PartitionFetched]] = []
        again = [key for key, _ in self._unknown]
        size_bytes, is_urgent = 0, isinstance(self._context, FetchSessionError)
        others_append = self.has_many  # while it goes through them in turns
        for target in each(self.targets):
            if others_append:
                self._look_at(target)
            one = self._read_target(target, size_bytes)
            size_bytes += len(one.records)
            has_failed = one.is_urgent
            is_urgent = is_urgent or has_failed
            fetched.append((target.key, one))
            if self._context.is_told_of_changes and (has_failed or self._has_more(target, one)):
                again.append(target.key)
        self._is_noted = True
        return _Read(fetched + self._unknown, size_bytes, is_urgent, again)

    def _has_more(self, target: _Target, fetched: PartitionFetched) -> bool:
        """Returns whether a partition has records, of which the response has none, as it is full or throttled."""
        partition = self._services.replicas.partitions[target.topic_partition]
        return not len(fetched.records) and partition.log.log_end_offset > target.wanted.fetch_offset

    def respond(self, read: _Read) -> Parts | Throttled | asyncio.Future[Parts | Throttled]:
        """Returns the response's parts, or their future where a worker converts the records for an older client."""
        if self._client is not None and (throttle_ms := self._throttle_ms(self._client, read)):
            empty = self._context.throttled()
            return Throttled(self._encode(empty.fetched, empty.error_code, empty.session_id), throttle_ms)
        if read.size_bytes:
            self._count(read)
        response = self._context.respond(read.fetched, self._now_ms(), read.again)
        if self._version < FIRST_VERSION_WITH_ZSTD:
            fetched = [(key, self._for_old_client(key, one)) for key, one in each(response.fetched)]
            if self._version < FIRST_VERSION_OF_BATCHES and read.size_bytes:
                return later(self._convert(fetched))
            return self._encode(fetched, response.error_code, response.session_id)
        return self._encode(response.fetched, response.error_code, response.session_id)

    def _throttle_ms(self, client: Client, read: _Read) -> int:
        clock = self._services.clock
        seconds = clock.monotonic_s() - self._started_s
        return self._services.quotas.fetched(client, read.size_bytes, seconds, clock.monotonic_ms())

    def wait(self, read: _Read) -> asyncio.Future[Parts | Throttled]:
        """Returns the future of the response, which waits in the purgatory; a client that disconnects cancels it."""
        if self._client is not None:
            self._started_s -= self._services.clock.monotonic_s()
        purgatory = self._services.replicas.purgatory
        self._reply = asyncio.get_running_loop().create_future()
        self._reply.add_done_callback(lambda _: purgatory.release(self))
        self._last_read, self._missing.count = read, self.min_bytes - read.size_bytes
        keys = [ANY_WITH_FOLLOWERS]
        if not self._context.is_told_of_changes:
            keys = [target.topic_partition for target in self.targets]
            for target in self.targets:
                self._look_at(target, again=False)
        purgatory.hold(self, keys, self.max_wait_ms)
        if self.has_many:
            self._later = later_too()
            if any(map(self.is_ready, keys)):  # since it was read
                purgatory.release(self)
                self.complete()
        return self._reply

    def is_ready(self, key: TopicPartition) -> bool:
        """Returns whether min bytes can be read now, or the partition's leader, epoch or role has changed."""
        if key == ANY_WITH_FOLLOWERS:
            return self._take_changes() if self.has_many else self._is_enough_changed()
        return self._missing.are_there(key, self._services.replicas.replica(key))

    def _is_enough_changed(self) -> bool:
        if not self._take_changes():
            return False
        self._last_read = self.read()
        return self.is_enough(self._last_read)

    def complete(self) -> None:
        """Sets the future response to the records that were waited for; called once `is_ready` is true."""
        if self._context.is_told_of_changes and not self.has_many:
            settle(self._reply, lambda: self.respond(self._last_read))
        else:
            self.expire()

    def _take_changes(self) -> bool:
        """Adds to `targets` those partitions of the session that have changed; returns whether any has changed."""
        changed = self._context.changed()
        if changed:
            known = {target.key for target in self.targets} | {key for key, _ in self._unknown}
            for key, wanted in changed.items():
                if key not in known:
                    self._resolve(key, wanted)
        return bool(changed)

    def _look_at(self, target: _Target, *, again: bool = True) -> None:
        replica = self._services.replicas.replica(target.topic_partition)
        if replica is not None:
            look = self._missing.look_at if again else self._missing.look_at_first
            look(target.topic_partition, replica)

    def expire(self) -> None:
        """Sets the future response to the records that there are now; called when the wait's deadline has passed."""
        if self._client is not None:
            self._started_s += self._services.clock.monotonic_s()  # the time in the purgatory does not count
        if self.has_many:
            settle(self._reply, lambda: self._later(self._respond_in_turns()))
        else:
            settle(self._reply, lambda: self.respond(self._read_now()))

    async def _respond_in_turns(self) -> Parts | Throttled:
        response = self.respond(self.read())
        return await response if isinstance(response, asyncio.Future) else response

    def _read_now(self) -> _Read:
        if self._context.is_told_of_changes and not self._take_changes() and not self._last_read.size_bytes:
            return self._last_read
        return self.read()

    def _resolve(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Finds a partition by its topic's name or id; adds it to `targets`, or its error to `_unknown`."""
        topic, index = key
        name = topic if isinstance(topic, str) else self._services.metadata.topic_name(topic) or ""
        topic_partition = TopicPartition(name, index)
        if self._services.authorizer is not None and self._is_denied(name):
            self._unknown.append((key, _failed(index, GUARD.error)))
        elif topic_partition in self._services.replicas.partitions or is_known(self._services, topic_partition):
            self.targets.append(_Target(key, topic_partition, wanted))
        else:
            is_unknown_id = not name and not isinstance(topic, str)
            code = UnknownTopicIdError.code if is_unknown_id else UnknownTopicError.code
            self._unknown.append((key, _failed(index, code)))

    def _is_denied(self, name: str) -> bool:
        """Returns whether the client may not read the topic; a broker, as it heals, too, has one right for all."""
        if self._follower is not None or self._healed is not None:
            return not BROKER_GUARD.permits(self._services, self._session)
        return bool(name) and not GUARD.permits(self._services, self._session, name)

    def _read_target(self, target: _Target, size_bytes: int) -> PartitionFetched:
        (topic, index), wanted = target.key, target.wanted
        try:
            replica = self._services.replicas.replica(target.topic_partition)
            if replica is None:
                raise not_led(self._services, target.topic_partition)
            if topic != replica.topic_id and not isinstance(topic, str):
                raise InconsistentTopicIdError(f"{target.topic_partition} has the topic id {replica.topic_id}")
            replica.check_leader_epoch(wanted.current_leader_epoch)
            if not self._may_read(replica, wanted):
                raise not_led(self._services, target.topic_partition)
            preferred = self._preferred_read_replica(replica, wanted.fetch_offset)
            if preferred is not None:
                return self._fetched(index, replica, b"", None, None)._replace(preferred_read_replica=preferred)
            diverging = None
            if wanted.last_fetched_epoch != NO_LEADER_EPOCH:
                diverging = replica.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
            if diverging is not None:
                return self._fetched(index, replica, b"", None, diverging)
            return self._read_replica(replica, target, size_bytes)
        except MillraceError as error:
            code = fetch_error(error, self._services.replicas.replica(target.topic_partition))
            tells_leader = self._version >= FIRST_VERSION_WITH_LEADERS and code in TELL_THE_LEADER
            failed = _failed(index, code)._replace(aborted=None)
            if not tells_leader:
                return failed
            return failed._replace(current_leader=leader_hint(self._services, target.topic_partition))

    def _may_read(self, replica: Replica, wanted: FetchPartition) -> bool:
        """Returns whether this broker may serve the request: as the leader, or as a follower if the client allows."""
        if not isinstance(replica, FollowedPartition):
            return True
        if self._compares_replicas or self._follower is not None or replica.leader == NO_LEADER:
            return self._compares_replicas
        knows_more = bool(self._rack) or wanted.current_leader_epoch != NO_LEADER_EPOCH
        return self._version >= FIRST_VERSION_WITH_RACKS and knows_more

    def _preferred_read_replica(self, replica: Replica, offset: int) -> int | None:
        """Returns the follower from which the consumer should read instead; None where there is none."""
        services = self._services
        is_asked = self._rack and services.config.replica_selector_class == RACK_AWARE_SELECTOR
        if not is_asked or not isinstance(replica, Partition) or self._follower is not None:
            return None
        image = services.metadata.image
        racks = {broker: image.brokers[broker].rack for broker in reachable(image, self._session.listener)}
        return in_rack(self._rack, services.broker_id, replica.read_replicas(offset), racks.get)

    def _read_replica(self, replica: Replica, target: _Target, size_bytes: int) -> PartitionFetched:
        wanted = target.wanted
        may_read = not self._is_throttled(replica)
        limit = max(min(wanted.max_bytes, self._max_bytes - size_bytes), 0) if may_read else 0
        at_least_one = may_read and size_bytes == 0 and self._version >= FIRST_VERSION_WITH_WHOLE_BATCH
        healed_up_to = self._healed.get(target.key, 0) if self._healed else 0
        records, aborted = replica.read(
            wanted.fetch_offset, limit, at_least_one=at_least_one, isolation=self._isolation, healed_up_to=healed_up_to
        )
        if self._follower is not None and not self._is_noted and isinstance(replica, Partition):
            self._note(self._follower, replica, wanted)
        fetched = self._fetched(target.key.partition, replica, records, aborted, None)
        is_told = self._damaged is not None and len(records)
        return fetched._replace(gapless_from=replica.log.gapless_from) if is_told else fetched

    def _note(self, follower: int, partition: Partition, wanted: FetchPartition) -> None:
        """Tells the leader's partition where the follower's log begins and ends, as its request says.

        Raises NotLeaderError for a broker that has no replica of the partition; UnknownLeaderEpochError instead where
        that broker names the leader epoch, as the controller may have told it of a reassignment before this leader.
        """
        try:
            self._services.replicas.fetched(
                partition, follower, wanted.fetch_offset, wanted.log_start_offset, self._follower_epoch
            )
        except NotLeaderError as error:
            if wanted.current_leader_epoch == NO_LEADER_EPOCH:
                raise
            raise UnknownLeaderEpochError(str(error)) from error

    def _is_throttled(self, replica: Replica) -> bool:
        """Returns whether the follower gets no records: it is not in sync, and the replication quota is exceeded."""
        return (
            self._follower is not None
            and isinstance(replica, Partition)
            and self._is_listed(replica)
            and self._services.leader_quota.is_exceeded
            and not replica.is_in_sync(self._follower)
        )

    def _is_listed(self, partition: Partition) -> bool:
        listed = partition.log.config.leader_replication_throttled_replicas
        return self._services.leader_quota.lists(listed, partition.log.topic_partition.partition)

    def _count(self, read: _Read) -> None:
        """Counts the bytes sent; a follower's also for the replication quota, if the topic's configuration says so."""
        for target, (_, one) in zip(self.targets, read.fetched, strict=False):  # unknown partitions come last
            if size_bytes := len(one.records):
                replica = self._services.replicas.sent(target.topic_partition, size_bytes, self._follower)
                if self._follower is not None and isinstance(replica, Partition) and self._is_listed(replica):
                    self._services.leader_quota.record(size_bytes)

    @staticmethod
    def _fetched(
        index: int,
        replica: Replica,
        records: Part,
        aborted: list[tuple[int, int]] | None,
        diverging: tuple[int, int] | None,
    ) -> PartitionFetched:
        return PartitionFetched(
            index, 0, replica.high_watermark, replica.last_stable_offset, replica.log.log_start_offset, records,
            aborted, diverging,
        )  # fmt: skip

    def _for_old_client(self, key: PartitionKey, fetched: PartitionFetched) -> PartitionFetched:
        """Returns a partition's result as a client below v10 can read it: records may be in a codec too new for it."""
        partition = self._services.replicas.partitions.get(TopicPartition(str(key.topic), key.partition))
        return for_old_client(self._version, fetched, None if partition is None else partition.log.config)

    async def _convert(self, fetched: Fetched) -> Parts | Throttled:
        wanted = self._context.wanted
        return self._encode(await converted_soon(self._version, fetched, wanted, self._max_bytes), 0, 0)

    def _encode(self, fetched: Fetched, error_code: int, session_id: int) -> Parts:
        topics = [
            TopicFetched(
                topic if isinstance(topic, str) else "",
                topic if isinstance(topic, UUID) else NO_TOPIC_ID,
                [one for _, one in group],
            )
            for topic, group in groupby(each(fetched), key=lambda pair: pair[0].topic)
        ]
        failed = [one for _, one in each(fetched) if one.error_code]
        count_errors(self._services, ApiKey.FETCH, (error_code, *(one.error_code for one in failed)))
        hints = [one.current_leader for one in each(failed) if one.current_leader is not None]
        nodes = endpoints(self._services, hints, self._session.listener) if hints else ()
        return encode_fetch_response(self._version, topics, error_code, session_id=session_id, endpoints=nodes)

    def _now_ms(self) -> int:
        return self._services.clock.monotonic_ms()


def _failed(index: int, code: int) -> PartitionFetched:
    return PartitionFetched(index, code, -1, -1, -1, b"", aborted=())


API = Api(
    ApiKey.FETCH,
    VersionRange(0, 18),
    handle,
    refuses="a topic with message.downconversion.enable=false before v4 (UNSUPPORTED_VERSION); "
    "zstd before v4, and in a topic with compression.type=zstd before v10 (UNSUPPORTED_COMPRESSION_TYPE); "
    "before v4 a batch of more than 64 MiB once decompressed (MESSAGE_TOO_LARGE)",
    guards=(GUARD, BROKER_GUARD),
)
