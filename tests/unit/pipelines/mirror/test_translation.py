"""Offsets translated by a map and the log on the other side: what is exact, what is moved, and what is refused."""

import pytest

from millrace.client.log_offsets import LogOffsets
from millrace_pipelines.mirror.offset_map import MappedRuns, OffsetMap, OffsetMapError, Run
from millrace_pipelines.mirror.translation import Fit, TranslatedOffset, in_log, source_offset, target_offset

EXACT, DELETED, AHEAD = Fit


def map_of(next_source, *runs):
    found = OffsetMap()
    if runs:
        found.go_on(MappedRuns(next_source, runs))
    return found


MAP = map_of(110, Run(100, 40, 3), Run(105, 43, 2))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (19, (20, DELETED)), (20, (20, EXACT)), (25, (25, EXACT)), (30, (30, EXACT)), (31, (30, AHEAD)),
        (0, (20, DELETED)), (2**62, (30, AHEAD)),
    ],
)  # fmt: skip
def test_an_offset_of_a_followed_topic_stays_as_it_is_within_the_log(offset, expected):
    assert in_log(offset, LogOffsets(20, 30)) == expected


@pytest.mark.parametrize(
    ("offset", "log", "expected"),
    [
        (0, (40, 46), (40, EXACT)),
        (100, (0, 46), (40, EXACT)),
        (103, (0, 46), (43, EXACT)),
        (105, (0, 46), (43, EXACT)),
        (107, (0, 46), (45, EXACT)),
        (110, (0, 46), (45, EXACT)),
        (111, (0, 46), (45, AHEAD)),
        (101, (42, 46), (42, DELETED)),
        (102, (42, 46), (42, EXACT)),
        (105, (46, 46), (46, DELETED)),
    ],
)
def test_an_offset_of_a_copied_topic_is_that_of_the_map(offset, log, expected):
    assert target_offset(offset, MAP, LogOffsets(*log)) == expected


@pytest.mark.parametrize(
    ("offset", "log", "expected"), [(0, (0, 0), (0, EXACT)), (50, (0, 0), (0, AHEAD)), (50, (7, 9), (9, AHEAD))]
)
def test_of_what_is_not_mirrored_yet_the_end_of_the_target_is_next(offset, log, expected):
    """And not the number that the offset has at the source."""
    assert target_offset(offset, map_of(0), LogOffsets(*log)) == expected


@pytest.mark.parametrize(
    ("offset", "log", "expected"),
    [
        (0, (0, 200), (100, EXACT)),
        (42, (0, 200), (102, EXACT)),
        (43, (0, 200), (105, EXACT)),
        (45, (0, 200), (110, EXACT)),
        (46, (0, 200), (110, EXACT)),
        (41, (102, 200), (102, DELETED)),
        (45, (0, 108), (108, AHEAD)),
    ],
)
def test_an_offset_of_the_target_is_that_of_the_map_back(offset, log, expected):
    assert source_offset(offset, MAP, LogOffsets(*log)) == expected


def test_who_read_a_target_without_records_begins_at_the_source():
    assert source_offset(0, map_of(0), LogOffsets(12, 20)) == TranslatedOffset(12)


def test_a_map_that_leads_above_the_log_translates_nothing():
    """The topic was deleted and created again at the target."""
    assert target_offset(100, MAP, LogOffsets(0, 40)) == TranslatedOffset(40)
    with pytest.raises(OffsetMapError, match="leads to offset 45, and the log ends at 40"):
        target_offset(107, MAP, LogOffsets(0, 40))
