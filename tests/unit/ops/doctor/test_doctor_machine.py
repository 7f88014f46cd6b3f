"""What the facts of a machine and of what is installed mean."""

from dataclasses import replace

import pytest

from millrace_ops.doctor.machine import MachineFacts, SoftwareFacts, check_machine, check_software, read_machine

GIB = 1 << 30
GOOD = MachineFacts(
    open_files=65_536,
    memory_bytes=16 * GIB,
    swap_bytes=8 * GIB,
    swappiness=1,
    dirty_background_percent=5,
    dirty_percent=40,
    clock_is_synchronized=True,
)
UNTOLD = MachineFacts(
    open_files=None,
    memory_bytes=None,
    swap_bytes=None,
    swappiness=None,
    dirty_background_percent=None,
    dirty_percent=None,
    clock_is_synchronized=None,
)
INSTALLED = SoftwareFacts(
    version="1",
    python="CPython 3.11",
    kernel="compiled",
    kernel_trouble=None,
    broker_trouble=None,
    java="version 17, /usr/bin/java",
    java_trouble=None,
)


def levels(findings):
    """The levels of those that are not well."""
    return {one.thing: one.level.value for one in findings if one.level != "ok"}


def test_a_good_machine_has_nothing_to_change():
    findings = list(check_machine(GOOD, files=0))
    assert len(findings) == 6
    assert {(one.level.value, one.change) for one in findings} == {("ok", "")}


@pytest.mark.parametrize(
    ("fact", "value", "level"),
    [
        ("open_files", 4_095, "advice"),
        ("open_files", 1_023, "problem"),
        ("memory_bytes", GIB - 1, "advice"),
        ("memory_bytes", 255 << 20, "problem"),
        ("swappiness", 60, "advice"),
        ("dirty_background_percent", 20, "advice"),
        ("dirty_percent", 5, "advice"),
        ("clock_is_synchronized", False, "advice"),
    ],
)
def test_each_fact_is_judged_by_itself(fact, value, level):
    bad = [one for one in check_machine(replace(GOOD, **{fact: value}), files=0) if one.level != "ok"]
    assert [one.level.value for one in bad] == [level]
    assert bad[0].found
    assert bad[0].wanted
    assert bad[0].change


def test_swappiness_counts_where_there_is_swap():
    assert levels(check_machine(replace(GOOD, swappiness=60, swap_bytes=0), files=0)) == {}


def test_more_files_want_more_descriptors():
    (finding,) = (one for one in check_machine(replace(GOOD, open_files=10_000), files=9_000) if one.level != "ok")
    assert (finding.thing, finding.wanted) == ("open files", "12000 or more")


def test_what_a_machine_does_not_tell_is_left_out():
    assert [one.thing for one in check_machine(UNTOLD, files=0)] == ["open files"]


def test_this_machine_tells_of_its_descriptors():
    assert read_machine().open_files != 0


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (INSTALLED, {}),
        (replace(INSTALLED, kernel="Python's", kernel_trouble="built without"), {"record kernel": "advice"}),
        (replace(INSTALLED, broker_trouble="it needs the extra"), {"packages of the broker": "problem"}),
        (replace(INSTALLED, java=None, java_trouble="there is none"), {"Java": "advice"}),
    ],
)
def test_what_is_missing_is_named(facts, expected):
    assert levels(check_software(facts)) == expected
