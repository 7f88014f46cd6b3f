"""Which stops of partitions an instance writes down, and which it removes."""

import pytest

from millrace_pipelines.mirror.counters import Counters
from millrace_pipelines.mirror.known_stops import changes
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import KnownStop
from millrace_pipelines.mirror.stops import Mirrored, foreign, purged

WHAT = Mirrored("orders", "east.orders", 3)
STOP = purged(WHAT, 3, 6)
TOLD = KnownStop("purged", STOP.reason)
PLACE = ("east/orders", 3)


@pytest.mark.parametrize(("line", "known", "expected"), [
    ({"stop": STOP}, None, {PLACE: TOLD}),
    ({"stop": STOP}, TOLD, {}),
    ({"stop": foreign(WHAT)}, TOLD, {PLACE: KnownStop("foreign", foreign(WHAT).reason)}),
    ({"next_offset": 6}, TOLD, {PLACE: None}),
    ({"next_offset": 6}, None, {}),
    ({}, TOLD, {}),  # it has not been looked at yet
    ({"next_offset": 6, "trouble": "the source is away"}, TOLD, {}),
])  # fmt: skip
def test_what_has_changed_is_written(line, known, expected):
    counters = Counters()
    counters.line("west", WHAT, Way.COPY).stop = STOP
    for name, value in line.items():
        setattr(counters.line("east", WHAT, Way.COPY), name, value)
    stops = {} if known is None else {"east/orders": {3: known}}
    assert changes("east", counters.read(), stops) == expected
