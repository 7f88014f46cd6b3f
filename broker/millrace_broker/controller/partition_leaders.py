"""Elects leaders: writes new states of partitions to ZooKeeper, and has the brokers told of them.

A state that another writer has changed meanwhile is read again, and what was to be done is decided again. A topic that
is being deleted keeps its states: a broker that is told its role makes the log again that it has just deleted.

`Reassignments` moves partitions to other brokers (KIP-455):

    begin   the assignment has the new replicas and then the old ones, and the new ones start and catch up
    end     all replicas of the target are in sync: one of them leads, the others leave, and delete their logs

A reassignment does not end while the log of a replica of the target is reported damaged and others are to leave, each
of which may have the last sound copy: the damage heals first. Where nothing heals it, the operator decides.

The assignment in ZooKeeper says what is under way, so that the next controller goes on with it. At the beginning it is
written before the brokers are told, and at the end after the partition's new state. A reassignment is cancelled by one
back to the origin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from millrace.errors import ZooKeeperError
from millrace.leader_states import NO_LEADER
from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr
from millrace_broker.controller.control_requests import ControlRequests
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.elections import (
    elect_after_failure,
    elect_first,
    elect_in_target,
    raise_epoch,
    sound_first,
)
from millrace_broker.controller.eligibility import awaited, eligibility_after, may_have_eligible, without_eligible
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

ATTEMPTS = 10

Decide = Callable[[TopicPartition, Assignment, LeaderAndIsr], LeaderAndIsr | None]


class PartitionLeaders:
    """Changes the states (leader and ISR) of partitions, in ZooKeeper and in `cluster`, and tells the brokers.

    Args:
        cluster: is given the new states once they are stored.
        store: writes the new states to ZooKeeper.
        requests: collects what the brokers are told.
        counts: counts the elections.
        is_unclean_allowed: unclean.leader.election.enable of the broker, for topics that do not set it.
    """

    def __init__(
        self,
        cluster: ClusterState,
        store: ControllerStore,
        requests: ControlRequests,
        counts: ElectionCounts,
        *,
        is_unclean_allowed: bool,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._requests = requests
        self._counts = counts
        self._is_unclean_allowed = is_unclean_allowed

    def create(self, keys: Iterable[TopicPartition]) -> None:
        """Elects leaders for new partitions that have a replica online, and has brokers make the replicas."""
        first: dict[TopicPartition, LeaderAndIsr] = {}
        for key in keys:
            assignment = self._cluster.assignment(key)
            state = None if assignment is None else elect_first(assignment, self._cluster.online(key))
            if state is not None:
                first[key] = state
        self._cluster.leaders |= self._store.create_states(first)
        for key in first:
            replicas = self._cluster.online(key)
            self._requests.tell_roles(replicas, key, new=replicas)

    def change(self, keys: Iterable[TopicPartition], decide: Decide) -> set[TopicPartition]:
        """Writes the states that `decide` returns for partitions (None: no change); returns those that have changed.

        The reachable replicas are told of each change, and all brokers of the new metadata.
        """
        left, changed = set(keys), set[TopicPartition]()
        for _ in range(ATTEMPTS):
            self._forget_eligible(left)
            written, left = self._written(self._decided(left, decide))
            changed |= written.keys()
            if not left:
                break
            self.read_again(left)
        else:
            raise ZooKeeperError(f"the states of {len(left)} partitions are changed by others all the time")
        for key in changed:
            self._requests.tell_roles(self._cluster.reachable(key), key)
        for key in sorted(changed):
            if self._cluster.leaders[key].leader == NO_LEADER:
                logger.warning(_why_without_leader(key, self._cluster.leaders[key]))
        return changed

    def write(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[Mapping[TopicPartition, LeaderAndIsr], Collection[TopicPartition]]:
        """Writes states that leaders have asked for, and who is eligible then.

        Returns those that are written, and the partitions whose states others have changed, which are read again.
        """
        self._forget_eligible(states)
        known = {key: self._cluster.leaders[key].eligibility for key in states}
        written, refused = self._written({key: replace(one, eligibility=known[key]) for key, one in states.items()})
        self.read_again(refused)
        return written, refused

    def _written(
        self, decided: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], set[TopicPartition]]:
        """Writes states with who is eligible in each, and takes them into `cluster`; returns as `change_states`."""
        before, brokers = self._cluster.leaders, self._cluster.brokers
        leaders = {key: brokers.get(one.leader) for key, one in decided.items() if may_have_eligible(before[key], one)}
        known = self._store.reports.min_isrs((key.topic, one) for key, one in leaders.items() if one is not None)
        states = {}
        for key, after in decided.items():
            assignment = self._cluster.assignment(key)
            assert assignment is not None, "decided by its replicas"
            min_isr = known.get((key.topic, after.leader)) if key in leaders else None
            eligibility = eligibility_after(assignment, before[key], after, min_isr)
            states[key] = replace(after, eligibility=eligibility)
        written, refused = self._store.change_states(states)
        self._count(written)
        self._cluster.leaders |= written
        return written, refused

    def _forget_eligible(self, keys: Iterable[TopicPartition]) -> None:
        """Takes nobody for eligible where a configuration that decides the min ISR was written meanwhile."""
        states = {key: one for key in keys if (one := self._cluster.leaders.get(key)) and one.eligibility.eligible}
        if not states:
            return
        changed = self._store.reports.changed_configs(one.eligibility.configs for one in states.values())
        for key, one in states.items():
            if not changed.isdisjoint(one.eligibility.configs):
                self._cluster.leaders[key] = without_eligible(one)

    def elect_leaders(self, keys: Iterable[TopicPartition]) -> None:
        """Elects leaders where the leader is not online, and removes replicas from the ISR that are not online."""
        wanted = [key for key in keys if key in self._cluster.leaders]
        stuck = {key.topic for key in wanted if not self._cluster.online(key) & set(self._cluster.leaders[key].isr)}
        unclean = self._store.unclean_topics(stuck, default=self._is_unclean_allowed) if stuck else set()
        self.change(wanted, partial(self._elected, unclean))

    def read_again(self, keys: Collection[TopicPartition]) -> None:
        """Reads the states of partitions from ZooKeeper into `cluster`, as others have changed them."""
        found = self._store.written_states(self._cluster.replica_counts(keys))
        self._cluster.leaders |= {key: one.state for key, one in found.items()}
        for key in set(keys) - found.keys():
            self._cluster.leaders.pop(key, None)

    def _count(self, written: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Counts the elections in the states written; `cluster` must still have the states before."""
        for key, state in written.items():
            before = self._cluster.leaders[key]
            if state.leader not in (NO_LEADER, before.leader):
                self._counts.elected += 1
                self._counts.unclean += state.leader not in (*before.isr, *before.eligibility.eligible)

    def _elected(
        self, unclean: Collection[str], key: TopicPartition, assignment: Assignment, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        reachable, online = self._cluster.reachable(key), self._cluster.online(key)
        return elect_after_failure(assignment, state, reachable, online, is_unclean_allowed=key.topic in unclean)

    def _decided(self, keys: Iterable[TopicPartition], decide: Decide) -> dict[TopicPartition, LeaderAndIsr]:
        decided: dict[TopicPartition, LeaderAndIsr] = {}
        for key in sorted(one for one in keys if one.topic not in self._cluster.deleting):
            assignment, state = self._cluster.assignment(key), self._cluster.leaders.get(key)
            if assignment is not None and state is not None:
                after = decide(key, sound_first(assignment, self._cluster.damaged_replicas(key)), state)
                if after is not None:
                    decided[key] = after
        return decided


def _why_without_leader(key: TopicPartition, state: LeaderAndIsr) -> str:
    """Returns the sentence that says what a partition without a leader waits for, and how it gets one all the same."""
    known, waits_for = state.eligibility, list(awaited(state))
    lost = [
        f"{reason} {list(brokers)}"
        for reason, brokers in (("power was lost on", known.doubtful), ("the disk is empty on", known.empty))
        if brokers
    ]
    why = (
        f"it waits for one of the brokers {waits_for}, which have every committed record"
        if waits_for
        else ("no replica is known to have every committed record")
    )
    command = f"`millrace brokers elect --topic {key.topic} --unclean` lets another lead, and says what is lost"
    return "; ".join([f"{key} has no leader: {why}", *lost, command])


_Assignments = dict[TopicPartition, Assignment]


class Reassignments:
    """Begins, continues and ends the reassignments that the assignments in `cluster` name."""

    def __init__(
        self,
        cluster: ClusterState,
        store: ControllerStore,
        requests: ControlRequests,
        leaders: PartitionLeaders,
        moved_away: Callable[[TopicPartition, Collection[int]], None],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._requests = requests
        self._leaders = leaders
        self._moved_away = moved_away

    def begin(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Begins reassignments in place of those under way, and ends those that move nothing."""
        for key, target in targets.items():
            before = self._cluster.topics[key.topic].assignments[key.partition]
            after = before.to(target)
            if after != before:
                removed = [one for one in before.replicas if one not in after.replicas]
                self._write(key, after, removed)
                self._stop(key, removed)
        self.go_on(targets, is_begin=True)

    def go_on(self, keys: Iterable[TopicPartition], *, is_begin: bool = False) -> None:
        """Ends those reassignments whose target is in sync; with `is_begin` has brokers start the others' replicas."""
        ready, others = self._ready(keys)
        if any(one.removing for one in ready.values()):
            self._cluster.damaged = self._store.reports.damage()  # what is deleted then does not come back
        waiting = {key for key, assignment in ready.items() if self._waits_for_healing(key, assignment)}
        for key, assignment in sorted({**ready, **others}.items()):
            if key in ready and key not in waiting:
                self._end(key, assignment)
            elif is_begin:
                self._leaders.change([key], lambda _key, _assignment, state: raise_epoch(state))
                self._requests.tell_roles(assignment.replicas, key, new=assignment.adding)

    def _ready(self, keys: Iterable[TopicPartition]) -> tuple[_Assignments, _Assignments]:
        """Returns the partitions whose target is in sync, or that are not reassigned any more, and the others."""
        ready: _Assignments = {}
        others: _Assignments = {}
        for key in keys:
            assignment, state = self._cluster.assignment(key), self._cluster.leaders.get(key)
            if assignment is not None and state is not None:
                is_ready = not assignment.is_reassigned or set(assignment.target) <= set(state.isr)
                (ready if is_ready else others)[key] = assignment
        return ready, others

    def _waits_for_healing(self, key: TopicPartition, assignment: Assignment) -> bool:
        """Returns whether a replica that is to leave may have what damaged ones of the target lack; logs that."""
        damaged = self._cluster.damaged_replicas(key)
        lacking, leaving = damaged.intersection(assignment.target), assignment.removing
        if lacking and leaving:
            sentence = "%s is not taken from the brokers %s yet: its logs on the brokers %s are damaged, and heal first"
            logger.warning(sentence, key, sorted(leaving), sorted(lacking))
        return bool(lacking and leaving)

    def _end(self, key: TopicPartition, assignment: Assignment) -> None:
        self._set(key, Assignment(assignment.target))
        if not self._leaders.change([key], self._elected):
            self._set(key, assignment)
            logger.warning("%s waits for a leader among the brokers %s that it goes to", key, list(assignment.target))
            return
        for broker in assignment.removing:
            self._requests.stop(broker, key, delete=True)
        self._write(key, Assignment(assignment.target), assignment.removing)
        logger.info("%s is on the brokers %s", key, list(assignment.target))

    def _elected(self, key: TopicPartition, assignment: Assignment, state: LeaderAndIsr) -> LeaderAndIsr | None:
        return elect_in_target(assignment, state, self._cluster.online(key))

    def _stop(self, key: TopicPartition, brokers: Collection[int]) -> None:
        """Removes brokers that shall not keep the partition from its ISR, and has them delete their replica."""
        if brokers:
            self._leaders.change([key], self._elected_among_all)
        for broker in brokers:
            self._requests.stop(broker, key, delete=True)

    def _elected_among_all(
        self, key: TopicPartition, assignment: Assignment, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        return elect_in_target(Assignment(assignment.replicas), state, self._cluster.online(key))

    def _write(self, key: TopicPartition, assignment: Assignment, removed: Collection[int]) -> None:
        self._store.write_assignment(key, assignment, removed)
        self._moved_away(key, removed)
        self._set(key, assignment)

    def _set(self, key: TopicPartition, assignment: Assignment) -> None:
        self._cluster.topics[key.topic].assignments[key.partition] = assignment
