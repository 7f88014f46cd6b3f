"""The faults of a simulation: what brokers, disks, the network and ZooKeeper suffer by chance, each for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millrace.errors import MillraceError
from millrace_broker.controller.controller_store import depose_controller, other_controller
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.simulated_broker import SimulatedBroker

if TYPE_CHECKING:
    from millrace_support.simulation.simulation import Simulation

IN_SYNC_AGAIN_S = 15.0  # a wiped replica may have left and come back, without being seen outside
LOOKS, LOOKS_AGAIN_S, LONGEST_AIM_S = 50, 0.1, 0.5  # of the fault that waits until the state of a partition changes


class Faults:
    """Breaks things of a simulation, whose partitions are given."""

    def __init__(self, simulation: Simulation, partitions: Sequence[TopicPartition]) -> None:
        self._simulation = simulation
        self._partitions = partitions
        self._chance = simulation.chance
        self._network = simulation.network
        self._brokers = simulation.brokers
        self._under_way = 0
        self._is_over = False

    async def play(self, duration_s: float) -> None:
        """Lets faults begin for so long, and does not wait for their ends."""
        loop = self._simulation.loop
        end = loop.time() + duration_s
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._kill, self._kill_leader, self._strike, self._strike, self._shut_down, self._pause, self._cut,
            self._isolate, self._lose_zookeeper, self._break, self._fill, self._wipe, self._take_for_ended,
        ]  # fmt: skip
        while loop.time() < end:
            await asyncio.sleep(self._chance.uniform(0.2, 2.5))
            fault = self._chance.choice(kinds)
            if fault == self._wipe:
                await fault()
            else:
                self._under_way += 1
                loop.create_task(fault()).add_done_callback(self._ended)
        await asyncio.sleep(0)
        self._is_over = True

    def _ended(self, _: object) -> None:
        self._under_way -= 1

    async def _lasts(self, longest_s: float = 12.0) -> bool:
        """Waits a while; returns whether the fault is to be mended then, as not everything has healed already."""
        await asyncio.sleep(self._chance.uniform(0.3, longest_s))
        return not self._is_over

    def _one(self) -> SimulatedBroker | None:
        well = [one for one in self._brokers.values() if one.is_running and not one.is_paused]
        return self._chance.choice(well) if well else None

    async def _kill_leader(self) -> None:
        await self._end_leader(self._chance.choice(self._partitions))

    async def _end_leader(self, key: TopicPartition) -> None:
        state = self._simulation.state_of(key)
        leader = None if state is None else self._brokers.get(state.leader)
        if leader is not None and leader.is_running and not leader.is_paused:
            await self._end(leader)

    async def _strike(self) -> None:
        """Kills a leader soon after the leader or the ISR of a partition has changed, or after a while."""
        key = self._chance.choice(self._partitions)
        before = self._simulation.version_of(key)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOKS_AGAIN_S)
            if self._simulation.version_of(key) != before:
                await asyncio.sleep(self._chance.uniform(0, LONGEST_AIM_S))
                break
        if not self._is_over:
            await self._end_leader(key)

    async def _kill(self) -> None:
        broker = self._one()
        if broker is not None:
            await self._end(broker)

    async def _end(self, broker: SimulatedBroker) -> None:
        power_cut = self._simulation.is_flushing and self._chance.random() < 0.5
        self._simulation.note(f"broker {broker.id} {'loses power' if power_cut else 'is killed'}")
        broker.die(power_cut=power_cut)
        if await self._lasts() and not broker.is_running:
            self._simulation.note(f"broker {broker.id} starts")
            broker.start()

    async def _shut_down(self) -> None:
        broker = self._one()
        if broker is None:
            return
        self._simulation.note(f"broker {broker.id} shuts down")
        await broker.shut_down()
        if await self._lasts() and not broker.is_running:
            self._simulation.note(f"broker {broker.id} starts")
            broker.start()

    async def _fill(self) -> None:
        broker = self._one()
        if broker is None:
            return
        self._simulation.note(f"the disk of broker {broker.id} is full")
        broker.fs.capacity_bytes = broker.fs.used_bytes + self._chance.randrange(500)
        if await self._lasts():
            self._simulation.note(f"the disk of broker {broker.id} has room again")
            broker.fs.capacity_bytes = None

    async def _pause(self) -> None:
        broker = self._one()
        if broker is None:
            return
        starts = broker.starts
        self._simulation.note(f"broker {broker.id} sleeps")
        broker.pause()
        if await self._lasts() and broker.is_paused and broker.starts == starts:
            self._simulation.note(f"broker {broker.id} wakes up")
            broker.resume()

    async def _cut(self) -> None:
        one, other = self._chance.sample(sorted(self._brokers), 2)
        await self._cut_off([(one, other)])

    async def _isolate(self) -> None:
        one = self._chance.choice(sorted(self._brokers))
        await self._cut_off([(one, other) for other in self._brokers if other != one])

    async def _cut_off(self, pairs: list[tuple[int, int]]) -> None:
        self._simulation.note(f"cut off: {pairs}")
        for pair in pairs:
            self._network.cut(*pair)
        if await self._lasts():
            self._simulation.note(f"connected again: {pairs}")
            for pair in pairs:
                self._network.heal(*pair)

    async def _lose_zookeeper(self) -> None:
        broker = self._one()
        if broker is None:
            return
        session = broker.session
        self._simulation.note(f"broker {broker.id} loses ZooKeeper")
        broker.lose_zookeeper()
        if await self._lasts():
            self._simulation.note(f"broker {broker.id} has ZooKeeper again")
            broker.reconnect(session)

    async def _take_for_ended(self) -> None:
        """Has a broker that lives be taken for ended, as where its listener is gone for a moment."""
        broker, by = self._one(), self._one()
        if broker is None or by is None:
            return
        self._simulation.note(f"broker {broker.id} is taken for ended")
        with suppress(MillraceError):  # cut off from ZooKeeper, or not the controller any more
            session: Any = by.session
            controller = other_controller(session)
            if controller is not None and controller[0].id == broker.id:
                depose_controller(session, *controller)
        for one in self._brokers.values():
            if one.is_running and (epoch := one.controller.known_epochs().get(broker.id)) is not None:
                one.controller.take_for_ended(broker.id, epoch)

    async def _break(self) -> None:
        self._simulation.note("a connection breaks")
        self._network.break_one()

    async def _wipe(self) -> None:
        """Wipes a disk, and has nothing else fail before its broker is out of the in-sync replicas."""
        broker = self._one()
        states = [*map(self._simulation.state_of, self._partitions)]
        if broker is None or self._under_way or any(state is None or len(state.isr) < 3 for state in states):
            return
        if not self._are_known():
            return
        self._simulation.note(f"broker {broker.id} loses its disk")
        broker.die(wipe=True)
        await asyncio.sleep(self._chance.uniform(0.3, 10))
        broker.start()
        out_by = self._simulation.loop.time() + IN_SYNC_AGAIN_S
        while self._simulation.loop.time() < out_by and self._is_in_sync(broker.id):  # noqa: ASYNC110
            await asyncio.sleep(0.2)

    def _are_known(self) -> bool:
        """Returns whether a controller knows the current registrations of all brokers.

        A controller that notices a restart late may take that broker out of the in-sync replicas, and leave the one
        whose disk is wiped among them.
        """
        running = [one for one in self._brokers.values() if one.is_running and not one.is_paused]
        epochs = {one.id: one.epoch for one in running}
        return len(running) == len(self._brokers) and any(one.controller.known_epochs() == epochs for one in running)

    def _is_in_sync(self, broker: int) -> bool:
        states = map(self._simulation.state_of, self._partitions)
        return any(state is not None and broker in state.isr for state in states)
