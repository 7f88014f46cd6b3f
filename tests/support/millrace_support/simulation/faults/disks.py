"""Faults of brokers' disks: they run full, or are replaced by empty ones."""

from __future__ import annotations

import asyncio

from millrace_support.simulation.faults.breaker import Breaker, Faults
from millrace_support.simulation.faults.copies import is_struck

FAULTS = Faults()
IN_SYNC_AGAIN_S = 15.0  # a wiped replica may have left and come back, without being seen outside
FEWEST_COPIES = 2


@FAULTS.add
async def fill(breaker: Breaker) -> None:
    """Leaves no room on a disk."""
    broker = breaker.one()
    if broker is None:
        return
    breaker.note(f"the disk of broker {broker.id} is full")
    broker.fs.capacity_bytes = broker.fs.used_bytes + breaker.chance.randrange(500)
    if await breaker.lasts():
        breaker.note(f"the disk of broker {broker.id} has room again")
        broker.fs.capacity_bytes = None


@FAULTS.add
async def wipe(breaker: Breaker) -> None:
    """Wipes a disk, in a seed that loses anything of any broker, whatever else fails; else with care."""
    if breaker.simulation.settings.loses_anything:
        broker = breaker.chance.choice(list(breaker.brokers.values()))
        breaker.wipe(broker)
        await breaker.starts_again(broker)
    else:
        await _wipe_with_care(breaker)


async def _wipe_with_care(breaker: Breaker) -> None:
    """Wipes a disk while all is well, and has nothing else fail before its broker is out of the in-sync replicas."""
    broker = breaker.one()
    if broker is None or breaker.under_way > 1 or not _are_copied(breaker) or not _are_known(breaker):
        return
    breaker.wipe(broker)
    await asyncio.sleep(breaker.chance.uniform(0.3, 10))
    broker.start()
    out_by = breaker.simulation.loop.time() + IN_SYNC_AGAIN_S
    while breaker.simulation.loop.time() < out_by and _is_in_sync(breaker, broker.id):  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def _are_copied(breaker: Breaker) -> bool:
    """Returns whether all replicas are sound and in sync, each partition has several, and none is to have others."""
    replicas = breaker.simulation.replicas
    if replicas.are_changing or any(is_struck(breaker, breaker.brokers[one], key) for one, key in [*breaker.struck]):
        return False
    states = {key: breaker.simulation.state_of(key) for key in replicas}
    return all(
        state is not None and len(state.isr) == len(replicas[key]) >= FEWEST_COPIES for key, state in states.items()
    )


def _are_known(breaker: Breaker) -> bool:
    """Returns whether a controller knows the current registrations of all brokers.

    A controller that notices a restart late may take that broker out of the in-sync replicas, and leave the one whose
    disk is wiped among them.
    """
    running = [one for one in breaker.brokers.values() if one.is_running and not one.is_paused]
    epochs = {one.id: one.epoch for one in running}
    return len(running) == len(breaker.brokers) and any(one.controller.known_epochs() == epochs for one in running)


def _is_in_sync(breaker: Breaker, broker: int) -> bool:
    states = map(breaker.simulation.state_of, breaker.partitions)
    return any(state is not None and broker in state.isr for state in states)
