"""What the controller does at each event, from its start until its claim is lost.

Each event reads what has changed, changes states in ZooKeeper, and then tells the brokers. A NotControllerError ends
the role: another broker is the controller. A ZooKeeperError ends it too, since it is then not known what was written;
the broker claims the role again, and starts by reading everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from millrace.addresses import PLAINTEXT, Address
from millrace.errors import ErrorCode, ProducerIdsExhaustedError, StorageError
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.zk import codec, paths
from millrace_broker.controller.broker_channels import BrokerChannels
from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr, LiveBroker
from millrace_broker.controller.control_requests import (
    BrokerResponse,
    ControlRequests,
    deletions_in,
    roles_in,
)
from millrace_broker.controller.controller_store import ControllerStore, Notification
from millrace_broker.controller.elections import (
    AskedPartition,
    IsrProposal,
    LogEnds,
    elect_at_shutdown,
    elect_longest,
    elect_preferred,
    find_imbalance,
    judge,
)
from millrace_broker.controller.failed_deletions import FailedDeletions
from millrace_broker.controller.log_ends import Questions
from millrace_broker.controller.partition_leaders import PartitionLeaders, Reassignments
from millrace_broker.controller.restarts import Restarts
from millrace_broker.controller.topic_deletions import TopicDeletions
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)
NO_LOG_ENDS: LogEnds = {}
T = TypeVar("T")


class ControllerConfig(NamedTuple):
    """The broker's properties that the controller obeys."""

    deletes_topics: bool = True  # delete.topic.enable
    is_unclean_allowed: bool = False  # unclean.leader.election.enable
    rebalance_interval_s: float | None = 300.0  # leader.imbalance.check.interval.seconds; None without the checks
    most_imbalance_percent: int = 10  # leader.imbalance.per.broker.percentage
    inter_broker_listener: str = PLAINTEXT  # inter.broker.listener.name


