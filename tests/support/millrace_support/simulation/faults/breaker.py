"""What all faults have at hand: the cluster that they break, chance, and the end of all faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from millrace_broker.storage import TopicPartition
from millrace_support.simulation.simulated_broker import SimulatedBroker

if TYPE_CHECKING:
    from millrace_support.simulation.simulation import Simulation

Fault = Callable[["Breaker"], Coroutine[Any, Any, None]]


class Breaker:
    """The cluster of a simulation, to break it.

    Attributes:
        is_over: whether all faults have ended, so that none is mended any more.
        under_way: how many faults have begun and are not mended yet.
        struck: the brokers and partitions whose records were damaged (`copies`).
        rotten_epochs: the file in which a byte of a leader epoch has rotted, by broker and partition; where it is, and
            what it was.
    """

    def __init__(self, simulation: Simulation, longest_s: float) -> None:
        self.simulation = simulation
        self.chance = simulation.chance
        self.network = simulation.network
        self.brokers = simulation.brokers
        self.is_over = False
        self.under_way = 0
        self.struck: set[tuple[int, TopicPartition]] = set()
        self.rotten_epochs: dict[tuple[int, TopicPartition], tuple[str, int, int]] = {}
        self._longest_s = longest_s

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that there are now."""
        return tuple(self.simulation.replicas)

    def controller(self) -> SimulatedBroker | None:
        """Returns the controller as ZooKeeper names it; None where there is none."""
        return self.simulation.controller()

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self.simulation.note(text)

    async def lasts(self) -> bool:
        """Waits a while; returns whether the fault is to be mended then, as not everything has healed already."""
        await asyncio.sleep(self.chance.uniform(0.3, self._longest_s))
        return not self.is_over

    def one(self) -> SimulatedBroker | None:
        """Returns a broker that works, which chance decides; None where there is none."""
        well = [one for one in self.brokers.values() if one.is_running and not one.is_paused]
        return self.chance.choice(well) if well else None

    def cut_power(self, broker: SimulatedBroker) -> None:
        """Takes the power from a broker's machine; what is not synced may be gone."""
        self.note(f"broker {broker.id} loses power")
        self._strike(broker, is_synced=self.simulation.settings.is_flushing)
        broker.die(power_cut=True)

    def wipe(self, broker: SimulatedBroker) -> None:
        """Puts an empty disk in the place of a broker's, whose process ends with that."""
        self.note(f"broker {broker.id} loses its disk")
        self._strike(broker, is_synced=False)
        broker.die(wipe=True)

    def _strike(self, broker: SimulatedBroker, *, is_synced: bool) -> None:
        for one in self.brokers.values():
            one.look()  # at what is committed
        for key in self.simulation.promises.strike(broker.id, is_synced=is_synced):
            self.note(f"{key} may lose what was committed")

    async def starts_again(self, broker: SimulatedBroker) -> None:
        """Starts a broker that has ended, after a while."""
        if await self.lasts() and not broker.is_running:
            self.note(f"broker {broker.id} starts")
            broker.start()


class Faults(dict[str, Fault]):
    """Faults by their names."""

    def add(self, fault: Fault) -> Fault:
        """Adds a fault by the name of its function, which it returns."""
        self[fault.__name__] = fault
        return fault
