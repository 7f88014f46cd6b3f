"""One of the two clusters of a mirror's simulation: its brokers, its ZooKeeper, and the judge of what it has committed.

To faults and to the operator it is what a `Simulation` of one cluster is to them. Machines have their numbers from one
network, so that both clusters and all clients reach each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace.wire.api import ApiKey
from millrace.zk import codec, paths
from millrace_broker.handlers import group_admin, log_offsets, mirrored_appends
from millrace_broker.handlers.api import Reply, Request, Services
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper
from millrace_support.simulation.assignments import Assignments, TopicIds
from millrace_support.simulation.judge import Judge
from millrace_support.simulation.mirror.settings import CONFIGS, DELETE_RETENTION_MS
from millrace_support.simulation.promises import Promises
from millrace_support.simulation.simulated_broker import HANDLERS, SimulatedBroker, World
from millrace_support.simulation.swarm.settings import Settings
from millrace_support.simulation.virtual_time import SetClock
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.compaction_judge import CompactedHistory
from millrace_support.simulation.workloads.drawn import TRANSACTIONS
from millrace_support.simulation.workloads.history import History

if TYPE_CHECKING:
    from millrace.zk.codec import TopicAssignment
    from millrace_support.simulation.mirror.simulation import MirrorSimulation

LONGEST_CONFIG_NEWS_S = 0.5


class MirroringBroker(SimulatedBroker):
    """A broker that answers mirrors, too."""

    def handlers(self) -> Mapping[ApiKey, Callable[[Services, Request], Reply]]:
        """Returns what answers requests."""
        return {
            **HANDLERS,
            ApiKey.APPEND_MIRRORED: mirrored_appends.append_mirrored,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: log_offsets.offset_for_leader_epoch,
            ApiKey.DELETE_GROUPS: group_admin.delete,
        }


class CompactedAsItCame(CompactedHistory):
    """A compacted partition, whose batches may have come compacted already, as a mirror brings them."""

    def _are_committed(self, offsets: Iterable[int]) -> None:
        super()._are_committed(offset for offset in offsets if offset in self.records)


class ClusterJudge(Judge):
    """What must hold in one cluster, whoever writes it (`judge`)."""

    def _new_history(self, key: TopicPartition, *, is_compacted: bool) -> History:  # noqa: ARG002
        if "cleanup.policy" in CONFIGS.get(key.topic, {}):
            return CompactedAsItCame(key, self.anomaly, None, DELETE_RETENTION_MS, self._clock.now_ms)
        return History(key, self.anomaly, None)


class SimulatedCluster:
    """A cluster. `configs` are the properties of its topics; `name` stands in the history before what happens to it."""

    def __init__(
        self, simulation: MirrorSimulation, name: str, settings: Settings, topics: Mapping[str, TopicAssignment]
    ) -> None:
        self.name = name
        self.settings = settings
        self.topics = dict(topics)
        self.configs = {topic: dict(CONFIGS.get(topic, {})) for topic in topics}
        self.chance, self.loop, self.network = simulation.chance, simulation.loop, simulation.network
        self.zookeeper = ModelZooKeeper()
        for path in paths.PERSISTENT:
            self.zookeeper.put(path, b"")
        self.replicas = Assignments(self.zookeeper)
        self.topic_ids = TopicIds(self.zookeeper, self.replicas)
        for topic, assignment in topics.items():
            self.zookeeper.put(paths.topic(topic), codec.encode_topic(assignment))
        self.latest = SetClock(self.loop)
        self.promises = Promises(self.zookeeper, self.replicas, settings.min_isr)
        self.judge = ClusterJudge(self.replicas, self.latest, simulation.settings.workloads, settings, self.promises)
        self.judge.anomalies = simulation.anomalies
        self.judge.retention.clear()
        self.brokers: dict[int, SimulatedBroker] = {}
        self.world = World(
            self.loop, self.chance, self.network, self.zookeeper, settings,
            self.configs, self.brokers, self._look_at, self.judge.anomaly,
        )  # fmt: skip
        self._simulation = simulation
        for broker in sorted({one for topic in topics.values() for replicas in topic.replicas for one in replicas}):
            self.brokers[broker] = MirroringBroker(self.world, broker)

    def start(self) -> None:
        """Starts all brokers."""
        for broker in self.brokers.values():
            broker.start()

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self._simulation.note(f"{self.name}: {text}")

    # What clients and faults ask.

    def client_world(self, numbers: Iterator[int], is_over: Callable[[], bool]) -> ClientWorld:
        """Returns what clients of this cluster need."""
        return ClientWorld(
            self.loop, self._simulation.clock, self.chance, self.network, self.judge, self.brokers, self.replicas,
            self.topic_ids, self.state_of, numbers, self.note, is_over,
        )  # fmt: skip

    def state_of(self, key: TopicPartition) -> codec.PartitionState | None:
        """Returns the state of a partition as ZooKeeper has it."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else codec.decode_partition_state(node.data)

    def version_of(self, key: TopicPartition) -> int | None:
        """Returns the version of a partition's state in ZooKeeper."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else node.version

    def leader(self, key: TopicPartition) -> int | None:
        """Returns the leader of a partition, as ZooKeeper has it."""
        state = self.state_of(key)
        return None if state is None or state.leader < 0 else state.leader

    def controller(self) -> SimulatedBroker | None:
        """Returns the controller as ZooKeeper names it; None where there is none."""
        node = self.zookeeper.nodes.get(paths.CONTROLLER)
        return None if node is None else self.brokers[codec.decode_controller(node.data)]

    # What administrators change.

    def add_partition(self, topic: str) -> TopicPartition:
        """Gives a topic another partition, on the brokers of its first one."""
        before = self.replicas.topic(topic)
        assert before is not None
        key = TopicPartition(topic, len(before.replicas))
        self.note(f"{topic} gets partition {key.partition}")
        self.judge.begins(key)
        grown = replace(before, replicas=(*before.replicas, before.replicas[0]))
        self.zookeeper.put(paths.topic(topic), codec.encode_topic(grown))
        return key

    def delete_topic(self, topic: str) -> None:
        """Has a topic deleted, which takes a while; what is in its logs is not looked at any more."""
        self.note(f"topic {topic} is deleted")
        for key in [one for one in self.replicas if one.topic == topic]:
            logs = (broker.open_log(key) for broker in self.brokers.values())
            self.judge.ends(key, [log for log in logs if log is not None])
        self.zookeeper.put(paths.delete_topic(topic), b"")

    def create_topic(self, topic: str, made: TopicAssignment) -> None:
        """Creates a topic."""
        self.note(f"topic {topic} is created")
        for partition in range(len(made.replicas)):
            self.judge.begins(TopicPartition(topic, partition))
        self.zookeeper.put(paths.topic(topic), codec.encode_topic(made))

    def configure(self, topic: str, **changed: str | None) -> None:
        """Changes properties of a topic, of which each broker hears a while later; None takes one away."""
        config = dict(self.configs[topic])
        for name, value in changed.items():
            key = name.replace("_", ".")
            if value is None:
                config.pop(key, None)
            else:
                config[key] = value
        self.configs[topic] = config
        for broker in self.brokers.values():
            self.loop.call_later(self.chance.uniform(0, LONGEST_CONFIG_NEWS_S), self._tell_config, broker)

    def _tell_config(self, broker: SimulatedBroker) -> None:
        if broker.is_running and broker.is_paused:
            self.loop.call_later(LONGEST_CONFIG_NEWS_S, self._tell_config, broker)
        elif broker.is_running:
            broker.replicas.configure(self.configs)

    # The end.

    def heal(self) -> None:
        """Has all brokers run again, connected with ZooKeeper."""
        for broker in self.brokers.values():
            broker.fs.capacity_bytes = None
            broker.clock.ahead_ms = 0
            if not broker.is_running:
                broker.start()
            elif broker.is_paused:
                broker.resume()
            else:
                broker.reconnect(broker.session)

    def is_whole(self) -> bool:
        """Returns whether all replicas are in sync and at the end of their logs."""
        return all(self._is_whole(key) for key in self.replicas)

    def _is_whole(self, key: TopicPartition) -> bool:
        state = self.state_of(key)
        if state is None or state.leader < 0 or set(state.isr) != set(self.replicas[key]):
            return False
        leader = self.brokers[state.leader].replicas.partitions.get(key)
        if leader is None or (self._has_open(leader) and not self._may_stay_open(key)):
            return False
        logs = [self.brokers[one].logs.logs().get(key) for one in self.replicas[key]]
        return {-1 if log is None else log.log_end_offset for log in logs} == {leader.high_watermark}

    @staticmethod
    def _has_open(leader: Any) -> bool:
        """Returns whether a transaction is open, of which records may be deleted already."""
        return bool(leader.log.producers.first_unstable_offset(leader.high_watermark) < leader.high_watermark)

    def is_led(self, key: TopicPartition) -> bool:
        """Returns whether a partition has a leader, and all replicas are in sync."""
        state = self.state_of(key)
        return state is not None and state.leader >= 0 and set(state.isr) == set(self.replicas[key])

    def _may_stay_open(self, key: TopicPartition) -> bool:
        """Returns whether a transaction may be open for ever: the source's markers end it, or its state may be lost."""
        return "mirror.source" in self.configs[key.topic] or any(map(self.promises.is_void, (key, TRANSACTIONS)))

    def log_of(self, key: TopicPartition) -> Any:
        """Returns the log of a partition's leader, once all has healed."""
        leader = self.leader(key)
        return None if leader is None else self.brokers[leader].logs.logs().get(key)

    def look(self) -> None:
        """Lets the judge look at all brokers."""
        for broker in self.brokers.values():
            broker.look()

    def compare_replicas(self) -> None:
        """Compares the replicas of each partition."""
        for key, replicas in self.replicas.items():
            self.judge.compare(key, {one: self.brokers[one].logs.logs()[key] for one in replicas})

    def _look_at(self, broker: SimulatedBroker) -> None:
        for key, partition in broker.replicas.partitions.items():
            if partition.topic_id == self.topic_ids.get(key.topic):
                self.judge.look_at_leader(broker.id, broker.starts, key, partition)
