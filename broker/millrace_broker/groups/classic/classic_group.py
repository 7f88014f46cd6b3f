"""A classic group: an event comes in, what follows in the group's state is in `state.STEPS`, effects go out.

Timers: `session` of each member, `join` for the whole rebalance, `sync` for the members that have been told of a
generation and have not asked for their assignment yet. In PreparingRebalance, members that wait need no heartbeats.

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members, and as long again where
some have come, but no longer than the rebalance timeout. A static member that does not come back in time stays until
its session ends. The behaviour is that of Kafka's ClassicGroup, with one difference: where a member sends a request
again, the first one is answered REBALANCE_IN_PROGRESS instead of never.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.groups.classic.facts import GroupFacts, Member
from millrace_broker.groups.classic.state import COMMITS_KEEP_SESSIONS, HEARTBEAT_ERRORS, STEPS, Event, State, Step
from millrace_broker.groups.group import (
    UNKNOWN_MEMBER,
    CancelTimer,
    Committer,
    Effects,
    Join,
    JoinedMember,
    JoinProtocol,
    JoinResult,
    Leaving,
    Respond,
    SetTimer,
    StoreRecords,
    Sync,
    SyncResult,
)
from millrace_broker.properties.coordinator_config import GroupConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
JOIN_TIMER = ("join",)
SYNC_TIMER = ("sync",)


class Assigned(NamedTuple):
    """Says that the records to store have the assignments that a generation's leader has made, by member id."""

    generation: int
    assignments: dict[str, bytes]


class EmptyGeneration(NamedTuple):
    """Says that the records to store begin a generation without members."""


class Replaced(NamedTuple):
    """Says that the records to store bring back a static member without a rebalance; the old values undo it."""

    member_id: str
    old_member_id: str
    old_leader: str | None
    old_timeouts_ms: tuple[int, int]
    old_protocols: tuple[JoinProtocol, ...]
    supports_skipping_assignment: bool


def session_timer(member_id: str) -> tuple[str, str]:
    """Returns the key of the timer that ends a member's session."""
    return ("session", member_id)


