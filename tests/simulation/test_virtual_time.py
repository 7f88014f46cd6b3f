"""The event loop of simulations: time jumps, threads are none, and the same seed gives the same order."""

import asyncio
from random import Random

import pytest

from millrace_support.simulation.virtual_time import (
    BusyForEverError,
    NothingToWaitForError,
    VirtualClock,
    VirtualTimeLoop,
)


def order_of(seed):
    loop = VirtualTimeLoop(Random(seed))
    done = []

    async def work(name):
        await asyncio.sleep(0.001)
        await asyncio.to_thread(done.append, name)

    async def everything():
        await asyncio.gather(*map(work, range(10)))

    loop.run_until_complete(everything())
    loop.close()
    return done


def test_an_hour_passes_at_once():
    loop = VirtualTimeLoop(Random(1))
    clock = VirtualClock(loop)
    loop.run_until_complete(asyncio.sleep(3600))
    assert clock.monotonic_ms() == 3_600_000
    loop.close()


def test_timers_fire_in_the_order_of_their_times():
    loop = VirtualTimeLoop(Random(1))
    fired = []
    for delay_s in (3, 1, 2):
        loop.call_later(delay_s, fired.append, delay_s)
    loop.run_until_complete(asyncio.sleep(5))
    assert fired == [1, 2, 3]
    loop.close()


def test_work_of_threads_is_done_in_an_order_that_the_seed_decides():
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(5)}) > 1


def test_errors_of_a_thread_reach_the_caller():
    loop = VirtualTimeLoop(Random(1))

    async def failing():
        await asyncio.to_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        loop.run_until_complete(failing())
    loop.close()


def test_a_program_that_would_hang_is_refused():
    loop = VirtualTimeLoop(Random(1))
    with pytest.raises(NothingToWaitForError):
        loop.run_until_complete(loop.create_future())
    loop.close()


@pytest.mark.parametrize("delay_s", [-0.001, 0.0])
def test_a_timer_that_sets_itself_at_once_does_not_hang(delay_s):
    loop = VirtualTimeLoop(Random(1))

    def again():
        loop.call_later(delay_s, again)

    again()
    with pytest.raises(BusyForEverError):
        loop.run_until_complete(asyncio.sleep(1))
    loop.close()
