"""Where a follower begins to fetch, and where it cuts its log."""

import pytest

from millrace_broker.replication.epoch_ends import UNKNOWN, cut_for, end_of_epoch, fetch_position

OWN = ((1, 0), (2, 10), (3, 25))  # log end offset 30
LEADER = ((1, 0), (2, 10), (5, 20))  # log end offset 40


def test_a_follower_begins_at_the_end_of_its_log_and_says_its_last_epoch() -> None:
    assert fetch_position(OWN, 30, 12) == (30, 3)


def test_an_epoch_in_which_nothing_was_written_is_not_the_last_one() -> None:
    """A leader whose disk was full has begun it, and its successor does not know it."""
    assert fetch_position((*OWN, (4, 30)), 30, 12) == (30, 3)
    assert fetch_position(((4, 0),), 0, 0) == (0, -1)


def test_a_follower_that_knows_no_epochs_begins_at_its_high_watermark() -> None:
    assert fetch_position((), 30, 12) == (12, -1)
    assert fetch_position((), 30, 99) == (30, -1)


def test_where_both_know_the_epoch_the_log_is_cut_where_the_first_of_them_ends_it() -> None:
    answer = end_of_epoch(LEADER, 3, 40)
    assert answer == (2, 20)
    assert cut_for(OWN, 30, 12, answer) == 20
    assert cut_for(OWN, 30, 12, (2, 28)) == 25
    assert cut_for(OWN, 30, 12, (3, 99)) == 30


def test_an_epoch_that_the_follower_does_not_know_is_cut_at_the_end_of_an_older_one() -> None:
    """KIP-279: both logs have been written by leaders that the other has never followed."""
    own, leader = ((1, 0), (4, 10), (6, 20)), ((1, 0), (3, 8), (5, 15), (7, 18))
    answer = end_of_epoch(leader, 6, 30)
    assert answer == (5, 18)
    assert cut_for(own, 30, 0, answer) == 20
    answer = end_of_epoch(leader, 4, 30)
    assert answer == (3, 15)
    assert cut_for(own[:2], 20, 0, answer) == 10
    answer = end_of_epoch(leader, 1, 30)
    assert answer == (1, 8)
    assert cut_for(own[:1], 10, 0, answer) == 8


@pytest.mark.parametrize(
    ("entries", "answer", "offset"),
    [(OWN, UNKNOWN, 12), (OWN, (-1, 17), 17), (OWN, (-1, 99), 30), ((), (2, 17), 17)],
    ids=["the leader does not know", "a leader before KIP-279", "the same, ahead", "no epochs here"],
)
def test_without_a_common_epoch_one_cut_is_all(
    entries: tuple[tuple[int, int], ...], answer: tuple[int, int], offset: int
) -> None:
    assert cut_for(entries, 30, 12, answer) == offset


def test_where_all_of_the_follower_is_newer_than_the_leaders_epoch_nothing_stays() -> None:
    assert cut_for(((4, 5), (6, 9)), 20, 0, (2, 30)) == 5
