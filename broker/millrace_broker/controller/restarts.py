"""Elects leaders where brokers have started again, and may have lost what they had in the ISR.

A replica counts for what it had when the state with its ISR was written. It counts no more if its broker has reported
the loss of a disk or of power since then. The registration that follows on a loss is a transaction of ZooKeeper, and is
compared with the one that wrote the state; but a controller that has not heard of the registration yet may have written
the state since. So controllers note in ZooKeeper up to which registration (broker epoch) they have elected without what
a broker has lost. A loss that none has seen counts in any case, and before anything else is written. One that ends
before it has noted a loss leaves that to the next one, which elects once more; nothing is lost by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millrace.leader_states import NO_LEADER
from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr, LiveBroker
from millrace_broker.controller.controller_store import ControllerStore, WrittenState
from millrace_broker.controller.elections import elect_after_restart
from millrace_broker.controller.eligibility import NOTHING_LOST, NOTHING_SEEN, BrokerLosses
from millrace_broker.controller.partition_leaders import PartitionLeaders
from millrace_broker.storage import TopicPartition


class Restarts:
    """Elects leaders after restarts, in `cluster` and in ZooKeeper."""

    def __init__(self, cluster: ClusterState, store: ControllerStore, leaders: PartitionLeaders) -> None:
        self._cluster = cluster
        self._store = store
        self._leaders = leaders
        self._seen = NOTHING_SEEN

    def elect_at_start(self, written: Mapping[TopicPartition, WrittenState]) -> None:
        """Elects leaders for a controller that begins, and that has seen no broker go before."""
        brokers, self._seen = self._cluster.brokers, self._store.seen_losses()
        losses = self._losses(brokers)
        self._elect(written, brokers.keys(), losses)
        self._note_seen(losses)

    def elect_without_lost(self, come: Mapping[int, LiveBroker]) -> None:
        """Lets no replica count for what it had before, where its broker (of `come`) has lost a disk or its power."""
        if not come:
            return
        losses, leaders = self._losses(come), self._cluster.leaders
        lossy = {one for one in come if losses.concern(one)}
        keys = [key for key, state in leaders.items() if not lossy.isdisjoint(self._concerned(key, state))]
        if keys:
            self._elect(self._store.written_states(self._cluster.replica_counts(keys)), (), losses)
        self._note_seen(losses)

    def _note_seen(self, losses: BrokerLosses) -> None:
        """Notes up to which registrations an election has followed on what brokers have lost."""
        epochs = losses.seen_now()
        if epochs != self._seen.epochs:
            self._store.write_seen_losses(epochs)
            self._seen = self._seen._replace(epochs=epochs)

    def _elect(
        self, written: Mapping[TopicPartition, WrittenState], back: Collection[int], losses: BrokerLosses
    ) -> None:
        """Elects leaders where in-sync replicas may have lost records since the states were written.

        They may if their broker has reported a loss since then, or is one of those that are `back`: they may have
        registered again without a controller that saw them go.
        """
        cluster = self._cluster
        epochs = {one: cluster.brokers[one].epoch for one in back}
        restarted = {key: _in_sync_before(one, epochs) for key, one in written.items()}
        lost = {
            key: losses.since(key, assignment, state, zxid)
            for key, (state, zxid) in written.items()
            if (assignment := cluster.assignment(key)) is not None
        }

        def elected(key: TopicPartition, assignment: Assignment, state: LeaderAndIsr) -> LeaderAndIsr | None:
            reachable, online = cluster.reachable(key), cluster.online(key)
            return elect_after_restart(assignment, state, reachable, online, restarted=restarted[key], lost=lost[key])

        self._leaders.change([key for key in lost if restarted[key] or lost[key] != NOTHING_LOST], elected)

    def _losses(self, come: Mapping[int, LiveBroker]) -> BrokerLosses:
        brokers, reports = {**self._cluster.brokers, **come}, self._store.reports
        new_disks, power_losses = reports.new_disks(brokers.values()), reports.power_losses(brokers.values())
        return BrokerLosses(brokers, new_disks, power_losses, self._seen)

    def _concerned(self, key: TopicPartition, state: LeaderAndIsr) -> Collection[int]:
        """Returns the replicas whose losses decide who leads: without a leader all, else those that may be elected."""
        assignment = self._cluster.assignment(key)
        if state.leader == NO_LEADER and assignment is not None:
            return assignment.replicas
        return (*state.isr, *state.eligibility.eligible)


def _in_sync_before(written: WrittenState, zxids: Mapping[int, int]) -> frozenset[int]:
    """Returns those in-sync replicas whose broker's transaction in `zxids` is newer than the stored leader and ISR."""
    return frozenset(one for one in written.state.isr if zxids.get(one, written.zxid) > written.zxid)
