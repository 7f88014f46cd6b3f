"""The consumer groups of a broker, which are made when a member joins or their records are read.

In a group events wait in line, each is decided, its records are stored, its outcome applied. Nothing is answered, and
no other member is told anything, before the records are with the in-sync replicas: whatever a member knows, a
coordinator that reads the log again knows too. `decisions` says what follows from an event; this module has the order
of events.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from millrace.errors import ErrorCode, GroupError, GroupIdNotFoundError, InvalidConfigError
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.consumer.change import DecisionContext
from millrace_broker.groups.consumer.classic_members import leavers
from millrace_broker.groups.consumer.decisions import (
    Changed,
    Situation,
    Succeeded,
    Unchanged,
    decide,
    not_stored,
    refuse,
    respond_heartbeat,
    respond_sync,
)
from millrace_broker.groups.consumer.events import (
    Event,
    Expired,
    Heartbeat,
    HeartbeatEvent,
    Leave,
    Refusal,
    Timer,
    cancelled_timers,
    session_timer,
    timers_of,
)
from millrace_broker.groups.consumer.heartbeat import check_heartbeat
from millrace_broker.groups.consumer.member import JOINING_EPOCH
from millrace_broker.groups.consumer.records import GroupRecord, Kind, decode_key, decode_value
from millrace_broker.groups.consumer.state import ConsumerGroupFacts
from millrace_broker.groups.group import (
    Committer,
    Effects,
    Group,
    Join,
    Leaving,
    StoreRecords,
    Succession,
    Sync,
    Ticket,
)
from millrace_broker.groups.group_coordinator import GroupCoordinator, simple_group
from millrace_broker.groups.shard import Replay, Shard
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig

logger = logging.getLogger(__name__)

KEPT_CONFIGURATIONS = 1000


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The broker's configuration and the metadata image, which all its consumer groups share."""

    config: ConsumerGroupConfig
    classic_config: GroupConfig
    image: Callable[[], MetadataImage]

    def config_of(self, group_id: str) -> ConsumerGroupConfig:
        """Returns the settings of a group: its own where it has some, else the broker's."""
        own = self.image().group_configs.get(group_id)
        return _with_own(self.config, tuple(own.items())) if own else self.config


@lru_cache(maxsize=KEPT_CONFIGURATIONS)
def _with_own(config: ConsumerGroupConfig, own: tuple[tuple[str, str], ...]) -> ConsumerGroupConfig:
    try:
        return config.of_group(dict(own))
    except InvalidConfigError as error:  # another tool wrote it into ZooKeeper
        logger.warning("a group's own configuration is ignored: %s", error)
        return config


class Pending(NamedTuple):
    """An event whose records are being stored, and the state and effects that follow once they are."""

    event: Event
    outcome: Changed | Succeeded


