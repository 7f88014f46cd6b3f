"""A partition has a leader soon after one of its replicas in sync is there, damaged or not.

    nobody leads, and    a broker in the ISR that has all that was committed, and never lost its disk or power, is
                         registered, not about to stop, and a controller that rules undisturbed knows that
    for `LONGEST_S`      without a change of any of this: it should have been elected

Whether the controller rules undisturbed is looked at whenever a broker is. One of the former release is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millrace.zk import paths
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.releases.releases import is_former

if TYPE_CHECKING:
    from millrace_support.simulation.simulated_broker import SimulatedBroker
    from millrace_support.simulation.simulation import Simulation

LONGEST_S = 3.0
STATES = "/state"


class _Waiting(NamedTuple):
    """Who could lead a partition, and what must stay as it is for that to count."""

    version: int | None
    controller: tuple[int, int]
    electable: frozenset[int]


class Leaderless:
    """The partitions that nobody leads, and since when somebody could."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._leaderless: set[TopicPartition] = set()
        self._since_s: dict[TopicPartition, tuple[_Waiting, float]] = {}
        simulation.zookeeper.join(self)

    def changed(self, path: str, *, comes_or_goes: bool) -> None:  # noqa: ARG002  as sessions hear of it
        """Hears of a node that has changed."""
        if not path.startswith(paths.TOPICS) or not path.endswith(STATES):
            return
        name, _, index = path.removeprefix(f"{paths.TOPICS}/").removesuffix(STATES).split("/")
        key = TopicPartition(name, int(index))
        state = self._simulation.state_of(key)
        if state is None or state.leader >= 0:
            self._leaderless.discard(key)
            self._since_s.pop(key, None)
        else:
            self._leaderless.add(key)

    def look(self) -> None:
        """Looks at all partitions that nobody leads."""
        if not self._leaderless:
            return
        controller, now_s = self._simulation.controller(), self._simulation.loop.time()
        if controller is None or not _rules(controller):
            self._since_s.clear()
            return
        for key in sorted(self._leaderless):
            electable = self._electable(key, controller)
            waiting = _Waiting(self._simulation.version_of(key), (controller.id, controller.starts), electable)
            known, since_s = self._since_s.setdefault(key, (waiting, now_s))
            if not electable or known != waiting:
                self._since_s[key] = waiting, now_s
            elif now_s - since_s > LONGEST_S:
                self._simulation.judge.anomaly(f"{key} has no leader, though brokers {sorted(electable)} are in sync")

    def _electable(self, key: TopicPartition, controller: SimulatedBroker) -> frozenset[int]:
        simulation, state = self._simulation, self._simulation.state_of(key)
        if state is None or key not in simulation.replicas or simulation.replicas.is_deleted(key.topic):
            return frozenset()
        known = controller.controller.live_epochs()
        there = {one.id for one in simulation.brokers.values() if known.get(one.id) == one.epoch and _serves(one)}
        return simulation.promises.unscathed(key).intersection(state.isr, simulation.replicas[key], there)


def _serves(broker: SimulatedBroker) -> bool:
    """Returns whether a broker runs and has not refused to lead or follow, as it does while its disk is full."""
    return broker.is_running and not is_former(broker) and not broker.replicas.has_refused_roles


def _rules(broker: SimulatedBroker) -> bool:
    """Returns whether a controller can do its work: it runs, knows of its role and has ZooKeeper."""
    can_write = broker.is_running and not broker.is_paused and not broker.session.is_lost
    return can_write and not is_former(broker) and bool(broker.controller.known_epochs())
