"""Tables of what is committed of a group, from what both clusters have of it."""

import json

import pytest

from millrace.client.groups import GroupOffset
from millrace_pipelines.mirror.group_plan import (
    Commits,
    Mark,
    Stored,
    Wanted,
    has_gone_on,
    mark_of,
    plan_marks,
    plan_move,
    plan_move_back,
)

AT, OTHER = ("east.clicks", 0), ("east.clicks", 1)


def marked(target, source=0, *, mirror="east", before=None, zookeeper=None):
    return Stored(GroupOffset(target, str(Mark(mirror, source, target, before))), zookeeper)


def own(offset, *, metadata="", zookeeper=None):
    return Stored(GroupOffset(offset, metadata), zookeeper)


MARK = {"mirror": "east", "source": 7, "target": 5, "before": None}


@pytest.mark.parametrize(
    ("stored", "is_mark"),
    [
        (own(5, metadata=json.dumps(MARK)), True),
        (own(5, metadata=json.dumps(MARK | {"before": 3})), True),
        (own(6, metadata=json.dumps(MARK)), False),  # the group has committed with the metadata that it found
        (own(5, metadata=json.dumps(MARK | {"mirror": "west"})), False),
        (own(5, metadata=json.dumps(MARK | {"source": "7"})), False),
        (own(5, metadata=json.dumps({"mirror": "east"})), False),
        (own(5, metadata="[" * 100_000), False),
        (own(5, metadata="a note"), False),
        (own(5), False),
        (Stored(None, 5), False),
        (Stored(), False),
    ],
)
def test_a_mark_is_one_of_this_mirror_beside_its_own_offset(stored, is_mark):
    assert (mark_of(stored, "east") is not None) is is_mark


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (Stored(), False),
        (marked(5), False),
        (marked(5, mirror="west"), True),
        (own(5), True),
        (Stored(None, 5), True),
        (marked(5, zookeeper=5), False),
        (marked(5, before=3, zookeeper=3), False),  # the mirror was ended between its two commits
        (marked(5, before=3, zookeeper=4), True),
        (marked(5, zookeeper=6), True),
    ],
)
def test_a_group_has_gone_on_once_an_offset_is_not_the_mirrors(stored, expected):
    assert has_gone_on(stored, "east") is expected


def commit(target, source, before=None):
    return GroupOffset(target, str(Mark("east", source, target, before)))


MOVES = {
    "nothing there": (Stored(), {AT: commit(40, 100)}, {AT: 40}),
    "our mark below": (marked(39), {AT: commit(40, 100)}, {AT: 40}),
    "our mark": (marked(40), {}, {AT: 40}),
    "our mark above: set back at the source": (marked(41), {}, {}),
    "all there": (marked(40, zookeeper=40), {}, {}),
    "both below": (marked(39, zookeeper=39), {AT: commit(40, 100, 39)}, {AT: 40}),
    "ended between the two": (marked(40, before=39, zookeeper=39), {}, {AT: 40}),
}


@pytest.mark.parametrize(("stored", "coordinator", "zookeeper"), MOVES.values(), ids=MOVES)
def test_a_group_is_moved_forwards_of_what_the_mirror_has_committed(stored, coordinator, zookeeper):
    wanted, has = {AT: Wanted(100, 40)}, {AT: stored} if stored != Stored() else {}
    assert plan_move("east", wanted, has, is_in_zookeeper=True) == Commits(coordinator, zookeeper)
    assert plan_move("east", wanted, has, is_in_zookeeper=False) == Commits(coordinator, {})


@pytest.mark.parametrize("stored", [own(40), own(0), marked(41, mirror="west"), marked(40, zookeeper=41)])
@pytest.mark.parametrize("where", [AT, OTHER])
def test_a_group_that_has_gone_on_in_any_partition_is_left_alone(stored, where):
    wanted = {AT: Wanted(100, 40)}
    assert plan_move("east", wanted, {AT: marked(1), where: stored}, is_in_zookeeper=True) is None


@pytest.mark.parametrize(
    ("stored", "is_committed"),
    [(Stored(), True), (own(99), True), (own(100), False), (own(101), False), (own(9, zookeeper=100), False)],
)
def test_a_group_is_moved_back_forwards_only(stored, is_committed):
    wanted, expected = {AT: Wanted(100, 40)}, {AT: 100} if is_committed else {}
    commits = plan_move_back(wanted, {AT: stored}, is_in_zookeeper=True)
    assert {one: at.offset for one, at in commits.coordinator.items()} == commits.zookeeper == expected
    assert plan_move_back(wanted, {AT: stored}, is_in_zookeeper=False).zookeeper == {}


def test_a_group_that_was_moved_back_can_be_moved_over_again():
    wanted, stored = {AT: Wanted(100, 40)}, {AT: own(40, zookeeper=38)}
    assert plan_move("east", {AT: Wanted(101, 41)}, stored, is_in_zookeeper=True) is None
    marks = plan_marks("east", wanted, stored)
    assert marks.zookeeper == {AT: 40}
    for zookeeper in (38, 40):  # whether or not the mirror was ended between its two commits
        now = {AT: Stored(marks.coordinator[AT], zookeeper)}
        commits = plan_move("east", {AT: Wanted(101, 41)}, now, is_in_zookeeper=True)
        assert (commits.coordinator[AT].offset, commits.zookeeper) == (41, {AT: 41})
