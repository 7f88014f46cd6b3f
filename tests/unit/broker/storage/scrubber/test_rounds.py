"""The rounds of the scrubber: what comes next, when, and the file that survives a restart."""

import pytest

from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.scrubber.rounds import (
    AGAIN_MS,
    CompleteRound,
    Place,
    Rounds,
    checked_bytes,
    logs_left,
)

HOUR_MS, WEEK_MS = 3_600_000, 604_800_000
NOW_MS = 1_790_000_000_000
A0, A1, A10, B0 = (TopicPartition(*one) for one in (("a", 0), ("a", 1), ("a", 10), ("b", 0)))
LOGS = [A0, A1, A10, B0]
SIZES = {A0: [(0, 100), (10, 50)], A1: [(0, 30), (7, 20), (9, 5)], B0: [(0, 1000)]}
NOTHING_LEFT = CompleteRound(NOW_MS - 1000, NOW_MS - 500, 0, 0)


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (None, LOGS),
        (Place(A0, 0), LOGS),
        (Place(A1, 20), [A1, A10, B0]),
        (Place(TopicPartition("a", 5), 3), [A10, B0]),  # that log was deleted meanwhile
        (Place(TopicPartition("c", 0), 3), []),
    ],
)
def test_a_round_goes_on_where_it_was(place, left):
    assert list(logs_left(LOGS, place)) == left


@pytest.mark.parametrize(
    ("last", "next_ms"),
    [
        (None, NOW_MS),
        (NOTHING_LEFT, NOW_MS - 1000 + WEEK_MS),
        (NOTHING_LEFT._replace(findings=3), NOW_MS - 1000 + WEEK_MS),
        (NOTHING_LEFT._replace(left=1), NOW_MS - 1000 + AGAIN_MS),
        (NOTHING_LEFT._replace(ended_ms=NOW_MS + HOUR_MS - 1000, left=1), NOW_MS - 1000 + 10 * HOUR_MS),
        (CompleteRound(NOW_MS - WEEK_MS - 1, NOW_MS, 0, 0), NOW_MS - 1),  # it took longer than the interval
        (CompleteRound(NOW_MS + 1, NOW_MS + 2, 0, 0), NOW_MS),  # the clock was set back
    ],
)
def test_when_the_next_round_begins(last, next_ms):
    assert Rounds(last).next_ms(NOW_MS, WEEK_MS) == next_ms


def test_what_is_left_waits_no_longer_than_the_interval():
    assert Rounds(NOTHING_LEFT._replace(left=1)).next_ms(NOW_MS, 10) == NOTHING_LEFT.started_ms + 10


@pytest.mark.parametrize(
    ("rounds", "size_bytes"),
    [
        (Rounds(), 1205),
        (Rounds(NOTHING_LEFT), 1205),
        (Rounds().begun(NOW_MS), 0),
        (Rounds().begun(NOW_MS).at(Place(A0, 1)), 100),
        (Rounds().begun(NOW_MS).at(Place(A1, 8)), 200),
        (Rounds().begun(NOW_MS).at(Place(A10, 8)), 205),
        (Rounds().begun(NOW_MS).at(Place(B0, 1)), 1205),
    ],
)
def test_how_much_of_a_round_is_done(rounds, size_bytes):
    assert checked_bytes(rounds, SIZES) == size_bytes


def test_a_round_counts_what_it_finds_and_leaves():
    rounds = Rounds().begun(5).at(Place(A0, 1), findings=2).at(Place(A1, 1), findings=1, left=1).ended(9)
    assert rounds == Rounds(CompleteRound(5, 9, 3, 1))


@pytest.mark.parametrize(
    "rounds",
    [
        Rounds(),
        Rounds(NOTHING_LEFT),
        Rounds().begun(NOW_MS),
        Rounds(NOTHING_LEFT).begun(NOW_MS).at(Place(TopicPartition("a.b-c_d", 1234), 1 << 40), findings=2, left=1),
    ],
)
def test_the_file_brings_all_of_it_back(rounds):
    assert Rounds.of_lines(rounds.lines()) == rounds


@pytest.mark.parametrize(
    "line", ["", "last 1 2 3", "now 1 2", "now x 2 3", "at t 0 1", "at t 0", "else 1", "last 1 2 3 x"]
)
def test_a_line_that_makes_no_sense_is_refused(line):
    with pytest.raises(ValueError, match=r"\S"):
        Rounds.of_lines([line])
