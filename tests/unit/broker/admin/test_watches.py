"""Which moves of the wall clock count as steps."""

import asyncio

import pytest

from millrace_broker.admin.chores import ClockSteps
from millrace_broker.metrics import ClockCounts, ClockStep
from millrace_support.clock import ManualClock


class SteppedClock(ManualClock):
    """Its wall clock alone can be set, and reading it can take a while."""

    step_ms = 0
    reading_takes_ms = 0

    def now_ms(self):
        self.advance(self.reading_takes_ms)
        return super().now_ms() + self.step_ms


def watched(*moves):
    """Returns the counts after looks at a clock; each move is (step, time that passes, time that a reading takes)."""

    async def look():
        clock, counts = SteppedClock(), ClockCounts()
        steps = ClockSteps(clock, counts)
        for step_ms, passes_ms, clock.reading_takes_ms in moves:
            clock.step_ms += step_ms
            clock.advance(passes_ms)
            steps.look()
        return counts

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([(0, 1_000, 0), (0, 60_000, 0)], (0, 0.0)),
        ([(999, 1_000, 0), (-999, 1_000, 0)], (0, 0.0)),
        ([(3_600_000, 1_000, 0), (0, 1_000, 0)], (1, 3600.0)),
        ([(-1_000, 1_000, 0)], (1, -1.0)),
        ([(5_000, 1_000, 0), (-5_000, 1_000, 0)], (2, 0.0)),
        ([(0, 1_000, 2_000), (0, 1_000, 0)], (0, 0.0)),
        ([(5_000, 1_000, 2_000), (0, 1_000, 0)], (1, 5.0)),
    ],
    ids=["none", "small", "forward", "back", "forward and back", "held up in a reading", "seen by the next reading"],
)
def test_steps_are_counted(moves, expected):
    counts = watched(*moves)
    assert (counts.steps, counts.stepped_s) == expected


def test_the_last_step_is_remembered_with_its_time():
    began_ms = ManualClock().monotonic_ms()
    counts = watched((3_600_000, 1_000, 0), (-5_000, 1_000, 0), (0, 1_000, 0))
    assert counts.last == ClockStep(-5.0, began_ms + 2_000)
    assert watched((0, 1_000, 0)).last is None


def test_a_step_is_logged(caplog):
    watched((-3_600_000, 1_000, 0))
    assert caplog.messages == [
        "the machine's clock was set back by 3600.000 s: retention and the times of records follow it"
    ]
