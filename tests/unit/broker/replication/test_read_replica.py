"""The replica from which a consumer reads: as Kafka's RackAwareReplicaSelector chooses."""

import pytest

from millrace.errors import ErrorCode
from millrace_broker.replication.in_sync_replicas import Election, InSyncReplicas, ReadReplica, in_rack

RACKS = {1: "a", 2: "b", 3: "b", 4: None}
LEADER = 1


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("a", [ReadReplica(9, 9, 2)], None),
        ("b", [ReadReplica(9, 9, 2)], 2),
        ("c", [ReadReplica(9, 9, 2), ReadReplica(9, 9, 4)], None),
        ("b", [], None),
        ("b", [ReadReplica(9, 1, 2), ReadReplica(8, 9, 3)], 2),
        ("b", [ReadReplica(9, 1, 2), ReadReplica(9, 2, 3)], 3),
        ("b", [ReadReplica(9, 1, 3), ReadReplica(9, 1, 2), ReadReplica(99, 9, 4)], 3),
        ("b", [ReadReplica(9, 1, 7), ReadReplica(1, 1, 2)], 2),
    ],
)
def test_the_best_follower_in_the_consumers_rack_is_chosen(rack, followers, chosen):
    assert in_rack(rack, LEADER, followers, RACKS.get) == chosen


def test_followers_count_that_are_in_sync_and_have_the_offset():
    election = Election(1, (1, 2, 3, 4), frozenset({1, 2, 3}), 5, 0, 100, 0)
    table = InSyncReplicas(election, 1, 1000, {1, 2, 3, 4}, now_ms=0)
    assert table.read_replicas(0) == [], "nothing is known of their logs"
    table.fetched(2, 50, 10, log_start_offset=20)
    table.fetched(3, 100, 20, log_start_offset=0)
    table.fetched(4, 90, 20, log_start_offset=0)  # not in sync
    having = {offset: [one.broker_id for one in table.read_replicas(offset)] for offset in (0, 20, 50, 51, 100, 101)}
    assert having == {0: [3], 20: [2, 3], 50: [2, 3], 51: [3], 100: [3], 101: []}


def low_watermarks_table(isr, eligible):
    election = Election(1, (1, 2, 3), frozenset(isr), 5, 0, 100, 0)
    table = InSyncReplicas(election, 1, 1000, eligible, now_ms=0)
    assert table.fetched(2, 100, 10, log_start_offset=20).moves_low_watermark
    return table


def test_the_low_watermark_is_that_of_live_followers():
    table = low_watermarks_table(isr={1, 2}, eligible={1, 2, 3})
    assert table.low_watermark(30) == -1
    assert not table.fetched(2, 100, 10, log_start_offset=20).moves_low_watermark
    proposal = table.fetched(3, 100, 10, log_start_offset=5).proposal
    table.refused(proposal, ErrorCode.INELIGIBLE_REPLICA, 10)
    assert table.low_watermark(30) == 5
    assert table.eligible({1, 2}, 20).moves_low_watermark
    assert table.low_watermark(30) == 20
    assert table.low_watermark(10) == 10


def test_followers_in_sync_count_for_the_low_watermark_though_they_are_said_to_be_gone():
    table = low_watermarks_table(isr={1, 2, 3}, eligible={1, 2})
    table.fetched(3, 100, 10, log_start_offset=5)
    assert table.low_watermark(30) == 5
    assert table.accepted({1, 2}, 5, 1, 20).moves_low_watermark
    assert table.low_watermark(30) == 20


def test_a_follower_that_may_be_in_sync_already_counts_for_the_low_watermark():
    table = low_watermarks_table(isr={1, 2}, eligible={1, 2, 3})
    proposal = table.fetched(3, 100, 10, log_start_offset=5).proposal
    assert not table.eligible({1, 2}, 20).moves_low_watermark
    assert table.low_watermark(30) == 5
    assert table.refused(proposal, ErrorCode.INELIGIBLE_REPLICA, 20).moves_low_watermark
    assert table.low_watermark(30) == 20
