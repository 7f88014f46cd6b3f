"""Deletes topics: first the logs of all replicas, and then the nodes in ZooKeeper.

    /admin/delete_topics names it   the brokers drop the topic from their metadata, and delete their replicas
    a replica is deleted            it is crossed off
    none is left                    the nodes of the topic are deleted, the request as the last of them

A replica whose broker is down, or fails to delete it, is waited for: the broker is asked again when it comes back, when
another broker becomes the controller, and after a pause if it has failed (`failed_deletions`). A topic is not deleted
while one of its partitions is reassigned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from millrace.zk import paths
from millrace_broker.controller.cluster_state import Assignment, ClusterState
from millrace_broker.controller.control_requests import ControlRequests
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

Replica = tuple[int, TopicPartition]


class TopicDeletions:
    """Deletes topics: has all replicas deleted, and then the topic's nodes in ZooKeeper.

    Args:
        cluster: knows which topics are being deleted.
        store: has the requests, and the nodes that are deleted.
        requests: collects what the brokers are told.
        is_enabled: delete.topic.enable; where it is false, requests are removed without a deletion.
    """

    def __init__(
        self, cluster: ClusterState, store: ControllerStore, requests: ControlRequests, *, is_enabled: bool
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._requests = requests
        self._is_enabled = is_enabled
        self._waiting: set[str] = set()
        self._left: dict[str, set[Replica]] = {}  # of topics whose deletion has begun

    def read_requests(self) -> None:
        """Begins the deletions that are requested in ZooKeeper; removes requests for topics that do not exist.

        A topic that exists, and was not read yet, may have been created after the topics were read; or it can't be
        read. Its request stays until it is.
        """
        wanted = self._store.topics_to_delete()
        known = wanted & self._cluster.topics.keys() if self._is_enabled else set()
        unread = self._store.existing(wanted - known) if self._is_enabled else set()
        self._store.remove(paths.delete_topic(name) for name in sorted(wanted - known - unread))
        self._waiting |= known - self._cluster.deleting
        self.resume()

    def resume(self) -> None:
        """Begins the requested deletions, except of topics with a partition that is being reassigned."""
        for name in sorted(self._waiting):
            assignments = self._cluster.topics[name].assignments
            if not any(one.is_reassigned for one in assignments):
                self._waiting.remove(name)
                self._begin(name, {TopicPartition(name, index): one for index, one in enumerate(assignments)})

    def ask_again(self, brokers: Collection[int]) -> None:
        """Has brokers that have come back delete the replicas of deleted topics that they still have."""
        self._stop([one for left in self._left.values() for one in left if one[0] in brokers])

    def deleted(self, broker: int, keys: Iterable[TopicPartition]) -> None:
        """Takes note of replicas that a broker has deleted; ends the deletion of a topic when it was the last."""
        for key in keys:
            self._left.get(key.topic, set()).discard((broker, key))
        for name in [name for name, left in self._left.items() if not left]:
            self._store.delete_topic(name)
            del self._left[name]
            self._cluster.forget_topic(name)
            logger.info("topic %s is deleted", name)

    def forget(self, name: str) -> None:
        """Forgets the deletion of a topic whose nodes are already gone from ZooKeeper."""
        self._waiting.discard(name)
        self._left.pop(name, None)

    def _begin(self, name: str, assignments: Mapping[TopicPartition, Assignment]) -> None:
        self._cluster.deleting.add(name)
        self._left[name] = {(broker, key) for key, assignment in assignments.items() for broker in assignment.replicas}
        self._requests.tell_metadata(self._cluster.brokers, assignments)
        self._stop(self._left[name])

    def _stop(self, replicas: Iterable[Replica]) -> None:
        for broker, key in sorted(replicas):
            self._requests.stop(broker, key, delete=True)
