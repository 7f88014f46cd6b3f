"""A deletion that is answered has been made by all replicas in sync, and lasts in each as long as its process lives."""

from types import SimpleNamespace
from typing import cast

import pytest

from millrace_broker.storage import Log, TopicPartition
from millrace_support.simulation.workloads.record_deleters import Deletions, Replica

KEY = TopicPartition("limited", 0)
LEADER, FOLLOWER, AWAY = 4, 3, 2


@pytest.fixture
def anomalies() -> list[str]:
    return []


@pytest.fixture
def deletions(anomalies: list[str]) -> Deletions:
    """Returns what is known after all below 17 was deleted in the first processes of a leader and a follower."""
    known = Deletions(KEY, anomalies.append)
    known.answered(17, {Replica(LEADER, 1, 0): log(17), Replica(FOLLOWER, 1, 0): log(18)})
    assert not anomalies
    return known


def log(start: int) -> Log:
    return cast("Log", SimpleNamespace(log_start_offset=start))


@pytest.mark.parametrize(
    ("leader", "process", "start", "is_wrong"),
    [
        pytest.param(LEADER, 1, 17, False, id="all is deleted"),
        pytest.param(LEADER, 1, 16, True, id="the leader has lost the deletion"),
        pytest.param(FOLLOWER, 1, 16, True, id="a replica that was in sync leads without it"),
        pytest.param(FOLLOWER, 2, 16, False, id="its process has started again"),
        pytest.param(AWAY, 1, 0, False, id="a replica leads that nobody waited for"),
    ],
)
def test_a_deletion_lasts_where_a_replica_was_in_sync(
    deletions: Deletions, anomalies: list[str], leader: int, process: int, start: int, *, is_wrong: bool
) -> None:
    deletions.begins(start, leader, process)
    assert bool(anomalies) == is_wrong


@pytest.mark.parametrize(("start", "is_wrong"), [(18, True), (19, False), (None, False)])
def test_an_answer_is_wrong_while_a_replica_in_sync_has_not_deleted(
    deletions: Deletions, anomalies: list[str], start: int | None, *, is_wrong: bool
) -> None:
    follower = None if start is None else log(start)
    deletions.answered(19, {Replica(LEADER, 1, 0): log(19), Replica(FOLLOWER, 1, 0): follower})
    assert bool(anomalies) == is_wrong


def test_a_lower_deletion_takes_nothing_back(deletions: Deletions, anomalies: list[str]) -> None:
    deletions.answered(5, {Replica(LEADER, 1, 0): log(17)})
    deletions.begins(16, LEADER, 1)
    assert anomalies


def test_a_replica_that_was_removed_begins_anywhere(deletions: Deletions, anomalies: list[str]) -> None:
    deletions.forget_all_but([LEADER, AWAY])
    deletions.begins(0, FOLLOWER, 1)
    assert not anomalies
    deletions.begins(0, LEADER, 1)
    assert anomalies
