"""One shard of groups on an invented log, with the requests of members of consumer groups and of classic ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from millrace.errors import ErrorCode, StorageError
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups import membership
from millrace_broker.groups.consumer.classic_members import write_assignment
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.consumer.events import Heartbeat
from millrace_broker.groups.consumer.member import NOTHING, Assignment
from millrace_broker.groups.group import Join, JoinProtocol, Sync
from millrace_broker.groups.group_coordinator import REPLAYERS, GroupCoordinator
from millrace_broker.groups.offsets import Offsets
from millrace_broker.groups.shard import Shard
from millrace_broker.metrics import GroupCounts
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig
from millrace_broker.replication.shards import replay_all
from millrace_broker.storage import AppendOrigin, LogConfig, TopicPartition
from millrace_support.clock import ManualClock

TOPIC = UUID(int=7)


class Ticket:
    """Who waits for an answer."""

    result: Any = None

    def done(self) -> bool:
        """Returns whether there is an answer."""
        return self.result is not None

    def set_result(self, result: Any, /) -> None:
        """Takes the answer."""
        self.result = result


class Log:
    """A partition of the offsets topic, whose in-sync replicas follow when the test says so."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log = SimpleNamespace(config=LogConfig(), is_offline=False)
        self.partitions = {TopicPartition("__consumer_offsets", 0): self}
        self.purgatory = self
        self.follows = True
        self.fails = False
        self.held: list[Any] = []
        self.high_watermark = 0
        self.leader_epoch = 0

    def partition(self, topic_partition: TopicPartition) -> Log:
        """Returns the partition, which is the only one."""
        return self.partitions[topic_partition]

    def check_in_sync_replicas(self) -> None:
        """Raises nothing: enough replicas are in sync."""

    def append(
        self,
        topic_partition: TopicPartition,  # noqa: ARG002
        batch: bytes,
        origin: AppendOrigin,
    ) -> tuple[Log, SimpleNamespace]:
        """Appends a coordinator's batch, unless the disk is gone."""
        assert origin is AppendOrigin.COORDINATOR
        if self.fails:
            raise StorageError("the disk is gone")
        self.batches.append(batch)
        if self.follows:
            self.high_watermark = len(self.batches)
        return self, SimpleNamespace(last_offset=len(self.batches) - 1)

    def has_kept(self, offset: int, leader_epoch: int) -> bool:  # noqa: ARG002
        """Returns that what was appended is there, always."""
        return True

    def epoch_of(self, offset: int) -> int:  # noqa: ARG002
        """Returns the epoch of all that is appended."""
        return self.leader_epoch

    def hold(self, waiting: Any, keys: Any, timeout_ms: int) -> None:  # noqa: ARG002
        """Holds what waits for the replicas."""
        self.held.append(waiting)

    def complete_or_hold(self, waiting: Any, key: Any, wait_ms: int) -> None:
        """Completes what is ready, and holds what waits for the replicas."""
        if waiting.is_ready(key):
            waiting.complete()
        else:
            self.hold(waiting, (key,), wait_ms)

    def catch_up(self) -> None:
        """Lets the replicas have everything."""
        self.high_watermark = len(self.batches)
        held, self.held = self.held, []
        for waiting in held:
            assert waiting.is_ready(None)
            waiting.complete()

    def time_out(self) -> None:
        """Lets the first that waits have waited for too long."""
        self.held.pop(0).expire()


