"""Which topics a command means, and what it makes of their states."""

from dataclasses import replace

import pytest

from millrace.errors import UnknownTopicError
from millrace_pipelines.mirror.settings import Accept, Way
from millrace_pipelines.mirror.sharing import OBSERVER, assign, decode_members
from millrace_pipelines.mirror.states import State, TopicState
from millrace_pipelines.mirror.steering import SteeringError, chosen, paused, resumed

ORDERS = TopicState(source="east", topic="orders", target_topic="east.orders", way=Way.COPY)
CLICKS = TopicState(source="east", topic="clicks", target_topic="east.clicks", way=Way.COPY)
OTHER = TopicState(source="west", topic="orders", target_topic="west.orders", way=Way.COPY)
STATES = {one.key: one for one in (ORDERS, CLICKS, OTHER)}


@pytest.mark.parametrize(
    ("mirrors", "names", "meant"),
    [
        (["east"], [], [CLICKS, ORDERS]),
        (["east"], ["orders"], [ORDERS]),
        (["east", "west"], ["orders"], [ORDERS, OTHER]),
        (["east", "west"], ["west/orders"], [OTHER]),
        (["east", "west"], ["west.orders", "clicks"], [CLICKS, OTHER]),
        (["north"], [], []),
    ],
)
def test_topics_go_by_their_names_on_either_side(mirrors, names, meant):
    assert chosen(STATES, mirrors, names) == meant


@pytest.mark.parametrize(("mirrors", "name"), [(["east"], "order"), (["west"], "clicks"), (["east"], "west/orders")])
def test_a_name_that_no_topic_has_is_refused(mirrors, name):
    with pytest.raises(UnknownTopicError, match=f"^{name} is not mirrored from {mirrors[0]}"):
        chosen(STATES, mirrors, [name])


@pytest.mark.parametrize("state", [State.MIRRORING, State.PAUSED, State.STOPPED])
def test_what_is_not_switched_over_is_paused_and_resumed(state):
    before = replace(ORDERS, state=state, reason="why" if state is State.STOPPED else "")
    assert paused(before) == replace(ORDERS, state=State.PAUSED)
    accepted = [Accept.LOST_OFFSETS]
    assert resumed(before, accepted) == replace(ORDERS, accepted=frozenset(accepted))


@pytest.mark.parametrize("state", [State.SWITCHING, State.SWITCHED])
@pytest.mark.parametrize("change", [paused, resumed])
def test_a_topic_that_is_switched_over_is_not(state, change):
    with pytest.raises(SteeringError, match="switch"):
        change(replace(ORDERS, state=state))


def test_an_observer_gets_no_partitions():
    assigned = assign({"a": b"", "b": OBSERVER, "c": b""})
    assert set(assigned) == {"a", "b", "c"}
    assert {decode_members(one) for one in assigned.values()} == {("a", "c")}
