"""A consumer group in its shard: requests and timers in, effects out.

    request → a change of a copy → records stored → the copy is the group, timers are set, the answer leaves

Nothing is answered, and nobody else is told anything, before the records are with the in-sync replicas: so whatever
a member knows, a coordinator that reads the log again knows too. While records are on their way, other
decisions of the group wait for them in line.

Timers of each member: `session`; `rebalance`, while it has partitions to give back; and for those that use the classic
protocol `join`, from when they are told to join again, and `sync`, from then on until they ask for their assignment.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from millrace.errors import ErrorCode, GroupError, InvalidConfigError, MillraceError
from millrace_broker.cluster.view import ClusterView
from millrace_broker.group_config import CONSUMER, ConsumerGroupConfig, GroupConfig
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.events import UNKNOWN_MEMBER, Join, JoinResult, Leaving, Sync, SyncResult
from millrace_broker.groups.consumer import classic_members
from millrace_broker.groups.consumer.change import Change, Surroundings
from millrace_broker.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer, heartbeat, leave
from millrace_broker.groups.consumer.member import LEAVING_STATIC_EPOCH, Member, MemberState
from millrace_broker.groups.consumer.migration import check_upgrade, downgrade, may_downgrade, upgrade
from millrace_broker.groups.consumer.records import GroupRecord, Kind, encode_key, encode_value
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.effects import (
    Answer,
    CancelTimer,
    Effects,
    Retire,
    SetTimer,
    Store,
    Succession,
    Ticket,
)
from millrace_broker.groups.group import Committer
from millrace_broker.groups.records import CommittedOffset, Record

FIRST_COMMIT_VERSION_WITH_EPOCH = 9
SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
TIMERS = (SESSION, REBALANCE, JOIN, SYNC)

Decision = Callable[[int], Effects]

logger = logging.getLogger(__name__)

KEPT_CONFIGURATIONS = 1000


class Refusal(NamedTuple):
    """A heartbeat that is answered with an error."""

    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Home:
    """What every consumer group of a broker is given."""

    config: ConsumerGroupConfig
    classic_config: GroupConfig
    view: Callable[[], ClusterView]

    def config_of(self, group_id: str) -> ConsumerGroupConfig:
        """What the group obeys: its own times, else the broker's."""
        own = self.view().group_configs.get(group_id)
        return _with_own(self.config, tuple(own.items())) if own else self.config


@lru_cache(maxsize=KEPT_CONFIGURATIONS)
def _with_own(config: ConsumerGroupConfig, own: tuple[tuple[str, str], ...]) -> ConsumerGroupConfig:
    try:
        return config.of_group(dict(own))
    except InvalidConfigError as error:  # another tool wrote it into ZooKeeper
        logger.warning("a group's own configuration is passed over: %s", error)
        return config


class _Outcome(NamedTuple):
    """What records on their way are for: the group as it will be, and what follows, or follows where they fail."""

    state: GroupState
    then: Decision
    refuse: Callable[[ErrorCode], Effects]


