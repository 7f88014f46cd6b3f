"""The check of groups that ZooKeeper coordinates: what counts as a fault, and how often it is looked for."""

import pytest

from millrace.client.consumer import Partition
from millrace.client.consumer.group_view import GroupOwnership, Owner, OwnershipFinding, ownership_findings
from millrace_pipelines.defs.cluster import LOOKS, examine, ownership_result

FIRST, SECOND = Partition("words", 0), Partition("words", 1)


def group(owners, members=None):
    return GroupOwnership("g", {"g_a": 7, "g_b": 8} if members is None else members, {FIRST, SECOND}, owners)


WHOLE = group({FIRST: Owner("g_a-0", 7), SECOND: Owner("g_b-0", 8)})
HALF = group({FIRST: Owner("g_a-0", 7)})


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (Owner("g_b-0", 8), None),
        (Owner("g_c-0", 9), "is held for g_c-0, which is no live member"),
        (Owner("g_b-0", 6), "is held for g_b-0 by an earlier session of that member"),
        (Owner("g_b-0", 0), "is held for g_b-0 by a node that ends with no session"),
        (None, "has no owner, though the group has members"),
    ],
)
def test_faults_are_named(owner, reason):
    owners = {FIRST: Owner("g_a-0", 7)} | ({} if owner is None else {SECOND: owner})
    expected = [] if reason is None else [OwnershipFinding("g", SECOND, reason)]
    assert ownership_findings(group(owners)) == expected


def test_a_group_that_nobody_consumes_with_has_no_fault_unless_an_owner_is_left():
    assert ownership_findings(GroupOwnership("g", {}, frozenset(), {})) == []
    [finding] = ownership_findings(GroupOwnership("g", {}, frozenset(), {FIRST: Owner("g_a-0", 7)}))
    assert str(finding) == "group g: words-0 is held for g_a-0, which is no live member"


def examined(looks):
    left, pauses = list(looks), []
    _, findings = examine(lambda: [left.pop(0)], lambda: pauses.append(None))
    return findings, len(pauses), left


def test_only_what_every_look_finds_is_a_fault():
    other = group({SECOND: Owner("g_b-0", 8)})
    assert examined([WHOLE]) == ([], 0, [])
    assert examined([HALF, HALF, WHOLE]) == ([], 2, [])
    assert examined([HALF, other]) == ([], 1, [])
    lasting = [OwnershipFinding("g", SECOND, "has no owner, though the group has members")]
    assert examined([HALF] * LOOKS) == (lasting, LOOKS - 1, [])


def test_a_result_says_what_was_found():
    passed, failed = ownership_result([WHOLE], []), ownership_result([HALF], ownership_findings(HALF))
    assert (passed.passed, passed.metadata["partitions owned"].value, passed.metadata["live members"].value) == (
        True, 2, 2,
    )  # fmt: skip
    assert (failed.passed, failed.description) == (False, "Partitions without a live owner: 1.")
    assert failed.metadata["findings"].value == "- group g: words-1 has no owner, though the group has members"
