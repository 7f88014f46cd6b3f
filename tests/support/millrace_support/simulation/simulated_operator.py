"""The operator of a simulation, who decides where brokers can't, once all of them have been there for a while.

A partition without a leader waits for a replica that has lost records: the operator has another one lead, as by
`brokers elect --unclean`, once no broker of 0.1.0 is the controller. None needs that where a replica that has all that
was committed never lost anything.

A leader's log is damaged, and no other replica has what is missing: the operator deletes all up to there, as by `topics
delete-records`. No fault takes the last copy of a record (`faults/copies`), but retention may, at a follower in sync
whose clock is ahead. A broker keeps no segment for the sake of another one's damage, as nobody expects a limit of time
or size to wait for that, and retention deletes the damaged segment too, by its own clock. So the operator acts only
where the files of all other replicas show that none has a batch of the range, and the judge has found that retention or
a request has rightly deleted it. Whatever else stays damaged is an anomaly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from millrace_broker.controller.elections import LogEnd
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import DamagedRange, TopicPartition
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.simulation.faults.copies import holds_any
from millrace_support.simulation.releases.releases import change_release, is_former
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

if TYPE_CHECKING:
    from millrace_support.simulation.simulated_broker import SimulatedBroker
    from millrace_support.simulation.simulation import Simulation

PATIENCE_S = 20.0  # longer than sessions of ZooKeeper last, by which brokers register


class SimulatedOperator:
    """Looks at partitions, once all has healed."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._waiting_since_s: dict[TopicPartition, float] = {}
        self._damaged_since_s: dict[tuple[TopicPartition, int], float] = {}

    async def live(self) -> None:
        """Looks after partitions for ever."""
        while True:
            self._look_for_leaders()
            self._look_for_damage()
            await asyncio.sleep(1)

    def _look_for_leaders(self) -> None:
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
        controller = simulation.controller()
        if controller is not None and is_former(controller):
            self._upgrade(controller)
        elif controller is not None:
            simulation.note(f"the operator elects the longest log of {key}: {ends}")
            controller.controller.asked(lambda active: active.elect([key], is_unclean=True, log_ends={key: ends}))

    def _upgrade(self, controller: SimulatedBroker) -> None:
        """Gives this release to a controller of 0.1.0, which would elect the first replica, whatever its log has."""
        self._simulation.note(f"the operator kills broker {controller.id}, and it gets this release")
        controller.die()
        change_release(controller)
        controller.start()

    def _look_for_damage(self) -> None:
        """Looks at the logs of leaders: what is missing there keeps others from following."""
        now_s = self._simulation.loop.time()
        for broker in self._simulation.brokers.values():
            if is_former(broker):
                continue  # files are damaged only where all brokers heal
            for key, partition in [*broker.replicas.partitions.items()]:
                if not partition.log.damage:
                    self._damaged_since_s.pop((key, broker.id), None)
                elif now_s - self._damaged_since_s.setdefault((key, broker.id), now_s) > PATIENCE_S:
                    self._give_up(broker, key, partition)

    def _give_up(self, broker: SimulatedBroker, key: TopicPartition, partition: Partition) -> None:
        simulation, retention = self._simulation, self._simulation.judge.retention.get(key)
        others = [simulation.brokers[one].fs for one in simulation.replicas[key] if one != broker.id]
        damage = [one for _, one in partition.log.damage]
        if retention is not None and is_gone(damage, retention, others):
            end = max(one.end_offset for one in damage)
            simulation.note(f"the operator deletes what no replica of {key} has any more: all below offset {end}")
            broker.replicas.raise_log_start_offset(partition, end)

    def _log_ends(self, key: TopicPartition) -> dict[int, LogEnd]:
        simulation = self._simulation
        logs = {one: simulation.brokers[one].open_log(key) for one in simulation.replicas[key]}
        return {one: (log.leader_epochs.latest, log.log_end_offset) for one, log in logs.items() if log is not None}


def is_gone(damage: Iterable[DamagedRange], retention: RetentionJudge, others: Sequence[CrashFileSystem]) -> bool:
    """Returns whether retention or a request has rightly deleted what is damaged, and no other disk has any of it."""
    key = retention.history.key
    return all(
        retention.justifies(one.end_offset)
        and not any(holds_any(fs, key, one.start_offset, one.end_offset) for fs in others)
        for one in damage
    )