class Broker:
    """One shard and what is around it; timers run out when the test says so."""

    def __init__(self, log: Log | None = None, **properties: str) -> None:
        self.log = log or Log()
        self.config = GroupConfig(group_initial_rebalance_delay_ms=0)
        self.clock = ManualClock()
        self.timers: dict[object, tuple[int, Callable[[], None]]] = {}
        self.image = image_of(4)
        consumer = ConsumerGroupConfig.from_properties(properties)
        self.consumer_groups = ConsumerGroups(consumer, self.config, lambda: self.image)
        replicas: Any = self.log
        self._coordinator = cast("GroupCoordinator", self)
        self._shard = Shard(
            0,
            self.config,
            replicas,
            clock=self.clock,
            call_later=self.call_later,
            replayers=REPLAYERS | self.consumer_groups.replayers,
            counts=GroupCounts(),
        )
        for batch in self.log.batches:
            replay_all(self._shard, batch)
        self._shard.loaded()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        """Sets a timer."""
        key = object()
        self.timers[key] = (round(delay_s * 1000), callback)
        return SimpleNamespace(cancel=lambda: self.timers.pop(key, None))

    def run_out(self, delay_ms: int) -> None:
        """Lets the only timer of this delay run out."""
        ((key, callback),) = [(key, timer[1]) for key, timer in self.timers.items() if timer[0] == delay_ms]
        del self.timers[key]
        callback()

    def shard(self, group_id: str) -> Shard:  # noqa: ARG002
        """Returns the shard of a group, which is the only one."""
        return self._shard

    @property
    def group(self) -> Any:
        """The group, None where there is none."""
        return self._shard.groups.get("g")

    @property
    def offsets(self) -> Offsets:
        """The offsets that groups have committed."""
        return self._shard.offsets

    def heartbeat(self, member_id: str, epoch: int, **said: Any) -> Ticket:
        """Sends a heartbeat of a consumer group's member, which says what it has to where it joins."""
        if epoch == 0:
            said = {"rebalance_timeout_ms": 900, "topic_names": frozenset(("a",)), "owned": NOTHING} | said
        ticket = Ticket()
        request = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **said)
        self.consumer_groups.heartbeat(self._coordinator, request, ticket)
        return ticket

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        owned: Sequence[int] = (),
        protocol: str = "range",
        version: int = 3,
        user_data: bytes | None = None,
        timeout_ms: int = 7000,
    ) -> Ticket:
        """Joins as a classic member."""
        ticket = Ticket()
        metadata = subscription(owned, version, user_data)
        join = Join(
            ticket,
            member_id,
            instance_id,
            "client",
            "/host",
            800,
            timeout_ms,
            "consumer",
            (JoinProtocol(protocol, metadata),),
            f"fresh-{len(self.log.batches)}",
            False,
            True,
        )
        membership.join(self._coordinator, "g", join)
        for key, (delay_ms, callback) in tuple(self.timers.items()):
            if not delay_ms and key in self.timers:  # the initial delay of a classic group
                del self.timers[key]
                callback()
        return ticket

    def sync(self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None) -> Ticket:
        """Asks for the assignment of a classic member; its leader gives those of all."""
        ticket = Ticket()
        request = Sync(ticket, member_id, None, generation, "consumer", "range", assignments or {})
        membership.sync(self._coordinator, "g", request)
        return ticket

    def beat(self, member_id: str, generation: int) -> ErrorCode:
        """Returns the error of a classic member's heartbeat."""
        return membership.heartbeat(self._coordinator, "g", member_id, None, generation)

    def restarted(self) -> Broker:
        """Returns a broker that reads what this one has stored."""
        return Broker(self.log)


def image_of(count: int) -> MetadataImage:
    """Returns a cluster with one topic of so many partitions."""
    partitions = tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(count))
    return MetadataImage("c", 1, {1: BrokerInfo(1, "h", 1)}, {"a": TopicInfo("a", TOPIC, partitions, {})})


def subscription(owned: Sequence[int], version: int, user_data: bytes | None = None) -> bytes:
    """Returns what a classic member says of itself: the topic, and the partitions that it owns."""
    data = struct.pack(">hih1s", version, 1, 1, b"a")
    data += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        data += struct.pack(">ih1si", 1, 1, b"a", len(owned)) + struct.pack(f">{len(owned)}i", *owned)
    return data + (struct.pack(">ih", 1, -1) if version >= 3 else b"")


def indexes(assignment: Assignment) -> list[int]:
    """Returns the indexes of partitions in their order."""
    return sorted(one.partition for one in assignment)


def classic_pair(broker: Broker) -> tuple[str, str]:
    """Returns two classic members, in sync: each with two partitions."""
    first: str = broker.join().result.member_id
    broker.sync(first, 1)
    joined = broker.join(timeout_ms=8000)
    broker.join(first)
    second, generation = joined.result.member_id, joined.result.generation
    assert generation == 2
    plan = {first: write_assignment({"a": [0, 1]}, 3), second: write_assignment({"a": [2, 3]}, 3)}
    broker.sync(first, generation, plan)
    broker.sync(second, generation)
    assert broker.group.state_name == "Stable"
    return first, second
