"""The instances of a mirror, which are killed, sleep, and are believed to have ended while they go on."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror.stops import Stop
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.doors import Door
from millrace_support.simulation.mirror.mishaps import Mishaps
from millrace_support.simulation.mirror.settings import MirrorSettings

if TYPE_CHECKING:
    from millrace_support.simulation.virtual_time import VirtualTimeLoop


class MirrorWorld(NamedTuple):
    """What instances share. `mirrored` returns the partitions; `stopped` hears of one that is no more."""

    loop: VirtualTimeLoop
    chance: Random
    settings: MirrorSettings
    source: SimulatedCluster
    target: SimulatedCluster
    mirrored: Callable[[], Iterable[TopicPartition]]
    stopped: Callable[[Instance, TopicPartition, Stop], None]
    note: Callable[[str], None]
    mishaps: Mishaps
    anomaly: Callable[[str], None]


class Instance(ABC):
    """One process of a mirror, on a machine."""

    def __init__(self, world: MirrorWorld, machine: int) -> None:
        self.machine = machine
        self.is_paused = False
        self.left_ids: list[str] = []
        """The transactional ids of its processes that were killed."""
        self._world = world
        self._task: asyncio.Task[None] | None = None
        self._source: Door
        self._target: Door

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._task is not None

    def start(self) -> None:
        """Starts a process, which knows nothing of the one before."""
        if self._task is None:
            name = f"mirror-{self.machine}"
            self._source, self._target = (
                Door(cluster, self.machine, name, self._world.mishaps)
                for cluster in (self._world.source, self._world.target)
            )
            self._task = self._world.loop.create_task(self._live())
            self._task.add_done_callback(self._ended)

    def kill(self) -> None:
        """Ends the process without a word; what it has sent may still arrive."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._source.close()
            self._target.close()

    def pause(self) -> None:
        """Lets the process sleep."""
        self.is_paused = True
        self._world.source.network.pause(self.machine)

    def resume(self) -> None:
        """Wakes the process, which goes on with what it was about to do."""
        self.is_paused = False
        self._world.source.network.resume(self.machine)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._world.anomaly(f"an instance of the mirror fails: {task.exception()!r}")

    def _topic_id(self, topic: str) -> UUID | None:
        """Returns the id that a topic of the source has now; None while there is none."""
        return self._world.source.topic_ids.get(topic)

    def has_stopped(self, key: TopicPartition) -> bool:  # noqa: ARG002
        """Returns whether this instance has the partition, and mirrors it no more."""
        return False

    @abstractmethod
    async def _live(self) -> None:
        """Mirrors for ever."""
