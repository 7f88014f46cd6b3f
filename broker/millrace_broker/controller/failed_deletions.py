"""Replicas that brokers have refused or failed to delete: they are asked again, after a pause.

Those that a reassignment has moved away are noted in ZooKeeper, in the transaction that moves them, until their broker
says that it has deleted them. So a broker that was down then is asked when it is back, and the next controller goes on.
Topics that are to be deleted stay until all their replicas are.

A broker that is cut off from ZooKeeper, or whose disk is full, may delete a replica later without a new registration,
of which alone the controller would hear. So it asks as long as the replica is to go and the broker fails, but only once
in a pause, for all such replicas together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from millrace_broker.controller.cluster_state import ClusterState
from millrace_broker.controller.control_requests import ControlRequests, Deletions
from millrace_broker.controller.controller_store import ControllerStore, Removal
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

PAUSE_S = 5.0


class FailedDeletions:
    """Knows which replicas brokers have failed to delete, and asks for them again.

    Args:
        cluster: knows which replicas are to stay.
        store: keeps notes of what was moved away.
        requests: collects what the brokers are told.
        begin_pause: has `pause_ended` called once, after a pause.
    """

    def __init__(
        self,
        cluster: ClusterState,
        store: ControllerStore,
        requests: ControlRequests,
        begin_pause: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._requests = requests
        self._begin_pause = begin_pause
        self._failed: set[Removal] = set()
        self._moved: set[Removal] = set()
        self._is_paused = False

    def begin(self) -> None:
        """Goes on with what former controllers have moved away."""
        self._moved = self._store.removals()
        self.ask_again()

    def moved_away(self, key: TopicPartition, brokers: Iterable[int]) -> None:
        """Takes note of replicas that brokers are asked to delete, which `store` has noted."""
        self._moved |= {(broker, key) for broker in brokers}

    def answered(self, broker: int, deletions: Deletions) -> None:
        """Takes note of what a broker has deleted, and what it has not."""
        failed = {(broker, key) for key in deletions.failed}
        if new := failed - self._failed:
            sentence = "broker %d has not deleted %d replicas; it is asked again every %.0f s"
            logger.warning(sentence, broker, len(new), PAUSE_S)
        deleted = {(broker, key) for key in deletions.deleted}
        self._failed = (self._failed - deleted) | failed
        self._forget(deleted & self._moved)
        if failed and not self._is_paused:
            self._is_paused = True
            self._begin_pause()

    def pause_ended(self) -> None:
        """Asks again; the next failure begins another pause."""
        self._is_paused = False
        self._ask(self._failed)

    def ask_again(self) -> None:
        """Has brokers that live delete the replicas that they have failed or not yet said to delete."""
        self._ask(self._failed | self._moved)

    def _ask(self, removals: set[Removal]) -> None:
        """Asks brokers to delete replicas. One that is assigned to its broker again stays: the removal is forgotten."""
        staying = {one for one in removals if self._stays(*one)}
        self._failed -= staying
        self._forget(staying & self._moved)
        for broker, key in sorted(removals - staying):
            self._requests.stop(broker, key, delete=True)

    def _forget(self, removals: set[Removal]) -> None:
        self._store.forget_removals(removals)
        self._moved -= removals

    def _stays(self, broker: int, key: TopicPartition) -> bool:
        assignment = self._cluster.assignment(key)
        return assignment is not None and key.topic not in self._cluster.deleting and broker in assignment.replicas
