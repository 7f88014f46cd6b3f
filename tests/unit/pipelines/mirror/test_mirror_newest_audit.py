"""Where the comparison of the newest records begins at the target."""

import pytest

from millrace_pipelines.mirror.newest_audit import behind
from millrace_pipelines.mirror.offset_map import OffsetMap, Run


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, 0), (10, 0), (11, 101), (15, 105), (17, 105), (20, 105), (21, 121), (23, 123), (99, 123)],
)
def test_the_place_behind_the_last_mirrored_record(offset, expected):
    """Between the runs, at 105 up to 119, the target may have records of somebody else."""
    mapped = OffsetMap()
    mapped.add(Run(10, 100, 5))
    mapped.add(Run(20, 120, 3))
    assert behind(mapped, offset) == expected
