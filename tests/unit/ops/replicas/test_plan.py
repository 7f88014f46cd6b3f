"""Plans of moves, their throttle and their estimate, the JSON of plans, and how partitions stand."""

import pytest

from millrace.addresses import Address
from millrace.client.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata
from millrace.client.replicas import Reassignment
from millrace.errors import InvalidReplicaAssignmentError
from millrace_ops.replicas.carry_out import FOLLOWERS, LEADERS, throttled_replicas, throttled_topics
from millrace_ops.replicas.cluster_state import (
    ClusterState,
    PartitionState,
    broker_ids,
    partition_states,
    summarize_broker,
)
from millrace_ops.replicas.plan import make_plan, parse_plan

T0, T1 = ("t", 0), ("t", 1)


def partition(leader, replicas, isr=None):
    return PartitionMetadata(leader, 0, tuple(replicas), tuple(replicas if isr is None else isr))


def state(partitions, reassignments=None, live=(1, 2, 3)):
    brokers = {one: BrokerMetadata(one, "127.0.0.1", 9000 + one, None) for one in live}
    return ClusterState(ClusterMetadata("c", 1, brokers, {}), partitions, reassignments or {})


def test_a_plan_has_only_what_changes():
    plan = make_plan(state({T0: partition(1, [1]), T1: partition(2, [2])}), {T0: [1, 3], T1: [2]}, {T0: 100})
    (move,) = plan.moves
    assert (move.partition, move.origin, move.target, move.adding) == (T0, (1,), (1, 3), [3])
    assert (plan.copied_bytes, plan.to_begin) == (100, [move])


def test_a_new_order_of_replicas_is_a_move_that_copies_nothing():
    plan = make_plan(state({T0: partition(1, [1, 2])}), {T0: [2, 1]}, {T0: 100})
    assert [move.target for move in plan.to_begin] == [(2, 1)]
    assert plan.copied_bytes == 0


def test_what_is_under_way_is_awaited_and_not_begun_again():
    moving = {T0: Reassignment((2, 1), adding=(2,), removing=(1,))}
    cluster = state({T0: partition(1, [2, 1], [1])}, moving)
    assert (cluster.assigned(T0), cluster.origin(T0)) == ((2,), (1,))
    plan = make_plan(cluster, {T0: [2]}, {T0: 100})
    assert (len(plan.moves), plan.to_begin, plan.copied_bytes) == (1, [], 100)
    (changed,) = make_plan(cluster, {T0: [3]}, {T0: 100}).to_begin
    assert (changed.origin, changed.adding) == ((1,), [3])
    (back,) = make_plan(cluster, {T0: [1]}, {T0: 100}).to_begin
    assert back.adding == []


def test_a_partition_without_a_leader_can_not_be_copied_but_can_lose_a_replica():
    cluster = state({T0: partition(-1, [1, 2], [1])})
    with pytest.raises(InvalidReplicaAssignmentError, match="t-0 has no leader"):
        make_plan(cluster, {T0: [1, 3]}, {})
    assert make_plan(cluster, {T0: [1]}, {}).moves[0].target == (1,)


def test_the_estimate_is_that_of_the_broker_with_the_most_to_send_or_take():
    partitions = {T0: partition(1, [1]), T1: partition(2, [2])}
    plan = make_plan(state(partitions), {T0: [1, 2, 3], T1: [2, 3]}, {T0: 100, T1: 50})
    assert plan.duration_s(10) == 20  # broker 1 sends 200, broker 2 takes 100, broker 3 takes 150
    assert make_plan(state(partitions), {T0: [1, 3], T1: [2, 3]}, {T0: 100, T1: 50}).duration_s(10) == 15
    assert make_plan(state(partitions), {}, {}).duration_s(10) == 0


def test_throttled_are_those_that_send_and_those_that_take():
    partitions = {T0: partition(1, [1, 2]), T1: partition(1, [1, 2])}
    plan = make_plan(state(partitions), {T0: [3, 2], T1: [2, 1]}, {})
    assert throttled_replicas(plan.moves) == {"t": {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}}


