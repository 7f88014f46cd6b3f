"""What the clients of a simulation share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.zk.codec import PartitionState
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.assignments import Assignments
from millrace_support.simulation.judge import Judge
from millrace_support.simulation.network import Network
from millrace_support.simulation.virtual_time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from millrace_support.simulation.simulated_broker import SimulatedBroker

KEYS = 8


class ClientWorld(NamedTuple):
    """The network and time of a simulation, and its judge.

    Attributes:
        brokers: all brokers by their ids, which only judges look into.
        replicas: the brokers that have each partition.
        topic_ids: the ids of topics by their names.
        state_of: returns the state of a partition as ZooKeeper has it.
        numbers: gives each write its number.
        note: adds a line to the history.
        is_over: returns whether the faults have ended and all has healed, so that clients end.
    """

    loop: VirtualTimeLoop
    clock: VirtualClock
    chance: Random
    network: Network
    judge: Judge
    brokers: Mapping[int, SimulatedBroker]
    replicas: Assignments
    topic_ids: Mapping[str, UUID]
    state_of: Callable[[TopicPartition], PartitionState | None]
    numbers: Iterator[int]
    note: Callable[[str], None]
    is_over: Callable[[], bool]

    def leader(self, key: TopicPartition) -> tuple[int, int] | None:
        """Returns who leads a partition and in which epoch, as ZooKeeper has it; None without a leader."""
        state = self.state_of(key)
        return None if state is None or state.leader < 0 else (state.leader, state.leader_epoch)

    def anomaly_of(self, *keys: TopicPartition) -> Callable[[str], None]:
        """Returns what is told of anomalies of what lies in partitions, and passes over them once that may be lost."""

        def anomaly(text: str) -> None:
            if not any(map(self.judge.promises.is_void, keys)):
                self.judge.anomaly(text)

        return anomaly

    def new_key(self) -> bytes:
        """Returns a record's key, one of a few."""
        return b"key %d" % self.chance.randrange(KEYS)
