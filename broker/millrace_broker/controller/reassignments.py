"""Moves partitions to other brokers (KIP-455).

    begin   the assignment has the new replicas and then the old ones, and the new ones start and catch up
    end     all replicas of the target are in sync: one of them leads, the others leave, and delete their logs

The assignment in ZooKeeper says what is under way, so that the next controller goes on with it. At the beginning it is
written before the brokers are told, and at the end after the partition's new state. A reassignment is cancelled by one
back to the origin.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr
from millrace_broker.controller.control_requests import ControlRequests
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.elections import elect_in_target, raise_epoch
from millrace_broker.controller.partition_leaders import PartitionLeaders
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)


class Reassignments:
    """The reassignments under way, which the assignments of the cluster name."""

    def __init__(
        self, cluster: ClusterState, store: ControllerStore, requests: ControlRequests, leaders: PartitionLeaders
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._requests = requests
        self._leaders = leaders

    def begin(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Begins reassignments of known partitions, in place of those under way, and ends those that need no move."""
        for key, target in targets.items():
            before = self._cluster.topics[key.topic].assignments[key.partition]
            after = before.to(target)
            if after != before:
                self._write(key, after)
                self._stop(key, [one for one in before.replicas if one not in after.replicas])
        self.go_on(targets, is_begin=True)

    def go_on(self, keys: Iterable[TopicPartition], *, is_begin: bool = False) -> None:
        """Ends those reassignments whose target is in sync; the replicas of the others are started with `is_begin`."""
        for key in sorted(keys):
            assignment, state = self._cluster.assignment(key), self._cluster.leaders.get(key)
            if assignment is None or state is None:
                continue
            if not assignment.is_reassigned or set(assignment.target) <= set(state.isr):
                self._end(key, assignment)
            elif is_begin:
                self._leaders.change([key], lambda _key, _assignment, state: raise_epoch(state))
                self._requests.tell_roles(assignment.replicas, key, new=assignment.adding)

    def _end(self, key: TopicPartition, assignment: Assignment) -> None:
        self._set(key, Assignment(assignment.target))
        if not self._leaders.change([key], self._elected):
            self._set(key, assignment)
            logger.warning("%s waits for a leader among the brokers %s that it goes to", key, list(assignment.target))
            return
        for broker in assignment.removing:
            self._requests.stop(broker, key, delete=True)
        self._write(key, Assignment(assignment.target))
        logger.info("%s is on the brokers %s", key, list(assignment.target))

    def _elected(self, key: TopicPartition, assignment: Assignment, state: LeaderAndIsr) -> LeaderAndIsr | None:
        return elect_in_target(assignment, state, self._cluster.online(key))

    def _stop(self, key: TopicPartition, brokers: Collection[int]) -> None:
        """Takes brokers that are not to get the partition any more out of the ISR, and has them delete it."""
        if brokers:
            self._leaders.change([key], self._elected_among_all)
        for broker in brokers:
            self._requests.stop(broker, key, delete=True)

    def _elected_among_all(
        self, key: TopicPartition, assignment: Assignment, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        return elect_in_target(Assignment(assignment.replicas), state, self._cluster.online(key))

    def _write(self, key: TopicPartition, assignment: Assignment) -> None:
        self._store.write_assignments(key.topic, {key.partition: assignment})
        self._set(key, assignment)

    def _set(self, key: TopicPartition, assignment: Assignment) -> None:
        self._cluster.topics[key.topic].assignments[key.partition] = assignment