class ClassicGroup(GroupFacts):
    """One classic group, whose methods return what its shard has to do (`Effects`). `now_ms` is wall clock time."""

    def __init__(self, group_id: str, config: GroupConfig, now_ms: int) -> None:
        super().__init__(group_id, config, now_ms)
        self._new_member_added = False
        self._initial_delay_ms: tuple[int, int] | None = None  # of the timer that is set, and what may follow it

    def committed(self, committer: Committer, now_ms: int) -> Effects:  # noqa: ARG002
        """Restarts the session timer of a member that has committed offsets, as that shows that it lives."""
        member = self.members.get(committer.member_id)
        if member is None or self.state not in COMMITS_KEEP_SESSIONS:
            return []
        return [_session(member)]

    def loaded(self, now_ms: int) -> Effects:
        """Starts all session timers; a group with more members than are allowed by now rebalances."""
        if len(self.members) > self.config.group_max_size:
            return [*map(_session, self.members), *self._prepare_rebalance(now_ms)]
        return [_session(member) for member in self.members]

    def unloaded(self, error: ErrorCode) -> Effects:
        """Answers all waiting requests with the error, and cancels the timers; the group is dead then."""
        effects = [effect for member in self.members for effect in self._respond_waiting(member, error)]
        effects += [CancelTimer(session_timer(member_id)) for member_id in self.members.pending_join]
        effects += [CancelTimer(session_timer(member.member_id)) for member in self.members]
        self.state = State.DEAD
        return [*effects, CancelTimer(JOIN_TIMER), CancelTimer(SYNC_TIMER)]

    # Joining.

    def join(self, join: Join, now_ms: int) -> Effects:
        """Handles JoinGroup; the request waits until the rebalance is complete, unless it is refused."""
        if not self._accepts(join.member_id):
            effects = self._remove(join.member_id)
            effects.append(_refused(join, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER))
            is_waited_for = self.state is State.PREPARING_REBALANCE
            return effects + (self._complete_if_all_joined(now_ms) if is_waited_for else [])
        refusal = STEPS[self.state, Event.JOIN]
        if isinstance(refusal, ErrorCode):
            return [_refused(join, refusal)]
        if not self._supports(join):
            return [_refused(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        if join.member_id == UNKNOWN_MEMBER:
            return self._join_new(join, now_ms)
        return self._join_known(join, now_ms)

    def _accepts(self, member_id: str) -> bool:
        """Returns whether `group.max.size` leaves room for a member.

        During a rebalance, the members that wait count: where the limit was lowered, the last to rejoin are refused.
        """
        if self.state in (State.EMPTY, State.DEAD):
            return True
        member, limit = self.members.get(member_id), self.config.group_max_size
        if self.state is State.PREPARING_REBALANCE:
            return (member is not None and member.is_joining) or self.members.joining < limit
        return member is not None or len(self.members) < limit

    def _supports(self, join: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(join.protocol_type and join.protocols)
        return self.protocol_type == join.protocol_type and self.members.support(join.protocols)

    def _join_new(self, join: Join, now_ms: int) -> Effects:
        held_by = self.members.static_member_id(join.instance_id)
        if held_by is not None:
            return self._replace_static(join, held_by, now_ms)
        if join.instance_id is None and join.requires_known_member_id:
            self.members.pending_join.add(join.fresh_member_id)
            timer = SetTimer(session_timer(join.fresh_member_id), join.session_timeout_ms)
            return [timer, _refused(join, ErrorCode.MEMBER_ID_REQUIRED, join.fresh_member_id)]
        return self._add(join, join.fresh_member_id, now_ms)

    def _join_known(self, join: Join, now_ms: int) -> Effects:
        if join.member_id in self.members.pending_join:
            if join.instance_id is not None:  # only dynamic members are ever pending
                return [_refused(join, ErrorCode.UNKNOWN_MEMBER_ID)]
            return self._add(join, join.member_id, now_ms)
        error = self.members.check(join.member_id, join.instance_id)
        if error:
            return [_refused(join, error)]
        member = self.members[join.member_id]
        as_before = Event.REPEAT_BY_LEADER if self.members.leader == join.member_id else Event.REPEAT
        event = as_before if member.protocols == join.protocols else Event.REJOIN
        if STEPS[self.state, event] is Step.GENERATION:
            return [Respond(join.ticket, self._joined(member))]
        superseded = self._wait_with(member, join)
        return superseded + self._follow(event, now_ms)

    def _follow(self, event: Event, now_ms: int) -> Effects:
        """Rebalances, completes a rebalance, or does nothing, as the table `STEPS` says of an event in this state."""
        match STEPS[self.state, event]:
            case Step.REBALANCE:
                return self._prepare_rebalance(now_ms)
            case Step.WAIT:
                return self._complete_if_all_joined(now_ms)
            case Step.COMPLETE if self.members.all_joined:
                return self._complete_join(now_ms)
            case Step.END_JOIN if self._initial_delay_ms is not None:
                return self._initial_delay_expired(*self._initial_delay_ms, now_ms)
            case Step.END_JOIN:
                return self._complete_join(now_ms)
            case _:
                return []

    def _add(self, join: Join, member_id: str, now_ms: int) -> Effects:
        member = Member.of(join, member_id)
        member.join_ticket = join.ticket
        if self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY:
            self._new_member_added = True
        if not len(self.members):
            self.protocol_type = join.protocol_type
        self.members.add(member)
        # It can't send heartbeats before it has its response, and may be gone meanwhile.
        timer = SetTimer(session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
        return [timer, *self._follow(Event.JOIN, now_ms)]

    def _replace_static(self, join: Join, old_member_id: str, now_ms: int) -> Effects:
        """Gives a restarted static member its place under a new id (KIP-345); a stable group does not rebalance."""
        member = self.members[old_member_id]
        effects = self._respond_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        outcome = Replaced(
            member_id=join.fresh_member_id,
            old_member_id=old_member_id,
            old_leader=self.members.leader,
            old_timeouts_ms=(member.rebalance_timeout_ms, member.session_timeout_ms),
            old_protocols=member.protocols,
            supports_skipping_assignment=join.supports_skipping_assignment,
        )
        self.members.rename(old_member_id, join.fresh_member_id)
        self._wait_with(member, join)
        member.is_new = False
        effects += [CancelTimer(session_timer(old_member_id)), _session(member)]
        event = Event.RETURN if self.members.select_protocol() == self.protocol_name else Event.REJOIN
        if STEPS[self.state, event] is Step.REPLACE:
            return [*effects, StoreRecords((self.record(),), outcome)]
        return effects + self._follow(event, now_ms)

    def _replaced(self, outcome: Replaced, error: ErrorCode) -> Effects:
        member = self.members.get(outcome.member_id)
        if member is None or member.join_ticket is None:
            return []
        ticket = member.join_ticket
        if error:
            member.join_ticket = None
            member.protocols = outcome.old_protocols
            member.rebalance_timeout_ms, member.session_timeout_ms = outcome.old_timeouts_ms
            self.members.rename(outcome.member_id, outcome.old_member_id)
            refused = self._joined(member)._replace(error=error, member_id=UNKNOWN_MEMBER, members=())
            return [CancelTimer(session_timer(outcome.member_id)), _session(member), Respond(ticket, refused)]
        if self.state is not State.STABLE:
            return []  # a rebalance has begun meanwhile, and will answer
        member.join_ticket = None
        return [Respond(ticket, self._rejoined(member, outcome))]

    def _rejoined(self, member: Member, outcome: Replaced) -> JoinResult:
        """Returns the response to a static member that came back, which may be the leader (KIP-814).

        A leader learns that it leads, and that there is nothing to assign. An older client would assign again, so it is
        told that another member leads: itself under its old id.
        """
        result = self._joined(member)
        if outcome.supports_skipping_assignment:
            return result._replace(skip_assignment=self.members.leader == member.member_id)
        return result._replace(leader=outcome.old_leader or "", members=())

    def _wait_with(self, member: Member, join: Join) -> Effects:
        earlier = member.join_ticket
        member.take(join)
        member.join_ticket = join.ticket
        if earlier is None:
            return []
        return [Respond(earlier, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))]

    def _joined(self, member: Member) -> JoinResult:
        leads = self.members.leader == member.member_id
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            members=self._joined_members() if leads else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members
        )

    # Rebalancing.

    def rebalance(self, now_ms: int) -> Effects:
        """Begins a rebalance that no member has asked for."""
        return self._follow(Event.REJOIN, now_ms)

    def _prepare_rebalance(self, now_ms: int) -> Effects:
        effects = self._reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        self.members.pending_sync.clear()
        effects.append(CancelTimer(SYNC_TIMER))
        is_initial = self.state is State.EMPTY
        self.move(State.PREPARING_REBALANCE, now_ms)
        if is_initial:
            return effects + self._await_more(self.config.group_initial_rebalance_delay_ms)
        if self.members.all_joined:
            return effects + self._complete_join(now_ms)
        return [*effects, SetTimer(JOIN_TIMER, self.members.rebalance_timeout_ms)]

    def _await_more(self, delay_ms: int) -> Effects:
        self._new_member_added = False
        self._initial_delay_ms = (delay_ms, max(self.members.rebalance_timeout_ms - delay_ms, 0))
        return [SetTimer(JOIN_TIMER, delay_ms)]

    def _initial_delay_expired(self, delay_ms: int, remaining_ms: int, now_ms: int) -> Effects:
        if not self._new_member_added or not remaining_ms:
            return self._complete_join(now_ms)
        self._new_member_added = False
        next_delay_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
        self._initial_delay_ms = (next_delay_ms, max(remaining_ms - delay_ms, 0))
        return [SetTimer(JOIN_TIMER, next_delay_ms)]

    def _complete_if_all_joined(self, now_ms: int) -> Effects:
        is_initial = self.previous_state is State.EMPTY
        return [] if is_initial or not self.members.all_joined else self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> Effects:
        effects: Effects = [CancelTimer(JOIN_TIMER)]
        self._initial_delay_ms = None
        for member in self.members:
            if not member.is_joining and member.instance_id is None:
                self.members.remove(member.member_id)
                effects.append(CancelTimer(session_timer(member.member_id)))
        if not self.members.elect_joined_leader() and len(self.members):
            return [*effects, SetTimer(JOIN_TIMER, self.members.rebalance_timeout_ms)]
        return effects + self._next_generation(now_ms)

    def _next_generation(self, now_ms: int) -> Effects:
        self.generation += 1
        self.members.pending_sync.clear()
        self.protocol_name = self.members.select_protocol() if len(self.members) else None
        self.update_subscribed_topics()
        if not len(self.members):
            self.move(State.EMPTY, now_ms)
            return [StoreRecords((self.record(),), EmptyGeneration(), is_rebalance=True)]
        self.move(State.COMPLETING_REBALANCE, now_ms)
        effects: Effects = []
        for member in self.members.leader_first:
            if member.join_ticket is not None:
                effects.append(Respond(member.join_ticket, self._joined(member)))
            member.join_ticket = None
            member.is_new = False
            self.members.pending_sync.add(member.member_id)
            effects.append(_session(member))
        return [*effects, SetTimer(SYNC_TIMER, self.members.rebalance_timeout_ms)]

    # Syncing.

    def sync(self, sync: Sync, now_ms: int) -> Effects:  # noqa: ARG002  # every event has the same form
        """Handles SyncGroup; unless refused, it is answered once the leader's assignments are stored."""
        error = self._check_sync(sync)
        if error:
            return [Respond(sync.ticket, SyncResult(error))]
        self.members.pending_sync.discard(sync.member_id)
        effects: Effects = [] if self.members.pending_sync else [CancelTimer(SYNC_TIMER)]
        member = self.members[sync.member_id]
        if STEPS[self.state, Event.SYNC] is Step.ASSIGNMENT:
            return [*effects, Respond(sync.ticket, self._synced(member))]
        if member.sync_ticket is not None:
            effects.append(Respond(member.sync_ticket, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_ticket = sync.ticket
        if self.members.leader != sync.member_id:
            return effects
        assignments = {member.member_id: sync.assignments.get(member.member_id, b"") for member in self.members}
        return [
            *effects,
            StoreRecords((self.record(assignments),), Assigned(self.generation, assignments), is_rebalance=True),
        ]

    def _check_sync(self, sync: Sync) -> ErrorCode:
        follows = STEPS[self.state, Event.SYNC]
        if self.state is State.DEAD:
            assert isinstance(follows, ErrorCode)
            return follows
        error = self.members.check(sync.member_id, sync.instance_id)
        if error:
            return error
        if sync.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return follows if isinstance(follows, ErrorCode) else ErrorCode.NONE

    def _assigned(self, outcome: Assigned, error: ErrorCode, now_ms: int) -> Effects:
        if self.state is not State.COMPLETING_REBALANCE or outcome.generation != self.generation:
            return []  # another rebalance has begun meanwhile
        if error:
            return self._reset_assignments(error) + self._prepare_rebalance(now_ms)
        for member in self.members:
            member.assignment = outcome.assignments.get(member.member_id, b"")
        self.move(State.STABLE, now_ms)
        answered = self.members.leader_first
        return [effect for member in answered for effect in self._respond_sync(member, self._synced(member))]

    def _reset_assignments(self, error: ErrorCode) -> Effects:
        if self.state is not State.COMPLETING_REBALANCE:
            return []
        effects: Effects = []
        for member in self.members:
            member.assignment = b""
            effects += self._respond_sync(member, SyncResult(error))
        return effects

    def _respond_sync(self, member: Member, result: SyncResult) -> Effects:
        """Answers a waiting SyncGroup, and restarts the session timer, as the member could send no heartbeats."""
        ticket, member.sync_ticket = member.sync_ticket, None
        return [] if ticket is None else [Respond(ticket, result), _session(member)]

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # Heartbeats, leaving, expiry.

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Handles Heartbeat; returns the error or NONE, and restarts the session timer."""
        told = HEARTBEAT_ERRORS[self.state]
        if self.state is State.DEAD:
            return told, []
        error = self.members.check(member_id, instance_id)
        if error:
            return error, []
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION, []
        return told, [_session(self.members[member_id])]

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Handles LeaveGroup; returns an error or NONE for each member that it names."""
        refusal = STEPS[self.state, Event.LEAVE]
        if isinstance(refusal, ErrorCode):
            return [refusal] * len(leaving), []
        errors: list[ErrorCode] = []
        effects: Effects = []
        for one in leaving:
            member_id, error = self._leaver(one)
            errors.append(error)
            if not error:
                effects += self._remove(member_id)
        if ErrorCode.NONE in errors:
            effects += self._follow(Event.LEAVE, now_ms)
        return errors, effects

    def _leaver(self, leaving: Leaving) -> tuple[str, ErrorCode]:
        if leaving.member_id == UNKNOWN_MEMBER:
            member_id = self.members.static_member_id(leaving.instance_id)
            return member_id or "", ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
        if leaving.member_id in self.members.pending_join:
            return leaving.member_id, ErrorCode.NONE
        return leaving.member_id, self.members.check(leaving.member_id, leaving.instance_id)

    def _remove(self, member_id: str) -> Effects:
        effects: Effects = [CancelTimer(session_timer(member_id))]
        member = self.members.get(member_id)
        if member is not None:
            effects += self._respond_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER)
        self.members.remove(member_id)
        return effects

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """Removes members whose session or sync timer has run out, or completes the rebalance if the join timer has."""
        if self.state is State.DEAD:
            return []
        if timer == SYNC_TIMER:
            return self._sync_expired(now_ms)
        if timer == JOIN_TIMER:
            return self._follow(Event.JOIN_TIMEOUT, now_ms)
        kind, member_id = timer if isinstance(timer, tuple) else ("", "")
        return self._session_expired(member_id, now_ms) if kind == "session" else []

    def _sync_expired(self, now_ms: int) -> Effects:
        if STEPS[self.state, Event.SYNC_TIMEOUT] is Step.NOTHING or not self.members.pending_sync:
            return []
        effects = [effect for member_id in tuple(self.members.pending_sync) for effect in self._remove(member_id)]
        return effects + self._follow(Event.SYNC_TIMEOUT, now_ms)

    def _session_expired(self, member_id: str, now_ms: int) -> Effects:
        member = self.members.get(member_id)
        if (member is None and member_id not in self.members.pending_join) or (
            member is not None and member.needs_no_heartbeat
        ):
            return []
        effects = self._remove(member_id)
        return effects + self._follow(Event.PENDING_EXPIRY if member is None else Event.EXPIRY, now_ms)

    def stored(self, outcome: object, error: ErrorCode, now_ms: int) -> Effects:
        """Returns what to do after records were stored, or not (`error`); nothing after an `EmptyGeneration`."""
        if isinstance(outcome, Assigned):
            return self._assigned(outcome, error, now_ms)
        return self._replaced(outcome, error) if isinstance(outcome, Replaced) else []

    def _respond_waiting(self, member: Member, error: ErrorCode, member_id: str | None = None) -> Effects:
        """Answers the waiting JoinGroup and SyncGroup of a member that leaves or is replaced with the error."""
        effects: Effects = []
        if member.join_ticket is not None:
            named = member.member_id if member_id is None else member_id
            effects.append(Respond(member.join_ticket, JoinResult(error, named)))
        if member.sync_ticket is not None:
            effects.append(Respond(member.sync_ticket, SyncResult(error)))
        member.join_ticket = member.sync_ticket = None
        return effects


def _refused(join: Join, error: ErrorCode, member_id: str | None = None) -> Respond:
    return Respond(join.ticket, JoinResult(error, join.member_id if member_id is None else member_id))


def _session(member: Member) -> SetTimer:
    return SetTimer(session_timer(member.member_id), member.session_timeout_ms)
