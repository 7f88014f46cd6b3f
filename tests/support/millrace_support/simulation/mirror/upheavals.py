"""What befalls a mirror in some seeds beside faults of brokers, of their connections and of its instances.

RESTORED     the source's disks are those of a backup, and others write its logs on until they end where they did
RECREATED    a topic of the source is deleted and created again, and written until it ends where it did
PURGED       all records of the source are deleted while the mirror is away
FORGOTTEN    the offsets of the mirror's group are deleted at the target, as when they expire
DAMAGED      bits of batches flip on their way to the mirror and from it (`mishaps`)
UNANSWERED   the answers to commits and appends that were done are lost, again and again (`mishaps`)
STRUCK       leaders of the target are killed as soon as they have said that mirroring has ended

The first four come once, when all else has healed and while all is still written. Meanwhile the mirror is away: its
instances are killed, or sleep. All of it is decided by a chance of its own, which leaves other seeds as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError
from millrace_support.simulation.mirror.doors import Door
from millrace_support.simulation.mirror.settings import Upheaval
from millrace_support.simulation.mirror.target_clients import TargetClient
from millrace_support.simulation.workloads.drawn import TOPIC

if TYPE_CHECKING:
    from millrace_broker.storage import TopicPartition
    from millrace_support.simulation.mirror.cluster import SimulatedCluster
    from millrace_support.simulation.mirror.simulation import MirrorSimulation

OPERATOR = 513
WELL_WITHIN_S, WRITTEN_WITHIN_S, GONE_WITHIN_S = 30.0, 20.0, 20.0
BACKED_UP_S, AWAY_S, ASLEEP = (0.5, 3.0), (0.5, 2.0), 0.4
STARTS_AFTER_S = (0.3, 2.0)
RECREATED_ID = UUID(int=91)


async def restore(simulation: MirrorSimulation) -> None:
    """Puts disks of a while ago in the place of all of the source's, which is written on."""
    source, chance = simulation.source, simulation.chance
    backup = {one: broker.fs.after_kill() for one, broker in source.brokers.items()}
    simulation.note("the source is backed up")
    await asyncio.sleep(chance.uniform(*BACKED_UP_S))
    await _put_away(simulation)
    ends = _ends(simulation)
    source.look()
    for one, broker in source.brokers.items():
        for key in source.promises.strike(one, is_synced=False):
            source.note(f"{key} may lose what was committed")
        broker.die()
        broker.fs = backup[one]
    simulation.note(f"the source is restored; it was mirrored to {ends}")
    for broker in source.brokers.values():
        broker.start()
    await _written(simulation, ends)


async def recreate(simulation: MirrorSimulation) -> None:
    """Deletes the topic that all write to, and creates it again."""
    source = simulation.source
    await _put_away(simulation)
    ends = {key: end for key, end in _ends(simulation).items() if key.topic == TOPIC}
    simulation.judge.recreated(list(ends))
    before = source.replicas.topic(TOPIC)
    assert before is not None
    source.delete_topic(TOPIC)
    if not await _until(simulation, lambda: TOPIC not in source.replicas.names(), GONE_WITHIN_S):
        source.judge.anomaly(f"topic {TOPIC} is not deleted")
        return
    source.create_topic(TOPIC, replace(before, topic_id=RECREATED_ID))
    await _written(simulation, ends)


async def purge(simulation: MirrorSimulation) -> None:
    """Deletes all records that the source has."""
    await _put_away(simulation)
    door = Door(simulation.source, OPERATOR, "operator")
    for key in simulation.mirrored():
        try:
            start = await door.delete_records(key, (await door.ends(key)).end)
            simulation.note(f"source: all below offset {start} of {key} is deleted")
        except MillraceError as error:
            simulation.note(f"source: no records of {key} are deleted: {error}")
    door.close()
    await asyncio.sleep(simulation.chance.uniform(*AWAY_S))


async def forget(simulation: MirrorSimulation) -> None:
    """Deletes the group of the mirror, once its members are gone."""
    await _put_away(simulation, may_sleep=False)
    client = TargetClient(simulation.target, OPERATOR, "operator", "operator")
    deadline = simulation.loop.time() + GONE_WITHIN_S
    while simulation.loop.time() < deadline:
        await asyncio.sleep(1)
        try:
            code = await client.delete_group()
        except MillraceError:
            continue
        if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            simulation.note(f"target: the group of the mirror is deleted: {code.name}")
            break
    client.close()


EVENTS: Mapping[Upheaval, Callable[[MirrorSimulation], Coroutine[Any, Any, None]]] = {
    Upheaval.RESTORED: restore,
    Upheaval.RECREATED: recreate,
    Upheaval.PURGED: purge,
    Upheaval.FORGOTTEN: forget,
}


async def play_upheaval(simulation: MirrorSimulation) -> None:
    """Plays what comes once, when all is well again."""
    event = EVENTS.get(simulation.settings.upheaval)
    if event is not None:
        await _until(simulation, lambda: _are_well(simulation.source, simulation.target), WELL_WITHIN_S)
        await event(simulation)
        simulation.note("the mirror comes back")
        for instance in simulation.instances:
            instance.resume()
            instance.start()


async def strike(simulation: MirrorSimulation, key: TopicPartition) -> None:
    """Kills the leader of a partition of the target, and starts it again."""
    leader = simulation.target.leader(key)
    broker = None if leader is None else simulation.target.brokers[leader]
    if broker is not None and broker.is_running and not broker.is_paused:
        simulation.note(f"target: broker {broker.id}, which leads {key}, is killed")
        broker.die()
        await asyncio.sleep(simulation.chance.uniform(*STARTS_AFTER_S))
        if not broker.is_running:
            simulation.note(f"target: broker {broker.id} starts")
            broker.start()


def _are_well(*clusters: SimulatedCluster) -> bool:
    return all(cluster.is_led(key) for cluster in clusters for key in cluster.replicas)


async def _put_away(simulation: MirrorSimulation, *, may_sleep: bool = True) -> None:
    """Kills the instances or lets them sleep, and waits until what they have asked for is done."""
    sleeps = may_sleep and simulation.chance.random() < ASLEEP
    simulation.note(f"the mirror {'sleeps' if sleeps else 'is killed'}")
    for instance in simulation.instances:
        instance.pause() if sleeps else instance.kill()
    await asyncio.sleep(simulation.chance.uniform(*AWAY_S))


def _ends(simulation: MirrorSimulation) -> dict[TopicPartition, int]:
    """Returns where the logs end that are to be written again: where readers may be of them."""
    return {key: simulation.end(simulation.source, key) or 0 for key in simulation.mirrored()}


async def _written(simulation: MirrorSimulation, ends: Mapping[TopicPartition, int]) -> None:
    """Waits until the source's logs end there again, or beyond."""

    def are_there() -> bool:
        return all((simulation.end(simulation.source, key) or 0) >= end for key, end in ends.items())

    await _until(simulation, are_there, WRITTEN_WITHIN_S)


async def _until(simulation: MirrorSimulation, is_so: Callable[[], bool], longest_s: float) -> bool:
    deadline = simulation.loop.time() + longest_s
    while not (found := is_so()) and simulation.loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return found
