"""The states of a classic group, and the table of what follows in each of them; `classic_group` carries it out.

                   +-------------- all members gone --------------+
                   v                                              |
(new) -------->  Empty  -- a member joins -->  PreparingRebalance | <--- join, leave, expiry ---+
                                                      |           |                             |
                                              all have joined, or time is up                    |
                                                      v                                         |
                                              CompletingRebalance  -- the leader's sync -->  Stable

Dead    the group is deleted, or led by another broker
"""

from __future__ import annotations

from enum import StrEnum

from millrace.errors import ErrorCode


class State(StrEnum):
    """The state of a classic group, by the name that the protocol shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(StrEnum):
    """A request, or the end of a timer, that may change the state of a classic group."""

    JOIN = "a member is added"
    REJOIN = "a member joins again, and offers other protocols than before"
    REPEAT = "a member joins again as before; it may not have got its response"
    REPEAT_BY_LEADER = "the leader joins again as before, by which it may ask for a rebalance"
    RETURN = "a static member has restarted, and the members' protocol remains the same"
    SYNC = "a member asks for its assignment; the leader's request brings those of all"
    HEARTBEAT = "a member says that it lives"
    COMMIT = "a member commits offsets"
    LEAVE = "members leave"
    EXPIRY = "a member was not heard of for its session timeout"
    PENDING_EXPIRY = "who was given a member id has not joined with it"
    JOIN_TIMEOUT = "the time to join is over"
    SYNC_TIMEOUT = "the time to ask for assignments is over, and some have not"


class Step(StrEnum):
    """The reaction of a classic group to an event."""

    NOTHING = "nothing"
    REBALANCE = "all members are to join again"
    WAIT = "the rebalance is complete once all have joined, but not before the initial delay is over"
    COMPLETE = "the rebalance is complete if all have joined"
    END_JOIN = "the rebalance is complete, or its initial delay goes on where more members have come"
    GENERATION = "the response is the present generation"
    REPLACE = "the member takes its own place, without a rebalance"
    AWAIT_LEADER = "the response waits until the leader's assignments are stored"
    ASSIGNMENT = "the response is the member's assignment"
    SESSION = "the member's session starts from zero"


_UNKNOWN, _GONE = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE
_REBALANCES, _NONE = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE
_ROWS: dict[Event, tuple[Step | ErrorCode, ...]] = {
    # Empty, PreparingRebalance, CompletingRebalance, Stable, Dead
    Event.JOIN: (Step.REBALANCE, Step.WAIT, Step.REBALANCE, Step.REBALANCE, _GONE),
    Event.REJOIN: (_UNKNOWN, Step.WAIT, Step.REBALANCE, Step.REBALANCE, _GONE),
    Event.REPEAT: (_UNKNOWN, Step.WAIT, Step.GENERATION, Step.GENERATION, _GONE),
    Event.REPEAT_BY_LEADER: (_UNKNOWN, Step.WAIT, Step.GENERATION, Step.REBALANCE, _GONE),
    Event.RETURN: (_UNKNOWN, Step.WAIT, Step.REBALANCE, Step.REPLACE, _GONE),
    Event.SYNC: (_UNKNOWN, _REBALANCES, Step.AWAIT_LEADER, Step.ASSIGNMENT, _GONE),
    Event.HEARTBEAT: (_UNKNOWN, _REBALANCES, _NONE, _NONE, _GONE),
    Event.COMMIT: (Step.NOTHING, Step.SESSION, Step.NOTHING, Step.SESSION, Step.NOTHING),
    Event.LEAVE: (Step.NOTHING, Step.WAIT, Step.REBALANCE, Step.REBALANCE, _GONE),
    Event.EXPIRY: (Step.NOTHING, Step.COMPLETE, Step.REBALANCE, Step.REBALANCE, Step.NOTHING),
    Event.PENDING_EXPIRY: (Step.NOTHING, Step.COMPLETE, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Event.JOIN_TIMEOUT: (Step.NOTHING, Step.END_JOIN, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Event.SYNC_TIMEOUT: (Step.NOTHING, Step.NOTHING, Step.REBALANCE, Step.REBALANCE, Step.NOTHING),
}
STEPS = {(state, event): step for event, row in _ROWS.items() for state, step in zip(State, row, strict=True)}
"""Gives for a state and an event what the group does, or the error code with which it refuses the request."""

# The two rows that are looked up most often, by state alone.
HEARTBEAT_ERRORS = {
    state: step for (state, event), step in STEPS.items() if isinstance(step, ErrorCode) and event is Event.HEARTBEAT
}
COMMITS_KEEP_SESSIONS = frozenset(
    state for (state, event), step in STEPS.items() if (event, step) == (Event.COMMIT, Step.SESSION)
)
