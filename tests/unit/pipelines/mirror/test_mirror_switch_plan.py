"""What a switch-over waits for, what it refuses, and what it says is lost."""

import re
from dataclasses import replace

import pytest

from millrace.client.groups import GroupOffset
from millrace_pipelines.mirror.group_plan import Mark, Stored
from millrace_pipelines.mirror.offset_map import Run
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import KnownEnds, State, TopicState
from millrace_pipelines.mirror.status import MirrorStatus, PartitionStatus, TopicStatus
from millrace_pipelines.mirror.switch_plan import (
    SWITCH_BACK,
    Behind,
    Loss,
    behind,
    losses,
    mirrored_ends,
    refusal,
    reversed_runs,
    reversed_state,
    target_ends,
    what_is_awaited,
)

ORDERS = TopicState(source="east", topic="orders", target_topic="east.orders", way=Way.COPY)
DONE = PartitionStatus(0, source_end=9, mirrored_end=9, target_end=7)


def status(*partitions, instances=1):
    return MirrorStatus((TopicStatus(ORDERS, partitions),), instances)


@pytest.mark.parametrize(
    ("now", "before", "awaited"),
    [
        (status(DONE), status(DONE), None),
        (status(DONE), None, "writers at the source go on"),
        (status(DONE), status(DONE._replace(source_end=8)), "writers at the source go on"),
        (status(DONE._replace(mirrored_end=5)), status(DONE), "orders-0: 4 offsets are still to be mirrored$"),
        (status(DONE._replace(mirrored_end=5), instances=0), None, "mirrored, and no instance of the mirror runs$"),
        (status(DONE._replace(held_back=3)), status(DONE), "a transaction is open at the source, with 3 offsets"),
        (status(DONE._replace(source_end=None)), status(DONE), "where it ends is not known"),
        (status(DONE._replace(error="no leader")), status(DONE), "orders-0: no leader"),
        (status(DONE._replace(mirrored_end=10)), status(DONE), None),
    ],
)
def test_all_is_mirrored_and_nothing_more_comes(now, before, awaited):
    found = what_is_awaited(now, before)
    assert (found is None) if awaited is None else re.search(awaited, found)


@pytest.mark.parametrize(
    ("state", "reason", "planned", "unplanned"),
    [
        (State.MIRRORING, "", None, None),
        (State.SWITCHING, "", None, None),
        (State.PAUSED, "", "east/orders is paused; resume it", None),
        (State.STOPPED, "why", "east/orders is stopped: why; resume it", None),
        (State.SWITCHING, SWITCH_BACK, "switch-back is under way", "switch-back is under way"),
    ],
)
def test_a_topic_that_is_not_mirrored_is_refused(state, reason, planned, unplanned):
    found = replace(ORDERS, state=state, reason=reason)
    for is_planned, expected in ((True, planned), (False, unplanned)):
        told = refusal(found, is_planned=is_planned)
        assert told is None if expected is None else expected in told


def test_what_the_source_had_beyond_the_mirror_is_lost():
    switched = replace(ORDERS, source_ends={0: 9, 1: 5, 2: 4})
    found = list(losses(switched, KnownEnds({0: 9, 1: 8}, 17)))
    assert found == [Loss("orders", 1, 5, 3, 17), Loss("orders", 2, 4, None, 17)]
    assert str(found[0]).startswith("orders-1: mirrored up to offset 5; 3 offsets are lost")
    assert str(found[1]) == "orders-2: mirrored up to offset 4; where the source ended is not known"


def test_a_group_that_had_read_more_is_named():
    switched = replace(ORDERS, source_ends={0: 9, 1: 5})
    marks = [Mark("east", 12, 7), Mark("east", 5, 7), Mark("west", 12, 7)]
    stored = {
        ("east.orders", 0): Stored(GroupOffset(7, str(marks[0]))),
        ("east.orders", 1): Stored(GroupOffset(7, str(marks[1]))),
        ("other", 0): Stored(GroupOffset(7, str(marks[0]))),
    }
    assert list(behind("east", "billing", stored, switched)) == [Behind("billing", "orders", 0, 12, 9)]
    assert list(behind("west", "billing", stored, switched)) == []


def test_ends_are_those_that_are_known():
    partitions = [DONE, DONE._replace(partition=1, mirrored_end=None, target_end=None)]
    assert (mirrored_ends(partitions), target_ends(partitions)) == ({0: 9}, {0: 7})


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (0, [Run(40, 100, 3), Run(43, 105, 2)]),
        (41, [Run(41, 101, 2), Run(43, 105, 2)]),
        (43, [Run(43, 105, 2)]),
        (44, [Run(44, 106, 1)]),
        (45, []),
    ],
)
def test_runs_are_turned_round_from_an_offset_on(begin, expected):
    assert reversed_runs([Run(100, 40, 3), Run(105, 43, 2)], begin) == expected


def test_a_topic_that_is_turned_round_is_none_of_a_switch_over():
    back = reversed_state(ORDERS, "west", "there", Way.FOLLOW)
    assert (back.key, back.target_topic, back.origins) == ("west/east.orders", "orders", ("there",))
    assert refusal(back, is_planned=False) is not None
