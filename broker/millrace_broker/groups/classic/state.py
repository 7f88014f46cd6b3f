"""The states of a classic group.

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


class State(StrEnum):
    """A state, by the name that the protocol shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


FROM = {
    State.EMPTY: (State.PREPARING_REBALANCE,),
    State.PREPARING_REBALANCE: (State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE,),
    State.STABLE: (State.COMPLETING_REBALANCE,),
    State.DEAD: tuple(State),
}
"""For each state those that it may follow."""
