"""What makes a broker not live, or not ready: a choice over facts, and where refused appends are counted."""

import errno

import pytest

from millrace_broker.admin.health import Facts, Folder, judge
from millrace_broker.admin.vitals import REFUSAL_LASTS_MS, Vitals
from millrace_broker.storage import DirHealth
from millrace_support.clock import ManualClock

ONE = Folder("/one", None, 1 << 30, refuses_appends=False)
TWO = ONE._replace(path="/two")
OFFLINE = TWO._replace(offline_reason="/two/t-0: Input/output error")
WELL = Facts((ONE, TWO), 1 << 20, zookeeper_trouble=None, is_starting=False, loading_partitions=0, is_stopping=False)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        (
            {"folders": (ONE, OFFLINE)},
            "data directories",
            "data directory /two is offline: /two/t-0: Input/output error",
        ),
        ({"folders": (ONE._replace(free_bytes=99),)}, "disk", "the disk of /one is full: 99 bytes are free"),
        ({"folders": (ONE._replace(refuses_appends=True),)}, "disk", "the disk of /one is full: appends are refused"),
        ({"zookeeper_trouble": "the session has expired"}, "zookeeper", "the session has expired"),
        (
            {"unheeded_changes": ("quotas: not now",)},
            "metadata",
            "a change of the cluster has no effect yet: quotas: not now",
        ),
        ({"is_starting": True}, "loading", "its logs are being opened and recovered"),
        ({"loading_partitions": 3}, "loading", "coordinators are still loading 3 partitions"),
        ({"is_stopping": True}, "stopping", "the broker is stopping"),
    ],
)
def test_what_makes_a_broker_not_ready_is_named(changes, name, reason):
    health = judge(WELL._replace(**changes))
    assert health.not_live == ()
    (said,) = health.not_ready
    assert reason in said
    assert {check.name: bool(check.reasons) for check in health.checks}[name]
    assert sum(bool(check.reasons) for check in health.checks) == 1


def test_a_broker_that_is_well_is_ready():
    health = judge(WELL)
    assert health.not_live == health.not_ready == ()
    assert [check.name for check in health.checks] == [
        "data directories",
        "disk",
        "zookeeper",
        "metadata",
        "compaction",
        "damage",
        "loading",
        "stopping",
    ]


def test_a_log_that_can_not_be_compacted_is_named_and_keeps_nobody_away():
    health = judge(WELL._replace(uncompacted=("t-0: damaged",)))
    assert health.not_live == health.not_ready == ()
    assert {check.name: check.reasons for check in health.checks}["compaction"] == ("t-0: damaged",)


def test_without_any_folder_left_a_restart_is_all_that_helps():
    health = judge(WELL._replace(folders=(OFFLINE, OFFLINE._replace(path="/one"))))
    assert health.not_live == ("every data directory is offline; a restart opens them again",)
    assert len(health.not_ready) == 2


def test_an_operating_system_that_does_not_say_how_much_is_free_is_believed():
    assert judge(WELL._replace(folders=(ONE._replace(free_bytes=None),))).not_ready == ()


class NoStore:
    def trouble(self):
        return None


class Led:
    def __init__(self, led, loaded):
        self.all, self.loaded = (lambda: [None] * led), (lambda: [None] * loaded)


def test_partitions_that_coordinators_have_not_read_are_counted():
    vitals = Vitals(NoStore(), ManualClock(0), lambda: 1)
    assert vitals.facts().is_starting
    vitals.is_starting = False
    vitals.shards = [Led(50, 48), Led(50, 49)]
    assert vitals.facts().loading_partitions == 3
    vitals.shards = [Led(50, 50), Led(0, 0)]
    assert judge(vitals.facts()).not_ready == ()


def test_a_refused_append_counts_until_none_was_refused_for_a_while(tmp_path):
    clock, folder = ManualClock(0), DirHealth(str(tmp_path))
    vitals = Vitals(NoStore(), clock, lambda: 1)
    vitals.folders = [folder]

    def refuses():
        return vitals.facts().folders[0].refuses_appends

    assert not refuses()
    folder.note_refusal(OSError(errno.EIO, "no matter of room"))
    assert not refuses()
    folder.note_refusal(OSError(errno.ENOSPC, "full"))
    assert refuses()
    clock.advance(REFUSAL_LASTS_MS - 1)
    assert refuses()
    folder.note_refusal(OSError(errno.EDQUOT, "full"))
    assert refuses()
    clock.advance(REFUSAL_LASTS_MS - 1)
    assert refuses()
    clock.advance(1)
    assert not refuses()
