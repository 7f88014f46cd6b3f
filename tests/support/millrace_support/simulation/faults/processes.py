"""Faults of brokers' processes: they die, lose their power, shut down, sleep, or are taken for ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from millrace.errors import MillraceError
from millrace_broker.controller.claims import depose_controller, other_controller
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.faults.breaker import Breaker, Faults
from millrace_support.simulation.simulated_broker import SimulatedBroker

FAULTS = Faults()
WIPED, POWERLESS = 0.1, 0.5  # of the ends of processes, where their machines may lose so much
LOOKS, LOOKS_AGAIN_S, LONGEST_AIM_S = 50, 0.1, 0.5  # of the fault that waits until the state of a partition changes


@FAULTS.add
async def kill(breaker: Breaker) -> None:
    """Kills a broker."""
    broker = breaker.one()
    if broker is not None:
        await _end(breaker, broker)


@FAULTS.add
async def kill_leader(breaker: Breaker) -> None:
    """Kills the leader of a partition."""
    await _end_leader(breaker, breaker.chance.choice(breaker.partitions))


@FAULTS.add
async def strike(breaker: Breaker) -> None:
    """Kills a leader soon after the leader or the ISR of a partition has changed, or after a while."""
    key = breaker.chance.choice(breaker.partitions)
    before = breaker.simulation.version_of(key)
    for _ in range(LOOKS):
        await asyncio.sleep(LOOKS_AGAIN_S)
        if breaker.simulation.version_of(key) != before:
            await asyncio.sleep(breaker.chance.uniform(0, LONGEST_AIM_S))
            break
    if not breaker.is_over:
        await _end_leader(breaker, key)


async def _end_leader(breaker: Breaker, key: TopicPartition) -> None:
    state = breaker.simulation.state_of(key)
    leader = None if state is None else breaker.brokers.get(state.leader)
    if leader is not None and leader.is_running and not leader.is_paused:
        await _end(breaker, leader)


async def _end(breaker: Breaker, broker: SimulatedBroker) -> None:
    settings, chance = breaker.simulation.settings, breaker.chance.random()
    if settings.loses_anything and chance < WIPED:
        breaker.wipe(broker)
    elif (settings.loses_anything or settings.is_flushing) and chance < POWERLESS:
        breaker.cut_power(broker)
    else:
        breaker.note(f"broker {broker.id} is killed")
        broker.die()
    await breaker.starts_again(broker)


@FAULTS.add
async def black_out(breaker: Breaker) -> None:
    """Takes the power from several machines at once, also from those whose brokers are down already."""
    settings = breaker.simulation.settings
    if not settings.loses_anything and not settings.is_flushing:
        return
    struck = breaker.chance.sample(list(breaker.brokers.values()), breaker.chance.randint(2, len(breaker.brokers)))
    for broker in struck:
        breaker.cut_power(broker)
    await asyncio.gather(*map(breaker.starts_again, struck))


@FAULTS.add
async def shut_down(breaker: Breaker) -> None:
    """Stops a broker in order."""
    broker = breaker.one()
    if broker is not None:
        breaker.note(f"broker {broker.id} shuts down")
        await broker.shut_down()
        await breaker.starts_again(broker)


@FAULTS.add
async def pause(breaker: Breaker) -> None:
    """Lets a broker sleep."""
    broker = breaker.one()
    if broker is None:
        return
    starts = broker.starts
    breaker.note(f"broker {broker.id} sleeps")
    broker.pause()
    if await breaker.lasts() and broker.is_paused and broker.starts == starts:
        breaker.note(f"broker {broker.id} wakes up")
        broker.resume()


@FAULTS.add
async def take_for_ended(breaker: Breaker) -> None:
    """Has a broker that lives be taken for ended, as where its listener is gone for a moment."""
    broker, by = breaker.one(), breaker.one()
    if broker is None or by is None:
        return
    breaker.note(f"broker {broker.id} is taken for ended")
    with suppress(MillraceError):  # cut off from ZooKeeper, or not the controller any more
        session: Any = by.session
        controller = other_controller(session)
        if controller is not None and controller[0].id == broker.id and controller[0].registers_again:
            depose_controller(session, *controller)
    for one in breaker.brokers.values():
        if one.is_running and (epoch := one.controller.known_epochs().get(broker.id)) is not None:
            one.controller.take_for_ended(broker.id, epoch)
