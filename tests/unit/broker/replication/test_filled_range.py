"""What ends where the filling of a damaged range has ended: the table of `filled_range`, each row."""

from itertools import product

import pytest

from millrace_broker.replication.filled_range import ended_range
from millrace_broker.storage import DamagedRange

DAMAGE = DamagedRange(10, 20, 1000, 2000, "damaged")
MISPLACED = DamagedRange(10, 10, 1000, 2000, "damaged")  # bytes whose offsets nobody misses
WIDER, WIDER_BEHIND = (one._replace(end_offset=30, end_position=3000) for one in (DAMAGE, MISPLACED))

ENDS = {
    "nothing was filled": (DAMAGE, WIDER, 10, DAMAGE),
    "a part": (DAMAGE, WIDER, 15, DAMAGE),
    "all of it, where there is no batch behind": (DAMAGE, DAMAGE, 20, DAMAGE),
    "nothing to fill, and no batch behind": (MISPLACED, MISPLACED, 10, MISPLACED),
    "a part of the batch behind": (DAMAGE, WIDER, 25, WIDER),
    "the batch behind": (DAMAGE, WIDER, 30, WIDER),
    "the batch behind, where nothing was to fill": (MISPLACED, WIDER_BEHIND, 30, WIDER_BEHIND),
}


@pytest.mark.parametrize(("damaged", "wider", "filled_to", "ended"), ENDS.values(), ids=ENDS)
def test_what_ends_whoever_heals(damaged, wider, filled_to, ended):
    found = {
        ended_range(damaged, wider, filled_to, is_full=is_full, is_follower=is_follower)
        for is_full, is_follower in product((False, True), repeat=2)
    }
    assert found == {ended}


@pytest.mark.parametrize(
    ("damaged", "is_full", "is_follower", "ended"),
    [
        (DAMAGE, True, True, WIDER),
        (DAMAGE, True, False, WIDER),
        (DAMAGE, False, True, None),
        (DAMAGE, False, False, DAMAGE),
        (MISPLACED, True, True, WIDER_BEHIND),
        (MISPLACED, True, False, WIDER_BEHIND),
        (MISPLACED, False, True, None),
        (MISPLACED, False, False, None),
    ],
)
def test_who_waits_for_the_batch_behind(damaged, is_full, is_follower, ended):
    wider = WIDER if damaged is DAMAGE else WIDER_BEHIND
    assert ended_range(damaged, wider, damaged.end_offset, is_full=is_full, is_follower=is_follower) == ended
