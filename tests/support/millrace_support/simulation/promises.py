"""Which partitions must have kept all that was committed, whatever disks and power were lost (ADR 22).

What is committed is on each replica that is in sync, and on each that has left the ISR while that was below the min
ISR, as nothing is committed then. These are certain to have all. One that loses its disk, or power before all is
synced, is certain no more, until it has come back and is in sync again. Once nobody is certain the promise is void: the
partition may have lost something, and goes on with what is left.

`Promises` hears of each change in ZooKeeper, and of each loss when it happens. It knows nothing of what brokers report,
nor of what the controller takes from that.
"""

from __future__ import annotations

from collections import defaultdict

from millrace.zk import codec, paths
from millrace_broker.replication.in_sync_replicas import effective_min_isr
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper
from millrace_support.simulation.assignments import Assignments

NOBODY: frozenset[int] = frozenset()
STATES = "/state"


class Promises:
    """Who is certain to have all that was committed in each partition."""

    def __init__(self, zookeeper: ModelZooKeeper, replicas: Assignments, min_isr: int) -> None:
        self._zookeeper = zookeeper
        self._replicas = replicas
        self._min_isr = min_isr
        self._in_sync: dict[TopicPartition, frozenset[int]] = {}
        self._certain: dict[TopicPartition, frozenset[int]] = {}
        self._void: set[TopicPartition] = set()
        self._struck: dict[TopicPartition, set[int]] = defaultdict(set)
        self._struck_zxids: dict[int, int] = {}
        zookeeper.join(self)

    def is_void(self, key: TopicPartition) -> bool:
        """Returns whether a partition may have lost what was committed."""
        return key in self._void

    def unscathed(self, key: TopicPartition) -> frozenset[int]:
        """Returns the replicas that have all that was committed, and have never lost power or a disk."""
        return self._certain.get(key, NOBODY) - self._struck_zxids.keys()

    def was_struck(self, broker: int, since_zxid: int) -> bool:
        """Returns whether a broker has lost anything since a transaction of ZooKeeper."""
        return self._struck_zxids.get(broker, -1) >= since_zxid

    @property
    def now_zxid(self) -> int:
        """The last transaction of ZooKeeper."""
        return self._zookeeper.zxid

    def strike(self, broker: int, *, is_synced: bool) -> list[TopicPartition]:
        """Notes that a broker loses its disk, or power; returns the partitions of which nothing is promised any more.

        Where all `is_synced` it has lost nothing with its power, and is certain to have what it had.
        """
        self._struck_zxids[broker] = self._zookeeper.zxid
        if is_synced:
            return []
        voided = []
        for key, certain in self._certain.items():
            self._struck[key].add(broker)
            self._certain[key] = certain - {broker}
            if certain == {broker} and key not in self._void:
                self._void.add(key)
                voided.append(key)
        return voided

    # What ZooKeeper has.

    def changed(self, path: str, *, comes_or_goes: bool) -> None:  # noqa: ARG002  as sessions hear of it
        """Hears of a node that has changed."""
        if path.startswith(paths.TOPICS):
            if path.endswith(STATES):
                name, _, index = path.removeprefix(f"{paths.TOPICS}/").removesuffix(STATES).split("/")
                self._state_changed(TopicPartition(name, int(index)))
            elif path.count("/") == paths.TOPICS.count("/") + 1:
                self._moved(path.rpartition("/")[2])

    def _moved(self, topic: str) -> None:
        """Forgets replicas that a reassignment has removed, as their logs are deleted.

        It may end before the controller hears that a disk was lost, and leave nobody who is certain.
        """
        for key in [one for one in self._certain if one.topic == topic]:
            left = self._certain[key] & frozenset(self._replicas.get(key, ()))
            if self._certain[key] and not left:
                self._void.add(key)
            self._certain[key] = left

    def _state_changed(self, key: TopicPartition) -> None:
        node = self._zookeeper.nodes.get(paths.partition_state(*key))
        if node is None:
            self._forget(key)
            return
        isr = frozenset(codec.decode_partition_state(node.data).isr)
        before = self._in_sync.get(key, NOBODY)
        is_new = key not in self._in_sync  # so nothing was committed that a loss before could have taken
        joined_struck = set() if is_new else {one for one in isr - before if not self._is_back(one)}
        self._struck[key] = (self._struck[key] - (isr - before)) | joined_struck
        certain = isr - self._struck[key]
        if len(isr) < effective_min_isr(self._min_isr, len(self._replicas.get(key, ()))):
            certain |= self._certain.get(key, NOBODY)
        if self._certain.get(key) and not certain:
            self._void.add(key)  # the last one that had lost nothing has left, as the others seemed to be there
        self._in_sync[key], self._certain[key] = isr, certain

    def _forget(self, key: TopicPartition) -> None:
        self._in_sync.pop(key, None)
        self._certain.pop(key, None)
        self._struck.pop(key, None)
        self._void.discard(key)

    def _is_back(self, broker: int) -> bool:
        """Returns whether a broker was never struck, or has registered since then."""
        if broker not in self._struck_zxids:
            return True
        node = self._zookeeper.nodes.get(paths.broker(broker))
        return node is not None and node.created_zxid > self._struck_zxids[broker]
