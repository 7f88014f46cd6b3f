"""Decisions of a consumer group: each event has one outcome, and a decision changes nothing by itself."""

from copy import deepcopy
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups.consumer.change import DecisionContext
from millrace_broker.groups.consumer.decisions import (
    Changed,
    Situation,
    Succeeded,
    Unchanged,
    decide,
    not_stored,
    refuse,
)
from millrace_broker.groups.consumer.events import Expired, Heartbeat, HeartbeatEvent, Leave, Refusal, Timer, TimerKind
from millrace_broker.groups.consumer.member import NOTHING
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.group import Join, JoinProtocol, JoinResult, Respond, SetTimer
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig

TOPIC = TopicInfo("a", UUID(int=1), tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(4)), {})
VIEW = MetadataImage("c", 1, {1: BrokerInfo(1, "h", 1)}, {"a": TOPIC})
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff"  # version 0, topic `a`, no user data


def beat(member_id, epoch):
    said = {} if epoch else {"rebalance_timeout_ms": 900, "topic_names": frozenset("a"), "owned": NOTHING}
    return HeartbeatEvent(Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **said), "ticket")


def join(member_id="", *, requires_known_member_id=False):
    protocols = (JoinProtocol("range", SUBSCRIPTION),)
    return Join(
        "ticket", member_id, None, "c", "/h", 800, 7000, "consumer", protocols, "c-1", requires_known_member_id, True
    )


def expired(member_id, kind=TimerKind.SESSION):
    return Expired(Timer(kind, member_id))


def situation_of(state):
    return Situation(state, DecisionContext(ConsumerGroupConfig(), VIEW, 0), GroupConfig())


def after(*events):
    """The situation once the outcomes of these events are stored."""
    state = GroupState("g")
    for event in events:
        state = decide(situation_of(state), event).state
    return situation_of(state)


EMPTY = after(beat("m", 0), beat("m", -1))
ALONE = after(beat("m", 0))
MIXED = after(beat("m", 0), join())


@pytest.mark.parametrize(
    ("situation", "event", "outcome"),
    [
        (after(), beat("m", 0), Changed),
        (ALONE, beat("m", 1), Unchanged),
        (ALONE, beat("n", 0), Changed),
        (ALONE, beat("m", 9), Unchanged),
        (ALONE, beat("m", -1), Changed),
        (MIXED, beat("m", -1), Succeeded),
        (ALONE, join(), Changed),
        (ALONE, join(requires_known_member_id=True), Unchanged),
        (EMPTY, join(), Succeeded),
        (EMPTY, join("c-1"), Unchanged),
        (MIXED, Leave(("c-1",)), Changed),
        (MIXED, Leave(("gone",)), Unchanged),
        (ALONE, expired("m"), Changed),
        (MIXED, expired("m"), Succeeded),
        (ALONE, expired("m", TimerKind.REBALANCE), Unchanged),
        (ALONE, expired("gone"), Unchanged),
    ],
)
def test_each_event_has_its_outcome(situation, event, outcome):
    before = deepcopy(situation.state)
    decided = decide(situation, event)
    assert type(decided) is outcome
    assert situation.state == before
    again = decide(situation, event)
    assert again.effects == decided.effects
    if outcome is not Unchanged:
        assert again.records == decided.records


def test_effects_of_a_change_wait_until_it_is_stored():
    decided = decide(after(), beat("m", 0))
    kinds = [type(effect) for effect in decided.effects]
    assert kinds[-2:] == [SetTimer, Respond]
    assert decided.state.members.keys() == {"m"}
    assert decided.effects[-1].result.member_epoch == 1


def test_what_is_not_decided_or_not_stored_is_refused():
    assert refuse(beat("m", 0), ErrorCode.NOT_COORDINATOR) == [
        Respond("ticket", Refusal(ErrorCode.NOT_COORDINATOR)),
    ]
    rejoin = refuse(beat("m", 0), ErrorCode.REBALANCE_IN_PROGRESS)
    assert rejoin == [Respond("ticket", Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))]
    assert refuse(join("c-1"), ErrorCode.NOT_COORDINATOR) == [
        Respond("ticket", JoinResult(ErrorCode.NOT_COORDINATOR, "c-1")),
    ]
    assert refuse(Leave(("c-1",)), ErrorCode.NOT_COORDINATOR) == []
    assert not_stored(ALONE, expired("m"), ErrorCode.NOT_COORDINATOR) == [SetTimer(("session", "m"), 500)]