def test_a_throttle_that_an_operator_has_set_for_all_replicas_is_not_that_of_a_move():
    lists = {
        "moved": {LEADERS: "0:1", FOLLOWERS: "0:2"},
        "half": {LEADERS: "", FOLLOWERS: "0:2"},
        "always": {LEADERS: "*", FOLLOWERS: "*"},
        "never": {LEADERS: "", FOLLOWERS: None},
    }
    assert throttled_topics(lists) == ["moved", "half"]


PLAN = '{"version": 1, "partitions": [%s]}'


def test_kafkas_plan_is_read():
    entries = (
        '{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}, '
        '{"topic": "t", "partition": 1, "replicas": [2], "bytes": 7}'
    )
    assert parse_plan(PLAN % entries, {1, 2}) == {T0: (1, 2), T1: (2,)}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('{"topic": "t", "partition": 0}', "is expected"),
        ('{"topic": "t", "partition": true, "replicas": [1]}', "is expected"),
        ('{"topic": "t", "partition": 0, "replicas": ["1"]}', "is expected"),
        ('{"topic": "t", "partition": 0, "replicas": []}', "t-0: it needs a replica"),
        ('{"topic": "t", "partition": 0, "replicas": [1, 1]}', "t-0: a broker is named twice"),
        ('{"topic": "t", "partition": 0, "replicas": [1, 7]}', "t-0: broker 7 is not alive"),
        ('{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/srv"]}', "folders can't be chosen"),
        (", ".join(['{"topic": "t", "partition": 0, "replicas": [1]}'] * 2), "t-0: it is named twice"),
        ("7", "is expected"),
        ("{", "this is no JSON"),
    ],
)
def test_what_is_no_plan_is_refused(entry, problem):
    with pytest.raises(InvalidReplicaAssignmentError, match=problem):
        parse_plan(PLAN % entry, {1, 2})


def test_what_is_no_object_is_no_plan():
    with pytest.raises(InvalidReplicaAssignmentError, match="a JSON object"):
        parse_plan("[]", {1})


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "min_isr", "states"),
    [
        (1, [1, 2, 3], [1, 2, 3], 2, []),
        (1, [1, 2, 3], [1, 2], 2, ["under-replicated", "at-min-isr"]),
        (1, [1, 2, 3], [1], 2, ["under-min-isr", "under-replicated"]),
        (-1, [1, 2], [1], 1, ["unavailable", "under-min-isr", "under-replicated"]),
        (-1, [1], [1], 1, ["unavailable", "under-min-isr"]),
        (1, [1], [1], 1, ["at-min-isr"]),
        (1, [1], [1], 2, ["at-min-isr"]),
    ],
)
def test_how_a_partition_stands(leader, replicas, isr, min_isr, states):
    assert partition_states(partition(leader, replicas, isr), min_isr) == states


def test_replicas_that_are_being_added_are_not_missing():
    moving = partition(1, [2, 3, 1], [1])
    assert partition_states(moving, 1, Reassignment((2, 3, 1), adding=(2, 3), removing=(1,))) == [
        PartitionState.AT_MIN_ISR,
        PartitionState.REASSIGNING,
    ]


def test_a_broker_that_is_gone_is_still_counted_by_its_replicas():
    cluster = state({T0: partition(1, [1, 9], [1]), T1: partition(2, [2])}, live=(1, 2))
    assert broker_ids(cluster) == [1, 2, 9]
    gone, first = summarize_broker(cluster, 9, None), summarize_broker(cluster, 1, [])
    assert gone.items() >= {"address": None, "leaders": 0, "replicas": 1, "out_of_sync": 1, "bytes": None}.items()
    address = str(Address("127.0.0.1", 9001))
    assert first.items() >= {"address": address, "controller": True, "under_replicated": 1, "bytes": 0}.items()
