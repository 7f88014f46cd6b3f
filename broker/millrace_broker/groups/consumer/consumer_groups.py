"""The consumer groups of a broker, which are made when a member joins or their records are read."""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import ErrorCode, GroupError, GroupIdNotFoundError
from millrace_broker.cluster.view import ClusterView
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.consumer.consumer_group import ConsumerGroup, Home
from millrace_broker.groups.consumer.events import Heartbeat, Refusal
from millrace_broker.groups.consumer.heartbeat import check_heartbeat
from millrace_broker.groups.consumer.member import JOINING_EPOCH
from millrace_broker.groups.consumer.records import GroupRecord, Kind, decode_key, decode_value
from millrace_broker.groups.events import Ticket
from millrace_broker.groups.group import Group
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.groups.replay import simple_group
from millrace_broker.groups.shard import Replay, Shard
from millrace_broker.properties.group_config import ConsumerGroupConfig, GroupConfig


class ConsumerGroups:
    """Makes consumer groups, and finds them.

    Args:
        config: the properties of the consumer group protocol.
        classic_config: the properties of classic groups, which consumer groups may become.
        view: returns the current view of the cluster.
    """

    def __init__(
        self, config: ConsumerGroupConfig, classic_config: GroupConfig, view: Callable[[], ClusterView]
    ) -> None:
        self.config = config
        self._home = Home(config, classic_config, view)

    @property
    def replayers(self) -> dict[int, Replay]:
        """The functions that read the records of consumer groups, by the version of their keys."""
        return dict.fromkeys(Kind, self._replay)

    def heartbeat(self, coordinator: GroupCoordinator, request: Heartbeat, ticket: Ticket) -> None:
        """Handles ConsumerGroupHeartbeat; the answer, a `HeartbeatAnswer` or a `Refusal`, goes to the ticket."""
        try:
            if not self.config.is_served:
                ticket.set_result(Refusal(ErrorCode.UNSUPPORTED_VERSION))
                return
            check_heartbeat(request, self.config)
            shard = coordinator.shard(request.group_id)
            group = self._group(shard, request)
        except GroupError as error:
            ticket.set_result(Refusal(error.code, str(error)))
            return
        effects = group.consumer_heartbeat(request, ticket, shard.now_ms())
        if group.is_storing:
            shard.groups[request.group_id] = group
        shard.perform(group, effects)

    def find(self, coordinator: GroupCoordinator, group_id: str) -> ConsumerGroup:
        """Returns the group; raises GroupIdNotFoundError where there is none, or it is of another type."""
        group = coordinator.shard(group_id).groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(group_id, group)
        return group

    def _group(self, shard: Shard, request: Heartbeat) -> ConsumerGroup:
        group = shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOINING_EPOCH or not isinstance(group, ClassicGroup | None):
            raise _not_found(request.group_id, group)
        return ConsumerGroup(request.group_id, self._home, predecessor=group)

    def _replay(self, shard: Shard, raw_key: bytes, raw_value: bytes | None) -> None:
        key = decode_key(raw_key)
        assert key is not None
        group = shard.groups.get(key.group_id)
        if raw_value is None:
            if isinstance(group, ConsumerGroup):
                self._replay_tombstone(shard, group, GroupRecord(key, None))
            return
        if not isinstance(group, ConsumerGroup):
            group = shard.groups[key.group_id] = ConsumerGroup(key.group_id, self._home)
        group.state.replay(GroupRecord(key, decode_value(key.kind, raw_value)))

    def _replay_tombstone(self, shard: Shard, group: ConsumerGroup, record: GroupRecord) -> None:
        group.state.replay(record)
        if record.key.kind is Kind.GROUP:
            del shard.groups[group.group_id]
            if shard.offsets.of_group(group.group_id):
                simple_group(shard, group.group_id)


def _not_found(group_id: str, group: Group | None) -> GroupIdNotFoundError:
    if group is None:
        return GroupIdNotFoundError(f"Group {group_id} not found.")
    return GroupIdNotFoundError(f"group {group_id} is not a consumer group")
