"""Plays the faults of a seed: what brokers, disks, the network and ZooKeeper suffer by chance, each for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from millrace_support.simulation.faults import clocks, connections, damage, disks, processes, releases, topic_changes
from millrace_support.simulation.faults.breaker import Breaker, Fault
from millrace_support.simulation.swarm.mix import Mix
from millrace_support.simulation.swarm.settings import Settings

OF_ALL_SEEDS: Mapping[str, Fault] = {
    **processes.FAULTS,
    **connections.FAULTS,
    **disks.FAULTS,
    **clocks.FAULTS,
    **topic_changes.FAULTS,
}
FAULTS: Mapping[str, Fault] = {**OF_ALL_SEEDS, **damage.FAULTS, **releases.FAULTS}
ALONE = (disks.wipe,)  # no other fault begins before it is over, unless anything may be lost


def kinds_of(settings: Settings, *, has_two_releases: bool) -> Mapping[str, Fault]:
    """Returns the kinds of faults that a seed may have.

    Files are damaged only where the copies of their records stay, and all brokers heal, which the former release's do
    not.
    """
    if has_two_releases:
        return {**OF_ALL_SEEDS, **releases.FAULTS}
    return OF_ALL_SEEDS if settings.loses_anything else {**OF_ALL_SEEDS, **damage.FAULTS}


async def play_faults(breaker: Breaker, mix: Mix, duration_s: float) -> None:
    """Lets faults begin for so long, and does not wait for their ends."""
    loop = breaker.simulation.loop
    end = loop.time() + duration_s
    while loop.time() < end:
        await asyncio.sleep(breaker.chance.uniform(0.2, mix.longest_pause_s))
        fault = FAULTS[mix.pick(breaker.chance)]
        breaker.under_way += 1
        task = loop.create_task(fault(breaker))
        task.add_done_callback(lambda _: _ended(breaker))
        if fault in ALONE and not breaker.simulation.settings.loses_anything:
            await task
    await asyncio.sleep(0)
    breaker.is_over = True


def _ended(breaker: Breaker) -> None:
    breaker.under_way -= 1