class ConsumerGroup(ConsumerGroupFacts):
    """One consumer group (KIP-848), which decides one event at a time; others wait while its records are being stored.

    Args:
        group_id: its name.
        context: what it shares with the broker's other groups.
        predecessor: a classic group that it is about to replace.
    """

    def __init__(self, group_id: str, context: GroupContext, predecessor: ClassicGroup | None = None) -> None:
        super().__init__(group_id)
        self._context = context
        self._predecessor = predecessor
        self._is_new = True
        self._waiting: deque[Event] = deque()

    # Requests.

    def consumer_heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Handles a checked ConsumerGroupHeartbeat with a member id; `ticket`, its future, gets the response."""
        return self._in_turn(HeartbeatEvent(request, ticket), now_ms)

    def join(self, join: Join, now_ms: int) -> Effects:
        """Handles JoinGroup of a member that uses the classic protocol."""
        return self._in_turn(join, now_ms)

    def sync(self, sync: Sync, now_ms: int) -> Effects:
        """Handles a classic member's SyncGroup; returns its response, and the member's timers, as effects."""
        return respond_sync(self._situation(now_ms, None), sync)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Handles a classic member's Heartbeat; returns the error or NONE, and the member's timers."""
        return respond_heartbeat(self.state, self._context.config_of(self.group_id), member_id, instance_id, generation)

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Handles LeaveGroup of classic members; returns an error or NONE for each member that it names."""
        found = leavers(self.state, leaving)
        member_ids = tuple(one for one in found if not isinstance(one, ErrorCode))
        errors = [one if isinstance(one, ErrorCode) else ErrorCode.NONE for one in found]
        return errors, self._in_turn(Leave(member_ids), now_ms) if member_ids else []

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """Removes the member whose timer has run out, unless it has done meanwhile what the timer demands."""
        assert isinstance(timer, Timer)
        return self._in_turn(Expired(timer), now_ms)

    # The shard.

    def committed(self, committer: Committer, now_ms: int) -> Effects:  # noqa: ARG002  # only heartbeats count
        """Does nothing: only heartbeats keep a member's session."""
        return []

    def loaded(self, now_ms: int) -> Effects:  # noqa: ARG002
        """Starts the timers of all members."""
        self._is_new = False
        config = self._context.config_of(self.group_id)
        return [effect for member in self.state.members.values() for effect in timers_of(member, config)]

    def unloaded(self, error: ErrorCode) -> Effects:
        """Answers all events that wait with the error, and cancels the timers."""
        responses = [effect for event in self._waiting for effect in refuse(event, error)]
        self._waiting.clear()
        return responses + [effect for member_id in self.state.members for effect in cancelled_timers(member_id)]

    def stored(self, outcome: object, error: ErrorCode, now_ms: int) -> Effects:
        """Adopts the state whose records are replicated, or drops it on an error; then decides waiting events."""
        assert isinstance(outcome, Pending)
        self.is_storing = False
        effects = self._given_up(outcome.event, error, now_ms) if error else self._applied(outcome.outcome, now_ms)
        if effects and isinstance(effects[-1], Succession):
            return effects  # the events that wait are refused when this group is unloaded
        while self._waiting and not self.is_storing:
            effects += self._decided(self._waiting.popleft(), now_ms)
        return effects

    # The line.

    def _in_turn(self, event: Event, now_ms: int) -> Effects:
        if self.is_storing:
            self._waiting.append(event)
            return self._heard(event)
        return self._decided(event, now_ms)

    def _heard(self, event: Event) -> Effects:
        """Restarts the session of a member whose heartbeat has to wait: it is not silent."""
        member_id = event.request.member_id if isinstance(event, HeartbeatEvent) else ""
        member = self.state.members.get(member_id)
        return [] if member is None else [session_timer(member, self._context.config_of(self.group_id))]

    def _decided(self, event: Event, now_ms: int) -> Effects:
        outcome = decide(self._situation(now_ms, event), event)
        if isinstance(outcome, Unchanged):
            return list(outcome.effects)
        self.is_storing = True
        is_rebalance = isinstance(outcome, Changed) and outcome.state.epoch > self.state.epoch
        delayed = partial(self._delayed, event)
        return [StoreRecords(outcome.records, Pending(event, outcome), is_rebalance, delayed)]

    def _delayed(self, event: Event) -> Effects:
        """Refuses the request whose records are not replicated in time, and those that wait for it."""
        waiting = tuple(self._waiting)
        self._waiting = deque(one for one in waiting if isinstance(one, (Expired, Leave)))
        return [effect for one in (event, *waiting) for effect in refuse(one, ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    def _applied(self, outcome: Changed | Succeeded, now_ms: int) -> Effects:
        if isinstance(outcome, Succeeded):
            return [*outcome.effects, _succession(outcome, now_ms)]
        if outcome.state.epoch > self.state.epoch:
            logger.info("group %s is at epoch %d", self.group_id, outcome.state.epoch)
        predecessor, self._predecessor = self._predecessor, None
        self._is_new = False
        self.state = outcome.state
        responses = [] if predecessor is None else predecessor.unloaded(ErrorCode.REBALANCE_IN_PROGRESS)
        return [*responses, *outcome.effects]

    def _given_up(self, event: Event, error: ErrorCode, now_ms: int) -> Effects:
        effects = not_stored(self._situation(now_ms, event), event, error)
        if not self._is_new:
            return effects
        predecessor, self._predecessor = self._predecessor, None
        return [*effects, *self.unloaded(error), Succession(predecessor)]

    def _situation(self, now_ms: int, event: Event | None) -> Situation:
        may_describe = event.request.may_describe if isinstance(event, HeartbeatEvent) else None
        own = self._context
        context = DecisionContext(own.config_of(self.group_id), own.image(), now_ms, may_describe)
        return Situation(self.state, context, own.classic_config, self._predecessor)


def _succession(outcome: Succeeded, now_ms: int) -> Succession:
    successor = outcome.successor
    effects = successor.loaded(now_ms)
    if outcome.rebalances:
        effects += successor.rebalance(now_ms)
    if outcome.join is not None:
        effects += successor.join(outcome.join, now_ms)
    return Succession(successor, effects)


class ConsumerGroups:
    """Handles ConsumerGroupHeartbeat, makes and finds consumer groups, and replays their records.

    Args:
        config: the properties of the consumer group protocol.
        classic_config: the properties of classic groups, which consumer groups may become.
        image: returns the current metadata image.
    """

    def __init__(
        self, config: ConsumerGroupConfig, classic_config: GroupConfig, image: Callable[[], MetadataImage]
    ) -> None:
        self.config = config
        self._context = GroupContext(config, classic_config, image)

    @property
    def replayers(self) -> dict[int, Replay]:
        """The functions that take the records of `__consumer_offsets` when the log is read, by the version of a key."""
        return dict.fromkeys(Kind, self._replay)

    def heartbeat(self, coordinator: GroupCoordinator, request: Heartbeat, ticket: Ticket) -> None:
        """Handles ConsumerGroupHeartbeat; `ticket`, its future, gets a `HeartbeatResponse` or a `Refusal`."""
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
        """Returns the consumer group with this id; raises GroupIdNotFoundError where there is none."""
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
        return ConsumerGroup(request.group_id, self._context, predecessor=group)

    def _replay(self, shard: Shard, raw_key: bytes, raw_value: bytes | None) -> None:
        key = decode_key(raw_key)
        assert key is not None
        group = shard.groups.get(key.group_id)
        if raw_value is None:
            if isinstance(group, ConsumerGroup):
                self._replay_tombstone(shard, group, GroupRecord(key, None))
            return
        if not isinstance(group, ConsumerGroup):
            group = shard.groups[key.group_id] = ConsumerGroup(key.group_id, self._context)
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
