"""The table of classic groups: in each state each event does what its cell says."""

import pytest

from millrace.errors import ErrorCode
from millrace_broker.groups.classic.classic_group import JOIN_TIMER, SYNC_TIMER, ClassicGroup, session_timer
from millrace_broker.groups.classic.state import STEPS, Event, State, Step
from millrace_broker.groups.group import (
    CancelTimer,
    Committer,
    Join,
    JoinProtocol,
    Leaving,
    Respond,
    SetTimer,
    StoreRecords,
    Sync,
)
from millrace_broker.properties.coordinator_config import GroupConfig

NOW_MS = 1_700_000_000_000
LEADER, FOLLOWER, STATIC, PENDING = "leader", "follower", "static", "pending"


def join(member_id="", fresh="new", instance_id=None, topics=b"t", *, needs_id=False):
    return Join(
        ticket=("join", member_id or fresh),
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="test",
        protocols=(JoinProtocol("range", topics),),
        fresh_member_id=fresh,
        requires_known_member_id=needs_id,
        supports_skipping_assignment=True,
    )


def group_in(state):
    group = ClassicGroup("g", GroupConfig(), NOW_MS)
    if state is not State.EMPTY:
        for name, instance_id in ((LEADER, None), (FOLLOWER, None), (STATIC, "i")):
            group.join(join(fresh=name, instance_id=instance_id), NOW_MS)
    if state not in (State.EMPTY, State.PREPARING_REBALANCE):
        group.timer_expired(JOIN_TIMER, NOW_MS)  # some have come meanwhile
        group.timer_expired(JOIN_TIMER, NOW_MS)
    if state in (State.STABLE, State.DEAD):
        *_, store = sync(group, LEADER)
        group.stored(store.outcome, ErrorCode.NONE, NOW_MS)
    if state is State.DEAD:
        group.unloaded(ErrorCode.NOT_COORDINATOR)
    assert group.state is state
    return group


def sync(group, member_id):
    request = Sync(("sync", member_id), member_id, None, group.generation, None, None, {})
    return group.sync(request, NOW_MS)


def heartbeat(group):
    error, effects = group.heartbeat(FOLLOWER, None, group.generation)
    return [error, *effects]


def leave(group):
    errors, effects = group.leave([Leaving(FOLLOWER)], NOW_MS)
    return [*errors, *effects]


def expire(group):
    for member in group.members:
        member.join_ticket = member.sync_ticket = None  # who waits does not expire
    return group.timer_expired(session_timer(FOLLOWER), NOW_MS)


def end_sync(group):
    group.members.pending_sync &= {FOLLOWER}  # the others have asked for their assignments
    return group.timer_expired(SYNC_TIMER, NOW_MS)


HAPPENS = {
    Event.JOIN: lambda group: group.join(join(), NOW_MS),
    Event.REJOIN: lambda group: group.join(join(FOLLOWER, topics=b"other"), NOW_MS),
    Event.REPEAT: lambda group: group.join(join(FOLLOWER), NOW_MS),
    Event.REPEAT_BY_LEADER: lambda group: group.join(join(LEADER), NOW_MS),
    Event.RETURN: lambda group: group.join(join(fresh="again", instance_id="i"), NOW_MS),
    Event.SYNC: lambda group: sync(group, FOLLOWER),
    Event.HEARTBEAT: heartbeat,
    Event.COMMIT: lambda group: group.committed(Committer(FOLLOWER, None, group.generation), NOW_MS),
    Event.LEAVE: leave,
    Event.EXPIRY: expire,
    Event.PENDING_EXPIRY: lambda group: group.timer_expired(session_timer(PENDING), NOW_MS),
    Event.JOIN_TIMEOUT: lambda group: group.timer_expired(JOIN_TIMER, NOW_MS),
    Event.SYNC_TIMEOUT: end_sync,
}


def errors_of(effects):
    told = [one.result.error for one in effects if isinstance(one, Respond)]
    return [*(one for one in effects if isinstance(one, ErrorCode)), *told]


def kinds(effects):
    return {type(one) for one in effects if not isinstance(one, CancelTimer | ErrorCode)}


def is_waiting(group, effects):
    return group.state is State.PREPARING_REBALANCE and StoreRecords not in kinds(effects)


SHOWS = {
    Step.NOTHING: lambda _, effects: not kinds(effects),
    Step.REBALANCE: lambda group, _: group.state is State.PREPARING_REBALANCE,
    Step.WAIT: is_waiting,  # for the end of the initial delay
    Step.COMPLETE: is_waiting,  # for those that have not joined
    Step.END_JOIN: lambda _, effects: kinds(effects) == {SetTimer},  # more members have come
    Step.GENERATION: lambda group, effects: [one.result.generation for one in effects] == [group.generation],
    Step.REPLACE: lambda _, effects: StoreRecords in kinds(effects),
    Step.AWAIT_LEADER: lambda _, effects: effects == [],
    Step.ASSIGNMENT: lambda _, effects: errors_of(effects) == [ErrorCode.NONE],
    Step.SESSION: lambda _, effects: effects == [SetTimer(session_timer(FOLLOWER), 10_000)],
}


@pytest.mark.parametrize(
    ("state", "event"),
    # In an empty group a static member is a new one.
    [(state, event) for state in State for event in Event if (state, event) != (State.EMPTY, Event.RETURN)],
)
def test_an_event_does_what_the_table_says(state, event):
    group = group_in(state)
    effects = HAPPENS[event](group)
    step = STEPS[state, event]
    if isinstance(step, ErrorCode):
        assert errors_of(effects)[:1] == [step]
    else:
        assert SHOWS[step](group, effects)
    if step is not Step.REBALANCE:
        assert group.state is state


def test_a_rebalance_is_complete_without_an_id_that_is_not_used():
    group = group_in(State.PREPARING_REBALANCE)
    group.join(join(fresh=PENDING, needs_id=True), NOW_MS)
    group.timer_expired(session_timer(PENDING), NOW_MS)
    assert group.state is State.COMPLETING_REBALANCE


def test_every_step_is_in_the_table():
    assert {one for one in STEPS.values() if isinstance(one, Step)} == set(Step)
