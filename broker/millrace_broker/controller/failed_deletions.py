"""Replicas that brokers have refused or failed to delete: they are asked again, after a pause.

A broker that is cut off from ZooKeeper, or whose disk is full, may delete a replica later without a new registration,
of which alone the controller would hear. So it asks as long as the replica is to go and the broker fails, but only once
in a pause, for all such replicas together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millrace_broker.controller.cluster_state import ClusterState
from millrace_broker.controller.control_requests import ControlRequests, Deletions
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

PAUSE_S = 5.0


class FailedDeletions:
    """Knows which replicas brokers have failed to delete, and asks for them again.

    Args:
        cluster: knows which replicas are to stay.
        requests: collects what the brokers are told.
        begin_pause: has `pause_ended` called once, after a pause.
    """

    def __init__(self, cluster: ClusterState, requests: ControlRequests, begin_pause: Callable[[], None]) -> None:
        self._cluster = cluster
        self._requests = requests
        self._begin_pause = begin_pause
        self._failed: set[tuple[int, TopicPartition]] = set()
        self._is_paused = False

    def answered(self, broker: int, deletions: Deletions) -> None:
        """Takes note of what a broker has deleted, and what it has not."""
        failed = {(broker, key) for key in deletions.failed}
        if new := failed - self._failed:
            sentence = "broker %d has not deleted %d replicas; it is asked again every %.0f s"
            logger.warning(sentence, broker, len(new), PAUSE_S)
        self._failed -= {(broker, key) for key in deletions.deleted}
        self._failed |= failed
        if failed and not self._is_paused:
            self._is_paused = True
            self._begin_pause()

    def pause_ended(self) -> None:
        """Asks again; the next failure begins another pause."""
        self._is_paused = False
        self.ask_again()

    def ask_again(self) -> None:
        """Has brokers that live delete the replicas that they have failed to delete, unless these are to stay now."""
        self._failed = {(broker, key) for broker, key in self._failed if not self._stays(broker, key)}
        for broker, key in sorted(self._failed):
            self._requests.stop(broker, key, delete=True)

    def _stays(self, broker: int, key: TopicPartition) -> bool:
        assignment = self._cluster.assignment(key)
        return assignment is not None and key.topic not in self._cluster.deleting and broker in assignment.replicas