class ActiveController:
    """This broker's work as the controller, from a successful claim (of `store`) until it ends; for one thread.

    `begin_pause` has `delete_failed_again` called on that thread, once, after a pause.
    """

    def __init__(  # noqa: PLR0917  wired in one place
        self,
        broker_id: int,
        config: ControllerConfig,
        store: ControllerStore,
        channels: BrokerChannels,
        counts: ElectionCounts,
        begin_pause: Callable[[], None],
    ) -> None:
        self.cluster = ClusterState()
        self._config = config
        self._store = store
        self._channels = channels
        self._requests = ControlRequests(self.cluster, broker_id, store.claim.epoch, config.inter_broker_listener)
        self._leaders = PartitionLeaders(
            self.cluster, store, self._requests, counts, is_unclean_allowed=config.is_unclean_allowed
        )
        self._deletions = TopicDeletions(self.cluster, store, self._requests, is_enabled=config.deletes_topics)
        self._failed_deletions = FailedDeletions(self.cluster, store, self._requests, begin_pause)
        self._reassignments = Reassignments(
            self.cluster, store, self._requests, self._leaders, self._failed_deletions.moved_away
        )
        self._restarts = Restarts(self.cluster, store, self._leaders)

    def start(self) -> None:
        """Reads the cluster's state, tells it to all brokers, elects leaders, continues reassignments and deletions."""
        for parent in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS):
            self._store.remove(one.path for one in self._store.notifications(parent))
        self.cluster.brokers = self._store.brokers()
        self.cluster.topics = self._store.topics()
        self.cluster.damaged = self._store.reports.damage()
        written = self._store.written_states(self.cluster.replica_counts(key for key, _ in self.cluster.partitions()))
        self.cluster.leaders = {key: state for key, (state, _) in written.items()}
        for broker in self.cluster.brokers.values():
            self._channels.open(broker)
        self._deletions.read_requests()
        self._requests.tell_metadata(self.cluster.brokers, self.cluster.leaders)
        self._start_replicas(self.cluster.brokers.keys())
        self._restarts.elect_at_start(written)
        self._elect_all()
        self._send(metadata_first=True)  # a coordinator has to know the leaders of all partitions
        self._failed_deletions.begin()
        self._go_on(self.reassignments(), is_begin=True)
        self._send()
        self.read_reassignments()
        self.read_preferred_elections()

    def read_brokers(self) -> None:
        """Reads the registrations; acts on brokers that are new, gone, restarted, or have other endpoints."""
        found, known = self._store.brokers(), self.cluster.brokers
        gone = {one for one in known if one not in found or found[one].epoch != known[one].epoch}
        come = {one for one in found if one not in known or one in gone}
        moved = {one for one in found.keys() - come if found[one] != known[one]}
        if gone:
            self._remove_brokers(gone, {one: found[one] for one in gone if one in found})
        for broker in moved:
            self._channels.close(broker)  # `_add_brokers` sends everything again
        for broker in come | moved:
            self.cluster.brokers[broker] = found[broker]
            self._channels.open(found[broker])
        if gone:
            self._requests.tell_metadata(self.cluster.brokers)
        if come or moved:
            self._add_brokers(come, moved)
        self._send()

    def process_ended(self, broker: LiveBroker) -> None:
        """Treats a broker whose process has ended as gone, though its ZooKeeper session still lasts for a while."""
        if self.cluster.brokers.get(broker.id) != broker or broker.id in self.cluster.shutting_down:
            return
        if self._store.deregister(broker):
            logger.warning("the process of broker %d has ended: others lead its partitions from now on", broker.id)
        self.read_brokers()

    def read_topics(self) -> None:
        """Reads the topics; forgets those that are gone, and elects leaders for new topics and partitions."""
        found = self._store.topics()
        for name, topic in list(self.cluster.topics.items()):
            if name not in found or found[name].topic_id != topic.topic_id:
                self.cluster.forget_topic(name)
                self._deletions.forget(name)
        added = []
        for name, topic in found.items():
            known = self.cluster.topics.setdefault(name, topic)
            if known is topic or len(topic.assignments) > len(known.assignments):
                first = 0 if known is topic else len(known.assignments)
                known.assignments[first:] = topic.assignments[first:]
                added += [TopicPartition(name, index) for index in range(first, len(topic.assignments))]
        if added:
            self._deletions.read_requests()  # one of a topic that was not known yet is still there
        self._leaders.create(key for key in added if key.topic not in self.cluster.deleting)
        self._elect_all()
        self._send()

    def read_damage(self) -> None:
        """Reads which logs are damaged: that decides who leads from the next election on; ends reassignments."""
        self.cluster.damaged = self._store.reports.damage()
        self._go_on(self.reassignments())
        self._send()

    def read_deletions(self) -> None:
        """Begins the deletions of topics that clients have asked for in ZooKeeper."""
        self._deletions.read_requests()
        self._send()

    def read_preferred_elections(self) -> None:
        """Elects the preferred leaders of the partitions that a tool has named in ZooKeeper; removes the request."""
        request = self._store.requested(paths.PREFERRED_ELECTION)
        if request is not None:
            self.elect(_named(request))
            self._store.remove([request.path])

    def read_reassignments(self) -> None:
        """Begins the reassignments that a tool has written to ZooKeeper, and removes the request."""
        request = self._store.requested(paths.REASSIGNMENT)
        if request is not None:
            targets = _read(request, codec.decode_reassignment) or {}
            outcomes = self.reassign({TopicPartition(*key): target for key, target in targets.items()})
            for key, outcome in outcomes.items():
                if outcome is not ErrorCode.NONE:
                    logger.warning("%s does not go to brokers %s: %s", key, list(targets[key]), outcome.name)
            self._store.remove([request.path])

    def read_isr_changes(self) -> None:
        """Reads the in-sync replicas of partitions whose leaders have written them, and tells all brokers of them."""
        notifications = self._store.notifications(paths.ISR_CHANGES)
        keys = {key for one in notifications for key in _named(one) if self.cluster.assignment(key) is not None}
        self._leaders.read_again(keys)
        self._requests.tell_metadata(self.cluster.brokers if keys else (), keys)
        self._store.remove(one.path for one in notifications)
        self._go_on(keys)
        self._send()

    def read_log_dir_events(self) -> None:
        """Sends LeaderAndIsr to brokers whose data directories have failed or are back; they respond which replicas."""
        notifications = self._store.notifications(paths.LOG_DIR_EVENTS)
        brokers = {_read(one, codec.decode_log_dir_event) for one in notifications}
        self._start_replicas(self.cluster.brokers.keys() & brokers)
        self._store.remove(one.path for one in notifications)
        self._send()

    def answered(self, response: BrokerResponse) -> None:
        """Acts on a broker's response: replicas that have failed, that can be used again, or that are deleted."""
        broker = self.cluster.brokers.get(response.broker)
        if broker is None or broker.epoch != response.broker_epoch:
            return
        roles = roles_in(response)
        failed = self.cluster.failed_replicas.setdefault(broker.id, set())
        newly_failed, recovered = roles.failed - failed, roles.taken & failed
        failed |= roles.failed
        failed -= roles.taken
        if newly_failed:
            logger.warning("broker %d can't serve %d replicas: a disk failed or is full", broker.id, len(newly_failed))
            self._leaders.elect_leaders(newly_failed)
        if recovered:
            logger.warning("broker %d serves %d replicas again that it could not serve", broker.id, len(recovered))
            self._requests.tell_metadata(self.cluster.brokers, recovered)
            self._start_replicas([broker.id], recovered)  # a change since they were asked was not told to failed ones
            self._leaders.elect_leaders(recovered)
        deletions = deletions_in(response)
        self._failed_deletions.answered(broker.id, deletions)
        self._deletions.deleted(broker.id, deletions.deleted)
        self._send()

    def delete_failed_again(self) -> None:
        """Has replicas deleted that brokers have failed to delete, after a pause."""
        self._failed_deletions.pause_ended()
        self._send()

    def alter_partitions(
        self, broker: int, broker_epoch: int, proposals: Mapping[AskedPartition, IsrProposal]
    ) -> Mapping[AskedPartition, LeaderAndIsr | ErrorCode] | ErrorCode:
        """Changes ISRs as the leader `broker` proposes; returns each one's state or error, or one error for all."""
        known = self.cluster.brokers.get(broker)
        if known is None or known.epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        names = {topic.topic_id: name for name, topic in self.cluster.topics.items()}
        keys = {one: _by_name(one, names) for one in proposals}
        outcomes = self._altered({key: proposals[one] for one, key in keys.items() if key is not None})
        return {one: ErrorCode.UNKNOWN_TOPIC_ID if key is None else outcomes[key] for one, key in keys.items()}

    def _altered(
        self, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> Mapping[TopicPartition, LeaderAndIsr | ErrorCode]:
        """Writes those proposed ISRs that are allowed; returns each partition's leader and ISR, or its error code."""
        outcomes = {key: judge(self.cluster, key, proposal) for key, proposal in proposals.items()}
        wanted = {
            key: outcome
            for key, outcome in outcomes.items()
            if isinstance(outcome, LeaderAndIsr) and outcome != self.cluster.leaders[key]
        }
        written, refused = self._leaders.write(wanted)
        self._requests.tell_metadata(self.cluster.brokers if written else (), written)
        self._go_on(written)
        self._send()
        return {**outcomes, **written, **dict.fromkeys(refused, ErrorCode.INVALID_UPDATE_VERSION)}

    def shut_down(self, broker: int, broker_epoch: int) -> list[TopicPartition] | ErrorCode:
        """Moves leaders away from a broker that is about to stop; returns the partitions that it must go on leading."""
        known = self.cluster.brokers.get(broker)
        if known is None:
            return ErrorCode.BROKER_NOT_AVAILABLE
        if broker_epoch not in (NO_BROKER_EPOCH, known.epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        self.cluster.shutting_down.add(broker)
        kept = [
            key
            for key, assignment in self.cluster.kept_partitions()
            if broker in assignment.replicas and len(assignment.replicas) > 1 and key in self.cluster.leaders
        ]
        self._leaders.change(
            kept,
            lambda key, assignment, state: elect_at_shutdown(assignment, state, self.cluster.online(key), broker),
        )
        left = [key for key in kept if self.cluster.leaders[key].leader == broker]
        for key in set(kept) - set(left):
            self._requests.stop(broker, key, delete=False)
        self._send()
        return left

    def elect(
        self, keys: Iterable[TopicPartition] | None, *, is_unclean: bool = False, log_ends: LogEnds = NO_LOG_ENDS
    ) -> dict[TopicPartition, ErrorCode]:
        """Makes the preferred leaders of these partitions lead (None: of all); returns the outcome of each.

        With `is_unclean` it gives partitions without a leader the replica that is online and has the longest log by
        `log_ends`.
        """
        wanted = set(self.cluster.leaders if keys is None else keys)
        known = {key for key in wanted if key in self.cluster.leaders and key.topic not in self.cluster.deleting}
        needed = {key for key in known if self._needs_election(key, is_unclean=is_unclean)}
        unclean = partial(self._elected_longest, log_ends)
        changed = self._leaders.change(needed, unclean if is_unclean else self._elected_preferred)
        self._send()
        led = {key for key in changed if self.cluster.leaders[key].leader in self.cluster.online(key)}
        failure = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if is_unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return {
            **dict.fromkeys(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            **dict.fromkeys(known, ErrorCode.ELECTION_NOT_NEEDED),
            **dict.fromkeys(needed, failure),
            **dict.fromkeys(led, ErrorCode.NONE),
        }

    def without_leaders(self, keys: Iterable[TopicPartition] | None) -> Questions:
        """Returns those of the partitions (None: of all) that have no leader, by the brokers that may have their logs.

        Each broker is there with its address for other brokers.
        """
        found: dict[tuple[int, Address], list[TopicPartition]] = {}
        for key in set(self.cluster.leaders if keys is None else keys) & self.cluster.leaders.keys():
            if self._needs_election(key, is_unclean=True):
                for broker in self.cluster.online(key):
                    endpoint = self.cluster.brokers[broker].endpoint(self._config.inter_broker_listener)
                    if endpoint is not None:
                        found.setdefault((broker, endpoint.address), []).append(key)
        return found

    def rebalance_leaders(self) -> None:
        """Makes preferred leaders lead again on brokers that lead too few of the partitions that they should."""
        keys = find_imbalance(self.cluster, self._config.most_imbalance_percent)
        if keys:
            logger.info("%d partitions are led by their first replicas again", len(keys))
            self.elect(keys)

    def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, keeps_factor: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Begins reassignments, and cancels those whose target is None; returns the outcome of each.

        With `keeps_factor` a target must have as many replicas as the partition has.
        """
        outcomes = {
            key: self._reassignment_error(key, target, keeps_factor=keeps_factor) for key, target in targets.items()
        }
        taken: dict[TopicPartition, tuple[int, ...]] = {}
        for key, target in targets.items():
            assignment = self.cluster.assignment(key)
            if assignment is not None and outcomes[key] is ErrorCode.NONE:
                taken[key] = assignment.origin if target is None else target
        self._reassignments.begin(taken)
        self._deletions.resume()
        self._send()
        return outcomes

    def reassignments(self) -> dict[TopicPartition, Assignment]:
        """Returns the assignments of the partitions that are being reassigned."""
        return {key: assignment for key, assignment in self.cluster.partitions() if assignment.is_reassigned}

    def allocate_producer_ids(self, broker: int, broker_epoch: int) -> range | ErrorCode:
        """Returns a block of producer ids, reserved for the broker, or an error code."""
        known = self.cluster.brokers.get(broker)
        if known is None or known.epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        try:
            return self._store.reserve_producer_ids(broker)
        except (ProducerIdsExhaustedError, StorageError) as error:
            return error.code

    def close(self) -> None:
        """Closes the channels, so that nothing more is sent to the brokers."""
        for broker in self.cluster.brokers:
            self._channels.close(broker)

    def _remove_brokers(self, gone: AbstractSet[int], back: Mapping[int, LiveBroker]) -> None:
        """Removes brokers that are gone, also from ISRs, and elects other leaders for the partitions that they led.

        Some are already `back`. What these have lost comes first: no state is to be written that passes over it.
        """
        logger.info("brokers %s are gone", sorted(gone))
        for broker in gone:
            del self.cluster.brokers[broker]
            self.cluster.shutting_down.discard(broker)
            self.cluster.failed_replicas.pop(broker, None)
            self._channels.close(broker)
        self._restarts.elect_without_lost(back)
        concerned = [key for key, one in self.cluster.kept_partitions() if gone & set(one.replicas)]
        self._leaders.elect_leaders(concerned)

    def _add_brokers(self, come: AbstractSet[int], moved: AbstractSet[int]) -> None:
        """Tells new brokers, or those with other endpoints, the metadata, and makes them lead and follow partitions."""
        told = come | moved
        logger.info("brokers %s have come, or changed their registrations", sorted(told))
        self._requests.tell_metadata(self.cluster.brokers)
        self._requests.tell_metadata(told, self.cluster.leaders)
        self._send()  # before roles, as at the start
        self._start_replicas(told)
        self._restarts.elect_without_lost({one: self.cluster.brokers[one] for one in come})
        self._elect_all()
        moving = self.reassignments()
        self._go_on([key for key in moving if not told.isdisjoint(moving[key].replicas)], is_begin=True)
        self._deletions.ask_again(told)
        self._failed_deletions.ask_again()

    def _start_replicas(self, brokers: Collection[int], among: Collection[TopicPartition] | None = None) -> None:
        """Tells brokers, for the replicas that they have of these partitions (None: of all), if they lead or follow."""
        for key, assignment in self.cluster.kept_partitions():
            if among is None or key in among:
                self._requests.tell_roles([one for one in assignment.replicas if one in brokers], key)

    def _elect_all(self) -> None:
        """Elects a leader for each partition that is new, or whose leader is offline, if a replica can lead."""
        kept = [key for key, _ in self.cluster.kept_partitions()]
        self._leaders.create(key for key in kept if key not in self.cluster.leaders)
        self._leaders.elect_leaders(kept)

    def _go_on(self, keys: Iterable[TopicPartition], *, is_begin: bool = False) -> None:
        """Goes on with those of the partitions that are reassigned; begins deletions that waited until that ends."""
        self._reassignments.go_on((key for key in keys if self._is_reassigned(key)), is_begin=is_begin)
        self._deletions.resume()

    def _is_reassigned(self, key: TopicPartition) -> bool:
        assignment = self.cluster.assignment(key)
        return assignment is not None and assignment.is_reassigned

    def _needs_election(self, key: TopicPartition, *, is_unclean: bool) -> bool:
        leader = self.cluster.leaders[key].leader
        if is_unclean:
            return leader not in self.cluster.reachable(key)
        return leader != self.cluster.topics[key.topic].assignments[key.partition].replicas[0]

    def _elected_preferred(
        self, key: TopicPartition, _assignment: Assignment, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        preferred = self.cluster.topics[key.topic].assignments[key.partition]
        return elect_preferred(preferred, state, self.cluster.sound(key))

    def _elected_longest(
        self, log_ends: LogEnds, key: TopicPartition, assignment: Assignment, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        return elect_longest(assignment, state, self.cluster.online(key), log_ends.get(key, {}))

    def _reassignment_error(
        self, key: TopicPartition, target: tuple[int, ...] | None, *, keeps_factor: bool
    ) -> ErrorCode:
        assignment = self.cluster.assignment(key)
        if assignment is None or key.topic in self.cluster.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if target is None and not assignment.is_reassigned:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        if self._leaves_none_in_sync(key, assignment, assignment.to(assignment.origin if target is None else target)):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if target is None:
            return ErrorCode.NONE
        is_valid = target and min(target) >= 0 and len(set(target)) == len(target)
        if not is_valid or not self.cluster.live() >= set(assignment.to(target).adding):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        changes_factor = len(target) != len(assignment.origin)
        return ErrorCode.INVALID_REPLICATION_FACTOR if keeps_factor and changes_factor else ErrorCode.NONE

    def _leaves_none_in_sync(self, key: TopicPartition, before: Assignment, after: Assignment) -> bool:
        """Returns whether a change deletes all in-sync replicas: it deletes at once what it leaves out."""
        state = self.cluster.leaders.get(key)
        in_sync = set[int]() if state is None else set(state.isr) & set(before.replicas)
        return bool(in_sync) and in_sync.isdisjoint(after.replicas)

    def _send(self, *, metadata_first: bool = False) -> None:
        for broker, requests in self._requests.drain(metadata_first=metadata_first).items():
            self._channels.send(broker, requests)


def _by_name(asked: AskedPartition, names: Mapping[UUID, str]) -> TopicPartition | None:
    """Returns a partition with its topic's name, which may be given by the topic's id; None for an unknown id."""
    if isinstance(asked, TopicPartition):
        return asked
    return TopicPartition(names[asked.topic_id], asked.partition) if asked.topic_id in names else None


def _named(notification: Notification) -> list[TopicPartition]:
    """Returns the partitions in the data of a notification's node; none, and logs that, if the data can't be read."""
    return [TopicPartition(*one) for one in _read(notification, codec.decode_partitions) or ()]


def _read(notification: Notification, decode: Callable[[bytes], T]) -> T | None:
    return codec.readable(decode, notification.data, logger, "%s can't be read and is removed", notification.path)