class ConsumerGroup:
    """One consumer group.

    Args:
        group_id: its name.
        home: what is around it.
        predecessor: a classic group whose place it is about to take.
    """

    type = CONSUMER
    protocol_type = CONSUMER

    def __init__(self, group_id: str, home: Home, predecessor: ClassicGroup | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState(group_id)
        self.is_storing = False
        self._home = home
        self._predecessor = predecessor
        self._is_new = True
        self._waiting: deque[tuple[Decision, Callable[[ErrorCode], Effects]]] = deque()
        self._told_to_join: set[str] = set()

    # What every group answers to.

    @property
    def state_name(self) -> str:
        """As ListGroups shows it."""
        return self.state.state_name

    @property
    def member_count(self) -> int:
        """How many members it has."""
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none on the way."""
        return not self.state.members and not self.is_storing

    def check_commit(self, committer: Committer) -> ErrorCode:
        """An empty group is anybody's; a member must be at its epoch, and know that there are epochs."""
        if committer.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        member = self.state.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.metadata.classic is not None
        knows_epochs = committer.is_transactional or committer.version >= FIRST_COMMIT_VERSION_WITH_EPOCH
        if not is_classic and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if committer.generation == member.current.epoch:
            return ErrorCode.NONE
        has_generations = is_classic or committer.is_transactional
        return ErrorCode.ILLEGAL_GENERATION if has_generations else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Anybody may who gives no member id; a member must be at its epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.metadata.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_delete(self) -> ErrorCode:
        """Only an empty group."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> ErrorCode:
        """Always, but for topics that are subscribed."""
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes a topic, by name or by pattern."""
        return topic in self.state.topic_names()

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """From the commit on."""
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[Record]:
        """The records that remove it."""
        return [_record(record) for record in self.state.tombstones()]

    def committed(self, committer: Committer, now_ms: int) -> Effects:  # noqa: ARG002
        """Only heartbeats are signs of life."""
        return []

    def loaded(self, now_ms: int) -> Effects:  # noqa: ARG002
        """Sessions begin anew."""
        self._is_new = False
        return [effect for member in self.state.members.values() for effect in self._timers_of(member)]

    def unloaded(self, error: ErrorCode) -> Effects:
        """Answer everyone who waits in line, and let the timers go."""
        answers = [effect for _, refuse in self._waiting for effect in refuse(error)]
        self._waiting.clear()
        return answers + [effect for member_id in self.state.members for effect in self._no_timers(member_id)]

    # Requests.

    def consumer_heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """ConsumerGroupHeartbeat; the request has been checked and has a member id."""

        def refuse(error: ErrorCode) -> Effects:
            is_known = error is not ErrorCode.REBALANCE_IN_PROGRESS  # a word of the classic protocol: ask again
            return [Answer(ticket, Refusal(error if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE))]

        def decide(at_ms: int) -> Effects:
            try:
                return self._beat(request, ticket, refuse, at_ms)
            except MillraceError as error:
                return [Answer(ticket, Refusal(_code(error), str(error)))]

        return self._in_turn(decide, refuse, now_ms)

    def join(self, join: Join, now_ms: int) -> Effects:
        """JoinGroup of a member that uses the classic protocol."""

        def refuse(error: ErrorCode) -> Effects:
            return [Answer(join.ticket, JoinResult(error, join.member_id))]

        def decide(at_ms: int) -> Effects:
            try:
                return self._become_classic(join, refuse) if self.is_empty else self._join(join, refuse, at_ms)
            except MillraceError as error:
                return refuse(_code(error))

        return self._in_turn(decide, refuse, now_ms)

    def sync(self, join: Sync, now_ms: int) -> Effects:  # noqa: ARG002  # every event has the same form
        """SyncGroup of a member that uses the classic protocol."""
        try:
            result = classic_members.sync(self.state, join, self._home.view())
        except GroupError as error:
            return [Answer(join.ticket, SyncResult(error.code))]
        member = self.state.members[join.member_id]
        if result.error:
            return [*self._tell_to_join(member), Answer(join.ticket, result)]
        return [CancelTimer((SYNC, join.member_id)), self._session(member), Answer(join.ticket, result)]

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Heartbeat of a member that uses the classic protocol."""
        try:
            member = classic_members.check_heartbeat(self.state, member_id, instance_id, generation)
        except GroupError as error:
            return error.code, []
        if classic_members.must_rejoin(self.state, member):
            return ErrorCode.REBALANCE_IN_PROGRESS, [self._session(member), *self._tell_to_join(member)]
        return ErrorCode.NONE, [self._session(member)]

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """LeaveGroup: an error for each of the members that it names."""
        found = classic_members.leavers(self.state, leaving)
        gone = [one for one in found if not isinstance(one, ErrorCode)]
        errors = [one if isinstance(one, ErrorCode) else ErrorCode.NONE for one in found]

        def decide(at_ms: int) -> Effects:
            change = self._begin(at_ms)
            there = [member_id for member_id in gone if member_id in change.state.members]
            if there:
                change.remove(*there)
            return self._store(change, lambda _: [], lambda _: [])

        return errors, self._in_turn(decide, lambda _: [], now_ms) if gone else []

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """One of the timers has run out: its member is put out."""
        assert isinstance(timer, tuple)
        kind, member_id = timer
        if kind == JOIN:
            self._told_to_join.discard(member_id)

        def decide(at_ms: int) -> Effects:
            member = self.state.members.get(member_id)
            is_late = kind != REBALANCE or (
                member is not None and member.current.state is MemberState.UNREVOKED_PARTITIONS
            )
            if member is None or not is_late:
                return []
            return self._put_out(member_id, lambda _: [], lambda _: self._timers_of(member), at_ms)

        return self._in_turn(decide, lambda _: [], now_ms)

    def stored(self, outcome: Any, error: ErrorCode, now_ms: int) -> Effects:
        """Records are stored, or are not; then it is the next decision's turn."""
        assert isinstance(outcome, _Outcome)
        self.is_storing = False
        effects: Effects
        if error:
            effects = outcome.refuse(error)
            if self._is_new:
                predecessor, self._predecessor = self._predecessor, None
                return [*effects, *self.unloaded(error), Succession(predecessor)]
        else:
            self.state = outcome.state
            effects = outcome.then(now_ms)
        if effects and isinstance(effects[-1], Succession):
            return effects  # whoever waits in line is refused when this group is unloaded
        while self._waiting and not self.is_storing:
            decide, _ = self._waiting.popleft()
            effects += decide(now_ms)
        return effects

    # Decisions.

    def _in_turn(self, decide: Decision, refuse: Callable[[ErrorCode], Effects], now_ms: int) -> Effects:
        if self.is_storing:
            self._waiting.append((decide, refuse))
            return []
        return decide(now_ms)

    def _beat(self, request: Heartbeat, ticket: Ticket, refuse: Callable[[ErrorCode], Effects], now_ms: int) -> Effects:
        if request.leaves and request.member_epoch != LEAVING_STATIC_EPOCH:
            leave(self._begin(now_ms), request)  # refuses where the member is none
            answer = HeartbeatAnswer(request.member_id, request.member_epoch)
            return self._put_out(request.member_id, lambda _: [Answer(ticket, answer)], refuse, now_ms)
        change = self._begin(now_ms)
        if request.leaves:
            answer = leave(change, request)
            return self._store(change, lambda _: [Answer(ticket, answer)], refuse)
        answer = heartbeat(change, request, request.member_id)
        return self._store(
            change,
            lambda _: [self._session(self.state.members[request.member_id]), Answer(ticket, answer)],
            refuse,
        )

    def _join(self, request: Join, refuse: Callable[[ErrorCode], Effects], now_ms: int) -> Effects:
        is_unknown = request.member_id == UNKNOWN_MEMBER
        member_id = request.fresh_member_id if is_unknown else request.member_id
        change = self._begin(now_ms)
        result = classic_members.join(change, request, member_id)
        if is_unknown and request.instance_id is None and request.requires_known_member_id:
            return [Answer(request.ticket, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))]
        members = tuple(change.state.members.values())
        if may_downgrade(self.state, members, self._home.config, self._home.classic_config.group_max_size):
            answer = Answer(request.ticket, result)
            joined = change.state.members[member_id].current.epoch == change.state.epoch
            return self._downgrade(change.state, members, lambda _: [answer], refuse, now_ms, rebalances=not joined)

        def then(_: int) -> Effects:
            self._told_to_join.discard(member_id)
            return [
                CancelTimer((JOIN, member_id)),
                SetTimer((SYNC, member_id), request.rebalance_timeout_ms),
                self._session(self.state.members[member_id]),
                Answer(request.ticket, result),
            ]

        return self._store(change, then, refuse)

    def _become_classic(self, request: Join, refuse: Callable[[ErrorCode], Effects]) -> Effects:
        """Nobody is here: a classic group with the same offsets takes the place."""
        if request.member_id != UNKNOWN_MEMBER:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID)

        def then(now_ms: int) -> Effects:
            classic = ClassicGroup(self.group_id, self._home.classic_config, now_ms)
            return [Succession(classic, classic.join(request, now_ms))]

        return self._append(self.tombstones(), _Outcome(GroupState(self.group_id), then, refuse))

    def _put_out(self, member_id: str, then: Decision, refuse: Callable[[ErrorCode], Effects], now_ms: int) -> Effects:
        """Without the member; what is left may be a classic group."""
        others = tuple(member for member in self.state.members.values() if member.member_id != member_id)
        if may_downgrade(self.state, others, self._home.config, self._home.classic_config.group_max_size):
            return self._downgrade(self.state, others, then, refuse, now_ms, rebalances=True)
        change = self._begin(now_ms)
        change.remove(member_id)
        return self._store(change, then, refuse)

    def _downgrade(
        self,
        state: GroupState,
        members: Sequence[Member],
        then: Decision,
        refuse: Callable[[ErrorCode], Effects],
        now_ms: int,
        *,
        rebalances: bool,
    ) -> Effects:
        classic = downgrade(state, members, self._home.view(), self._home.classic_config, now_ms)

        def succeeded(at_ms: int) -> Effects:
            effects = classic.loaded(at_ms) + (classic.rebalance(at_ms) if rebalances else [])
            return [*then(at_ms), Succession(classic, effects)]

        return self._append([*self.tombstones(), classic.record()], _Outcome(self.state, succeeded, refuse))

    def _begin(self, now_ms: int) -> Change:
        change = Change(self.state, Surroundings(self._home.config_of(self.group_id), self._home.view(), now_ms))
        if self._predecessor is not None and not self._predecessor.is_empty:
            check_upgrade(self._predecessor, self._home.config)
            upgrade(change, self._predecessor)
        return change

    def _store(self, change: Change, then: Decision, refuse: Callable[[ErrorCode], Effects]) -> Effects:
        if not change.records:
            self.state = change.state
            return then(change.surroundings.now_ms)
        records = [_record(record) for record in change.records]
        before, predecessor = self.state, self._predecessor

        def stored(now_ms: int) -> Effects:
            effects: Effects = []
            self._is_new, self._predecessor = False, None
            if predecessor is not None:
                effects.append(Retire(predecessor))
                effects += [self._session(member) for member in self.state.members.values()]
            gone = [member_id for member_id in before.members if member_id not in self.state.members]
            effects += [effect for member_id in gone for effect in self._no_timers(member_id)]
            return effects + self._rebalance_timers(change.records) + then(now_ms)

        if predecessor is not None:
            records = predecessor.tombstones() + records
        return self._append(records, _Outcome(change.state, stored, refuse))

    def _append(self, records: Sequence[Record], outcome: _Outcome) -> Effects:
        self.is_storing = True
        return [Store(tuple(records), outcome, is_rebalance=outcome.state.epoch > self.state.epoch)]

    # Timers.

    def _session(self, member: Member) -> SetTimer:
        classic = member.metadata.classic
        timeout_ms = (
            self._home.config_of(self.group_id).group_consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        return SetTimer((SESSION, member.member_id), timeout_ms)

    def _timers_of(self, member: Member) -> Effects:
        return [self._session(member), *self._rebalance_timer(member)]

    def _rebalance_timers(self, records: Sequence[GroupRecord]) -> Effects:
        changed = {record.key.name for record in records if record.key.kind is Kind.CURRENT}
        members = [self.state.members[member_id] for member_id in changed if member_id in self.state.members]
        return [effect for member in members for effect in self._rebalance_timer(member)]

    def _rebalance_timer(self, member: Member) -> Effects:
        if member.metadata.classic is not None:
            return []  # these have `join` and `sync` instead
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            return [SetTimer((REBALANCE, member.member_id), member.metadata.rebalance_timeout_ms)]
        return [CancelTimer((REBALANCE, member.member_id))]

    def _tell_to_join(self, member: Member) -> Effects:
        """How long it may take begins when it is told first."""
        if member.member_id in self._told_to_join:
            return []
        self._told_to_join.add(member.member_id)
        return [SetTimer((JOIN, member.member_id), member.metadata.rebalance_timeout_ms)]

    def _no_timers(self, member_id: str) -> Effects:
        self._told_to_join.discard(member_id)
        return [CancelTimer((kind, member_id)) for kind in TIMERS]


def _record(record: GroupRecord) -> Record:
    key, value = record
    return Record(encode_key(key), None if value is None else encode_value(key.kind, value))


def _code(error: MillraceError) -> ErrorCode:
    return error.code if isinstance(error, GroupError) else ErrorCode.UNKNOWN_SERVER_ERROR
