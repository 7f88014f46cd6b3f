"""What is a problem in one look at a cluster, and how it is told."""

from dataclasses import replace

import pytest

from millrace.client.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata
from millrace.client.replicas import LogDir, Reassignment
from millrace_ops.replicas.cluster_health import ClusterLook, judge
from millrace_ops.replicas.cluster_state import ClusterState

GIB = 1 << 30
BROKERS = {one: BrokerMetadata(one, "127.0.0.1", 9090 + one, None) for one in (1, 2, 3)}
WELL = PartitionMetadata(1, 0, (1, 2, 3), (1, 2, 3))


def log_dir(error_code=0, total=100 * GIB, usable=50 * GIB):
    return LogDir("/data", error_code, total, usable, {})


def look(partitions=(WELL,), *, brokers=BROKERS, controller=1, log_dirs=None, reassignments=None):
    metadata = ClusterMetadata("id", controller, brokers, {})
    state = ClusterState(metadata, {("t", index): one for index, one in enumerate(partitions)}, reassignments or {})
    return ClusterLook(state, {"t": 2}, {one: [log_dir()] for one in brokers} | (log_dirs or {}))


def test_a_cluster_that_is_well():
    assert [tuple(one) for one in judge(look())] == [
        ("brokers", False, "3 alive: 1, 2, 3"),
        ("controller", False, "broker 1"),
        ("leaders", False, "every partition has a leader"),
        ("min ISR", False, "acks=all is served everywhere"),
        ("replicas", False, "all are in sync"),
        ("data directories", False, "all online"),
        ("disks", False, "at least 50 GiB free"),
        ("moves", False, "none"),
    ]


LEADERLESS = replace(WELL, leader=-1, isr=())
PROBLEMS = [
    (
        look(brokers={one: BROKERS[one] for one in (1, 2)}),
        {"brokers": "2 alive: 1, 2; not alive, although replicas are assigned to them: 3"},
    ),
    (
        replace(look(log_dirs={2: None}), silent=(2,)),
        {"brokers": "3 alive: 1, 2, 3; no answer from 2"},
    ),
    (look(controller=-1), {"controller": "there is none"}),
    (look([WELL, replace(WELL, isr=(1, 2))]), {"replicas": "1 (t-1) with replicas that are not in sync"}),
    (
        look([replace(WELL, isr=(1,))]),
        {"min ISR": "1 (t-0) where acks=all is refused", "replicas": "1 (t-0) with replicas that are not in sync"},
    ),
    (
        look([LEADERLESS] * 12),
        {
            "leaders": "12 (t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9, …) without a leader",
            "min ISR": "12 (t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9, …) where acks=all is refused",
            "replicas": ("12 (t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9, …) with replicas that are not in sync"),
        },
    ),
    (look(log_dirs={2: [log_dir(error_code=56)]}), {"data directories": "offline: /data of broker 2"}),
    (
        look(log_dirs={2: [log_dir(usable=10 * GIB)], 3: [log_dir(usable=GIB)]}),
        {"disks": "nearly full: /data of broker 3 (1 GiB free), /data of broker 2 (10 GiB free)"},
    ),
]


@pytest.mark.parametrize(("found", "problems"), PROBLEMS)
def test_problems_are_named(found, problems):
    assert {one.check: one.detail for one in judge(found) if one.is_problem} == problems


@pytest.mark.parametrize("silent", [None, [log_dir(total=None, usable=None)]])
def test_a_broker_that_does_not_tell_of_its_disks_is_named_and_no_problem(silent):
    checks = {one.check: one for one in judge(look(log_dirs={2: silent}))}
    assert checks["disks"] == ("disks", False, "at least 50 GiB free; not told by 2")


def test_a_move_is_no_problem_while_the_replicas_that_were_there_are_in_sync():
    moved = replace(WELL, replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    brokers = BROKERS | {4: BrokerMetadata(4, "127.0.0.1", 9094, None)}
    found = judge(look([moved], brokers=brokers, reassignments={("t", 0): Reassignment((4, 1, 2, 3), (4,), (3,))}))
    assert [one for one in found if one.is_problem] == []
    assert found[-1] == ("moves", False, "1 (t-0) under way")
