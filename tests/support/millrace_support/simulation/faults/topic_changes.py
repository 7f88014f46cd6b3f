"""What administrators change while all goes on: replicas, the number of partitions, and which topics there are.

Topics are deleted and created again under the same name, which nothing else is: only `renewed` suffers that. It is not
reassigned, as a broker that was down then keeps the log, which the deletion passes over.

A controller of the former release may elect leaders of a topic that it deletes. They make the deleted logs again, and
can't serve the next topic of the name. So nothing is demanded of a topic any more that such a controller has deleted.
Nor is it asked to cancel a reassignment, or to send it elsewhere: it deletes the replicas that were added, also where
they alone are in sync.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from millrace.errors import MillraceError
from millrace.zk import codec, paths
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.faults.breaker import Breaker, Faults
from millrace_support.simulation.faults.copies import is_struck
from millrace_support.simulation.releases.releases import is_former
from millrace_support.simulation.workloads.drawn import RENEWED_TOPIC

FAULTS = Faults()
ANSWERED_WITHIN_S = 2.0
MOST_PARTITIONS = 4
CANCELS = 0.3


@FAULTS.add
async def reassign(breaker: Breaker) -> None:
    """Adds, removes or swaps a replica of a partition, or cancels that."""
    key = breaker.chance.choice([one for one in breaker.partitions if one.topic != RENEWED_TOPIC])
    replicas = breaker.simulation.replicas[key]
    if any(is_struck(breaker, breaker.brokers[one], key) for one in replicas):
        return  # the only sound copy might go
    target = _target(breaker, replicas)
    await _reassign(breaker, key, target)
    if breaker.chance.random() < CANCELS and await breaker.lasts():
        await _reassign(breaker, key, None)


def _target(breaker: Breaker, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Returns replicas in another order, with one more or one less, or with one in place of another."""
    chance = breaker.chance
    kept, others = chance.sample(replicas, len(replicas)), [one for one in breaker.brokers if one not in replicas]
    removes, adds = chance.choice([(0, 1), (1, 0), (1, 1), (1, 1), (2, 2)])
    added = chance.sample(others, min(adds, len(others)))
    return tuple(added + kept[min(removes, len(kept) - 1) if not added else removes :]) or replicas


async def _reassign(breaker: Breaker, key: TopicPartition, target: tuple[int, ...] | None) -> None:
    controller = breaker.controller()
    if controller is None or not controller.is_running or controller.is_paused:
        return
    topic = breaker.simulation.replicas.topic(key.topic)
    if is_former(controller) and topic is not None and topic.adding_replicas.get(key.partition):
        return
    asked = controller.controller.asked(lambda active: active.reassign({key: target}))
    outcome = "no answer"
    with suppress(MillraceError, TimeoutError):
        outcomes = await asyncio.wait_for(asyncio.wrap_future(asked), ANSWERED_WITHIN_S)
        outcome = outcomes[key].name
    what = "does not move any more" if target is None else f"goes to {target}"
    breaker.note(f"{key} {what}: {outcome}")


@FAULTS.add
async def grow(breaker: Breaker) -> None:
    """Gives a topic another partition."""
    simulation = breaker.simulation
    topic = simulation.replicas.topic(RENEWED_TOPIC)
    if topic is None or simulation.replicas.is_deleted(RENEWED_TOPIC) or len(topic.replicas) >= MOST_PARTITIONS:
        return
    added = breaker.chance.sample(sorted(breaker.brokers), simulation.settings.replicas)
    breaker.note(f"topic {RENEWED_TOPIC} gets another partition")
    simulation.judge.begins(TopicPartition(RENEWED_TOPIC, len(topic.replicas)))
    _write(breaker, replace(topic, replicas=(*topic.replicas, tuple(added))))


@FAULTS.add
async def delete(breaker: Breaker) -> None:
    """Deletes a topic, and creates it again once it is gone, under another id."""
    simulation = breaker.simulation
    topic = simulation.replicas.topic(RENEWED_TOPIC)
    if topic is None or simulation.replicas.is_deleted(RENEWED_TOPIC):
        return
    breaker.note(f"topic {RENEWED_TOPIC} is deleted")
    keys = [TopicPartition(RENEWED_TOPIC, index) for index in range(len(topic.replicas))]
    for key in keys:
        logs = (broker.open_log(key) for broker in breaker.brokers.values())
        simulation.judge.ends(key, [log for log in logs if log is not None])
    begun_s = simulation.loop.time()
    simulation.zookeeper.put(paths.delete_topic(RENEWED_TOPIC), b"")
    while RENEWED_TOPIC in simulation.replicas.names():
        await asyncio.sleep(breaker.chance.uniform(0.05, 1.0))
        if simulation.reigns is not None and simulation.reigns.since(begun_s):
            simulation.excused_topics.add(RENEWED_TOPIC)
    topic_id = UUID(int=breaker.chance.getrandbits(128))
    placed = simulation.settings.placed({RENEWED_TOPIC: replace(topic, topic_id=topic_id)}, breaker.chance)
    breaker.note(f"topic {RENEWED_TOPIC} is created again")
    for key in keys:
        simulation.judge.begins(key)
    _write(breaker, placed[RENEWED_TOPIC])


def _write(breaker: Breaker, topic: codec.TopicAssignment) -> None:
    breaker.simulation.zookeeper.put(paths.topic(RENEWED_TOPIC), codec.encode_topic(topic))
