"""The operator of a simulation, who lets another replica lead where a partition waits for one that has lost records.

That is what `brokers elect --unclean` does, and it is done where all brokers have been there for a while, and a
partition still has no leader. None needs that where a replica that has all that was committed never lost anything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace_broker.controller.elections import LogEnd
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.releases.releases import is_former

if TYPE_CHECKING:
    from millrace_support.simulation.simulation import Simulation

PATIENCE_S = 20.0  # longer than sessions of ZooKeeper last, by which brokers register


class SimulatedOperator:
    """Looks at partitions, once all has healed."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._waiting_since_s: dict[TopicPartition, float] = {}

    async def live(self) -> None:
        """Looks after partitions for ever."""
        while True:
            self._look()
            await asyncio.sleep(1)

    def _look(self) -> None:
        simulation, now_s = self._simulation, self._simulation.loop.time()
        for key in simulation.replicas:
            state = simulation.state_of(key)
            if state is None or state.leader >= 0:
                self._waiting_since_s.pop(key, None)
            elif now_s - self._waiting_since_s.setdefault(key, now_s) > PATIENCE_S:
                self._waiting_since_s[key] = now_s
                self._elect(key)

    def _elect(self, key: TopicPartition) -> None:
        simulation = self._simulation
        unscathed, ends = sorted(simulation.promises.unscathed(key)), self._log_ends(key)
        if unscathed:
            simulation.judge.anomaly(f"{key} has no leader, though brokers {unscathed} have lost nothing")
        simulation.note(f"the operator elects the longest log of {key}: {ends}")
        controller = simulation.controller()
        if controller is not None:
            known = {} if is_former(controller) else {"log_ends": {key: ends}}  # 0.1.0 can't be told where logs end
            controller.controller.asked(lambda active: active.elect([key], is_unclean=True, **known))

    def _log_ends(self, key: TopicPartition) -> dict[int, LogEnd]:
        simulation = self._simulation
        logs = {one: simulation.brokers[one].open_log(key) for one in simulation.replicas[key]}
        return {one: (log.leader_epochs.latest, log.log_end_offset) for one, log in logs.items() if log is not None}
