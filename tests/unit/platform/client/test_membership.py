"""The membership of a group's member as a table: each event in each phase, and whole stories."""

import itertools

import pytest

from millrace.client.membership import (
    Alive,
    Closed,
    Expired,
    Failed,
    Joined,
    LetGo,
    Membership,
    Named,
    Phase,
    Refused,
    Rejoin,
    Request,
    Synced,
    Taken,
    step,
)
from millrace.errors import ErrorCode

REBALANCES = Refused(ErrorCode.REBALANCE_IN_PROGRESS)
UNKNOWN = Refused(ErrorCode.UNKNOWN_MEMBER_ID)
OTHER_GENERATION = Refused(ErrorCode.ILLEGAL_GENERATION)
FENCED = Refused(ErrorCode.FENCED_INSTANCE_ID)
EVENTS = [
    Named("m"), Joined("m", 3), Synced(b"a"), Alive(), Taken(), LetGo(), Rejoin(), Expired(), Failed(), Closed(),
    REBALANCES, UNKNOWN, OTHER_GENERATION, FENCED,
]  # fmt: skip
IN = (Named("m"), Joined("m", 3), Synced(b"a"))
HOLDS = (*IN, Taken())


def after(*events):
    member = Membership()
    for event in events:
        member = step(member, event)
    return member


STORIES = {
    "a new member": ((), (Phase.JOINING, "", -1, None)),
    "an id": ((Named("m"),), (Phase.JOINING, "m", -1, None)),
    "a generation": (IN[:2], (Phase.SYNCING, "m", 3, None)),
    "an assignment": (IN, (Phase.STABLE, "m", 3, b"a")),
    "taken": (HOLDS, (Phase.STABLE, "m", 3, None)),
    "heartbeats": ((*HOLDS, Alive(), Alive()), (Phase.STABLE, "m", 3, None)),
    "others join while it is synced": ((*IN[:2], REBALANCES), (Phase.JOINING, "m", 3, None)),
    "others join": ((*HOLDS, REBALANCES), (Phase.LETTING_GO, "m", 3, None)),
    "others join before it is taken": ((*IN, REBALANCES), (Phase.JOINING, "m", 3, None)),
    "others join, and it is let go of": ((*HOLDS, REBALANCES, REBALANCES, LetGo()), (Phase.JOINING, "m", 3, None)),
    "removed": ((*HOLDS, UNKNOWN), (Phase.LOST, "", -1, None)),
    "removed, and let go of": ((*HOLDS, UNKNOWN, LetGo()), (Phase.JOINING, "", -1, None)),
    "removed before it is taken": ((*IN, UNKNOWN), (Phase.JOINING, "", -1, None)),
    "removed while it lets go": ((*HOLDS, REBALANCES, UNKNOWN), (Phase.LOST, "", -1, None)),
    "removed while it joins": ((Named("m"), UNKNOWN), (Phase.JOINING, "", -1, None)),
    "removed while it is synced": ((*IN[:2], UNKNOWN), (Phase.JOINING, "", -1, None)),
    "another generation": ((*HOLDS, OTHER_GENERATION), (Phase.LOST, "m", -1, None)),
    "another generation while it is synced": ((*IN[:2], OTHER_GENERATION), (Phase.JOINING, "m", -1, None)),
    "late": ((*HOLDS, Expired()), (Phase.LOST, "m", -1, None)),
    "late, and told of it afterwards": ((*HOLDS, Expired(), UNKNOWN, LetGo()), (Phase.JOINING, "", -1, None)),
    "late, and an old heartbeat is answered": ((*HOLDS, Expired(), Alive()), (Phase.LOST, "m", -1, None)),
    "late while it joins": ((Named("m"), Expired()), (Phase.JOINING, "m", -1, None)),
    "an answer to an old heartbeat": ((*HOLDS, Rejoin(), LetGo(), REBALANCES), (Phase.JOINING, "m", 3, None)),
    "it wants another": ((*HOLDS, Rejoin()), (Phase.LETTING_GO, "m", 3, None)),
    "it wants another before it is taken": ((*IN, Rejoin()), (Phase.JOINING, "m", 3, None)),
    "it wants another while it joins": ((Rejoin(), *IN), (Phase.JOINING, "m", 3, None)),
    "it wants another, and gets it": ((Rejoin(), *IN, Joined("m", 4), Synced(b"b")), (Phase.STABLE, "m", 4, b"b")),
    "fenced": ((*HOLDS, FENCED), (Phase.FAILED, "m", 3, None)),
    "closed": ((*HOLDS, Closed()), (Phase.CLOSED, "m", 3, None)),
}


@pytest.mark.parametrize(("events", "state"), STORIES.values(), ids=STORIES)
def test_a_story_ends_where_it_should(events, state):
    member = after(*events)
    assert (member.phase, member.member_id, member.generation, member.assignment) == state


def test_whatever_happens_a_held_assignment_is_let_go_of_before_the_next_join():
    for events in itertools.product(EVENTS, repeat=3):
        member = after(*HOLDS)
        for event in events:
            before, member = member, step(member, event)
            if member.request is Request.JOIN and before.request is not Request.JOIN:
                assert not before.is_held or event == LetGo()
            assert not (member.is_held and member.phase in (Phase.JOINING, Phase.SYNCING))
            assert member.assignment is None or member.phase is Phase.STABLE


def test_whatever_happens_a_member_that_may_go_on_gets_an_assignment_again():
    ends = {Failed(), Closed(), FENCED}
    for events in itertools.product([one for one in EVENTS if one not in ends], repeat=3):
        member = after(*HOLDS, *events, LetGo(), Rejoin(), LetGo(), *IN, *IN, Synced(b"last"))
        assert (member.phase, member.assignment) == (Phase.STABLE, b"a"), events


@pytest.mark.parametrize("end", [Failed(), Closed(), FENCED])
@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_the_end_is_the_end(event, end):
    ended = after(*HOLDS, end)
    assert ended.is_over
    assert ended.request is None
    assert step(ended, event) == ended


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_has_its_request(phase):
    beats = phase in (Phase.STABLE, Phase.LETTING_GO)
    expected = {Phase.JOINING: Request.JOIN, Phase.SYNCING: Request.SYNC}.get(
        phase, Request.HEARTBEAT if beats else None
    )
    assert Membership(phase).request is expected
