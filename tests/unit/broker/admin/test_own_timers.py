"""When the broker's own timers do retention and compaction, and when requests from outside do."""

import logging

import pytest

from millrace_broker.admin.maintenance import OwnTimer, is_own_turn
from millrace_support.clock import ManualClock


@pytest.mark.parametrize(
    ("last_request_ms", "interval_ms", "now_ms", "expected"),
    [
        (0, -1, 0, True),
        (0, -1, 10**12, True),
        (0, 1_000, 0, False),
        (0, 1_000, 2_999, False),
        (0, 1_000, 3_000, True),
        (500, 1_000, 3_000, False),
        (500, 1_000, 3_500, True),
        (0, 0, 0, True),
    ],
)
def test_the_timer_steps_in_after_three_intervals_without_a_request(last_request_ms, interval_ms, now_ms, expected):
    assert is_own_turn(last_request_ms=last_request_ms, interval_ms=interval_ms, now_ms=now_ms) is expected


def test_each_change_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    clock = ManualClock(0)
    timer = OwnTimer("retention", 1_000, clock)
    turns = []
    for _ in range(5):
        clock.advance(1_000)
        turns.append(timer.is_own_turn())
    timer.note_request()
    timer.note_request()
    turns.append(timer.is_own_turn())
    assert turns == [False, False, True, True, True, False]
    steps_in, stands_back = [record.message for record in caplog.records]
    assert steps_in == (
        "retention has not been requested for 3 intervals of maintenance.request.interval.ms=1000; "
        "the broker's own timer steps in"
    )
    assert stands_back == "retention is requested from outside again; the broker's own timer stands back"


def test_without_an_interval_requests_change_nothing(caplog):
    caplog.set_level(logging.INFO)
    timer = OwnTimer("retention", -1, ManualClock(0))
    timer.note_request()
    assert timer.is_own_turn()
    assert caplog.records == []
