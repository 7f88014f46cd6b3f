"""Faults of a mirror's seed: those of the brokers of both clusters, and those of the mirror's instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from millrace_support.simulation.faults import clocks, connections, processes
from millrace_support.simulation.faults.breaker import Breaker, Fault
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.swarm.mix import Mix

if TYPE_CHECKING:
    from millrace_support.simulation.mirror.simulation import MirrorSimulation

OF_SEVERAL_BROKERS = (processes.black_out, connections.cut, connections.isolate)
LONGEST_S, LONGEST_SLEEP_S = 4.0, 7.0  # a session lasts three seconds
MirrorFault = Callable[["MirrorBreaker"], Coroutine[Any, Any, None]]


class MirrorBreaker:
    """What breaks instances of the mirror, and their connections."""

    def __init__(self, simulation: MirrorSimulation) -> None:
        self.simulation = simulation
        self.chance = simulation.chance
        self.is_over = False

    async def lasts(self, longest_s: float = LONGEST_S) -> bool:
        """Waits a while; returns whether the fault is to be mended then."""
        await asyncio.sleep(self.chance.uniform(0.2, longest_s))
        return not self.is_over


async def kill_instance(breaker: MirrorBreaker) -> None:
    """Kills an instance, and starts it again."""
    instance = breaker.chance.choice(breaker.simulation.instances)
    if instance.is_running:
        breaker.simulation.note(f"instance {instance.machine} is killed")
        instance.kill()
        if await breaker.lasts():
            breaker.simulation.note(f"instance {instance.machine} starts")
            instance.start()


async def pause_instance(breaker: MirrorBreaker) -> None:
    """Lets an instance sleep; what it has sent arrives when it wakes up."""
    instance = breaker.chance.choice(breaker.simulation.instances)
    if instance.is_running and not instance.is_paused:
        breaker.simulation.note(f"instance {instance.machine} sleeps")
        instance.pause()
        if await breaker.lasts(LONGEST_SLEEP_S) and instance.is_paused:
            breaker.simulation.note(f"instance {instance.machine} wakes up")
            instance.resume()


async def cut_instance(breaker: MirrorBreaker) -> None:
    """Cuts an instance off from a broker."""
    simulation = breaker.simulation
    instance = breaker.chance.choice(simulation.instances)
    broker = breaker.chance.choice([*simulation.source.brokers, *simulation.target.brokers])
    simulation.note(f"instance {instance.machine} is cut off from broker {broker}")
    simulation.network.cut(instance.machine, broker)
    if await breaker.lasts():
        simulation.network.heal(instance.machine, broker)


OF_INSTANCES: Mapping[str, MirrorFault] = {one.__name__: one for one in (kill_instance, pause_instance, cut_instance)}


def kinds_of(cluster: SimulatedCluster, *, is_compacted: bool) -> Mapping[str, Fault]:
    """Returns the kinds of faults that a cluster may have.

    Where a topic is compacted no clock jumps: what a tombstone or a marker says is gone when the mirror comes too late.
    """
    found = {**processes.FAULTS, **connections.FAULTS, **({} if is_compacted else clocks.FAULTS)}
    if len(cluster.brokers) > 1:
        return found
    return {name: fault for name, fault in found.items() if fault not in OF_SEVERAL_BROKERS}


async def play_faults(simulation: MirrorSimulation, duration_s: float) -> None:
    """Lets faults begin for so long, each at one of the clusters or of the mirror's instances."""
    loop, chance = simulation.loop, simulation.chance
    is_compacted = simulation.settings.compaction
    of_clusters = [
        (kinds, Mix.drawn(chance, kinds), Breaker(cast("Any", one), LONGEST_S))
        for one in (simulation.source, simulation.target)
        for kinds in (kinds_of(one, is_compacted=is_compacted),)
    ]
    of_instances, breaker = Mix.drawn(chance, OF_INSTANCES), MirrorBreaker(simulation)
    for mix in (*(mix for _, mix, _ in of_clusters), of_instances):
        simulation.note(f"{mix}")
    end_s = loop.time() + duration_s
    while loop.time() < end_s:
        await asyncio.sleep(chance.uniform(0.1, of_instances.longest_pause_s / 2))
        if chance.random() < 0.4:
            simulation.spawn(OF_INSTANCES[of_instances.pick(chance)](breaker))
        else:
            kinds, mix, of_cluster = chance.choice(of_clusters)
            simulation.spawn(kinds[mix.pick(chance)](of_cluster))
    await asyncio.sleep(0)
    breaker.is_over = True
    for _, _, of_cluster in of_clusters:
        of_cluster.is_over = True
