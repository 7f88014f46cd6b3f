import pytest

from millrace_support.clock import ManualClock


def test_time_passes_only_when_it_is_told_to() -> None:
    clock = ManualClock(now_ms=1000)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1250, 250)
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1)
