"""What the controller tells which broker, gathered during an event and sent at its end in as few requests as possible.

    LeaderAndIsr     to the replicas of a partition whose leader, ISR or assignment has changed
    UpdateMetadata   to all brokers, with the partitions that have changed, or with the live brokers alone
    StopReplica      to a broker that keeps a partition no more, or is not to follow its leader any longer

Each broker gets them in this order. A request carries the broker's epoch, so that a broker that has started again
meanwhile refuses what was meant for it before.

The answers to LeaderAndIsr and StopReplica tell which replicas have failed or are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.addresses import PLAINTEXT
from millrace.errors import ErrorCode
from millrace.leader_states import LEADER_DURING_DELETE
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.protocols import SecurityProtocol
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.controller.cluster_state import ClusterState, LeaderAndIsr
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.leader_and_isr import (
        LeaderAndIsrPartitionStateFields,
        LeaderAndIsrRequestFields,
        LeaderAndIsrResponse,
    )
    from millrace.wire.messages.stop_replica import (
        StopReplicaPartitionStateFields,
        StopReplicaRequestFields,
        StopReplicaResponse,
    )
    from millrace.wire.messages.update_metadata import (
        UpdateMetadataBrokerFields,
        UpdateMetadataPartitionStateFields,
        UpdateMetadataRequestFields,
    )

TAKEN = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)  # now, or by an earlier request
UNKNOWN_TYPE = 0  # only a migration to KRaft tells full requests from others


class LeaderAndIsrRequest(NamedTuple):
    """A request that tells a broker which partitions to lead and to follow."""

    fields: LeaderAndIsrRequestFields


class UpdateMetadataRequest(NamedTuple):
    """A request that tells a broker the cluster's brokers and leaders, for its clients."""

    fields: UpdateMetadataRequestFields


class StopReplicaRequest(NamedTuple):
    """A request that tells a broker which replicas to stop, and which of their logs to delete."""

    fields: StopReplicaRequestFields


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControlRequests:
    """Collects what the controller has to tell each broker, until `drain` makes requests of it.

    Args:
        cluster: read when `drain` makes the requests, so that they tell of the newest state.
        controller_id: the id of this broker.
        controller_epoch: this broker's epoch as the controller.
        inter_broker_listener: the listener by which followers reach their leaders.
    """

    def __init__(
        self,
        cluster: ClusterState,
        controller_id: int,
        controller_epoch: int,
        inter_broker_listener: str = PLAINTEXT,
    ) -> None:
        self._inter_broker_listener = inter_broker_listener
        self._cluster = cluster
        self._controller = (controller_id, controller_epoch)
        self._roles: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[int, set[TopicPartition]] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}

    def tell_roles(self, brokers: Iterable[int], key: TopicPartition, *, new: Collection[int] = ()) -> None:
        """Queues LeaderAndIsr for those of the brokers that are registered; `new` are those that get a new replica."""
        for broker in brokers:
            if broker in self._cluster.brokers and key in self._cluster.leaders:
                roles = self._roles.setdefault(broker, {})
                roles[key] = roles.get(key, False) or broker in new
        self.tell_metadata(self._cluster.brokers, [key])

    def tell_metadata(self, brokers: Iterable[int], keys: Iterable[TopicPartition] = ()) -> None:
        """Queues UpdateMetadata for brokers, with the live brokers and these partitions."""
        told = list(keys)
        for broker in brokers:
            self._metadata.setdefault(broker, set()).update(told)

    def stop(self, broker: int, key: TopicPartition, *, delete: bool) -> None:
        """Queues StopReplica for a broker if it is registered; with `delete` it is to delete the log, too."""
        if broker in self._cluster.brokers:
            stops = self._stops.setdefault(broker, {})
            stops[key] = stops.get(key, False) or delete

    def drain(self, *, metadata_first: bool = False) -> dict[int, list[ControlRequest]]:
        """Returns the queued requests to each broker in the order to send them, and empties the queues.

        LeaderAndIsr comes before the metadata that names the new leaders, unless `metadata_first`, as for a broker that
        may not know the partitions yet.
        """
        brokers = {*self._roles, *self._metadata, *self._stops} & self._cluster.brokers.keys()
        requests = {broker: list(self._requests_to(broker)) for broker in sorted(brokers)}
        if metadata_first:
            for told in requests.values():
                told.sort(key=lambda request: not isinstance(request, UpdateMetadataRequest))
        self._roles, self._metadata, self._stops = {}, {}, {}
        return requests

    def _requests_to(self, broker: int) -> Iterable[ControlRequest]:
        if broker in self._roles:
            yield LeaderAndIsrRequest(self._leader_and_isr(broker, self._roles[broker]))
        if broker in self._metadata:
            yield UpdateMetadataRequest(self._update_metadata(broker, self._metadata[broker]))
        if broker in self._stops:
            yield StopReplicaRequest(self._stop_replica(broker, self._stops[broker]))

    def _leader_and_isr(self, broker: int, roles: Mapping[TopicPartition, bool]) -> LeaderAndIsrRequestFields:
        controller_id, controller_epoch = self._controller
        by_topic: dict[str, list[LeaderAndIsrPartitionStateFields]] = {}
        for key, is_new in sorted(roles.items()):
            if key in self._cluster.leaders:
                by_topic.setdefault(key.topic, []).append(self._role(key, is_new=is_new))
        leaders = {state["leader"] for states in by_topic.values() for state in states}
        return {
            "controller_id": controller_id,
            "controller_epoch": controller_epoch,
            "broker_epoch": self._cluster.brokers[broker].epoch,
            "type": UNKNOWN_TYPE,
            "topic_states": [
                {"topic_name": name, "topic_id": self._topic_id(name), "partition_states": states}
                for name, states in by_topic.items()
            ],
            "live_leaders": [
                {"broker_id": one, "host_name": endpoint.host, "port": endpoint.port}
                for one in sorted(leaders & self._cluster.brokers.keys())
                if (endpoint := self._cluster.brokers[one].endpoint(self._inter_broker_listener)) is not None
            ],
        }

    def _role(self, key: TopicPartition, *, is_new: bool) -> LeaderAndIsrPartitionStateFields:
        state, assignment = self._cluster.leaders[key], self._cluster.topics[key.topic].assignments[key.partition]
        return {
            "partition_index": key.partition,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "partition_epoch": state.partition_epoch,
            "replicas": assignment.replicas,
            "adding_replicas": assignment.adding,
            "removing_replicas": assignment.removing,
            "is_new": is_new,
            "leader_recovery_state": state.leader_recovery_state,
        }

    def _update_metadata(self, broker: int, keys: Iterable[TopicPartition]) -> UpdateMetadataRequestFields:
        controller_id, controller_epoch = self._controller
        by_topic: dict[str, list[UpdateMetadataPartitionStateFields]] = {}
        for key in sorted(keys):
            if key in self._cluster.leaders:
                by_topic.setdefault(key.topic, []).append(self._metadata_of(key))
        return {
            "controller_id": controller_id,
            "controller_epoch": controller_epoch,
            "broker_epoch": self._cluster.brokers[broker].epoch,
            "topic_states": [
                {"topic_name": name, "topic_id": self._topic_id(name), "partition_states": states}
                for name, states in by_topic.items()
            ],
            "live_brokers": [self._live_broker(one) for one in sorted(self._cluster.brokers)],
        }

    def _metadata_of(self, key: TopicPartition) -> UpdateMetadataPartitionStateFields:
        state, replicas = (
            self._cluster.leaders[key],
            self._cluster.topics[key.topic].assignments[key.partition].replicas,
        )
        told = LeaderAndIsr(LEADER_DURING_DELETE, 0, state.isr) if key.topic in self._cluster.deleting else state
        online = self._cluster.online(key)
        return {
            "partition_index": key.partition,
            "controller_epoch": state.controller_epoch,
            "leader": told.leader,
            "leader_epoch": told.leader_epoch,
            "isr": told.isr,
            "zk_version": told.partition_epoch,
            "replicas": replicas,
            "offline_replicas": [one for one in replicas if one not in online],
        }

    def _live_broker(self, broker: int) -> UpdateMetadataBrokerFields:
        known = self._cluster.brokers[broker]
        return {
            "id": broker,
            "endpoints": [
                {
                    "port": endpoint.port,
                    "host": endpoint.host,
                    "listener": endpoint.listener,
                    "security_protocol": SecurityProtocol[endpoint.security_protocol],
                }
                for endpoint in known.endpoints
            ],
            "rack": known.rack,
        }

    def _stop_replica(self, broker: int, stops: Mapping[TopicPartition, bool]) -> StopReplicaRequestFields:
        controller_id, controller_epoch = self._controller
        by_topic: dict[str, list[StopReplicaPartitionStateFields]] = {}
        for key, delete in sorted(stops.items()):
            by_topic.setdefault(key.topic, []).append(
                {"partition_index": key.partition, "leader_epoch": self._stop_epoch(key), "delete_partition": delete}
            )
        return {
            "controller_id": controller_id,
            "controller_epoch": controller_epoch,
            "broker_epoch": self._cluster.brokers[broker].epoch,
            "topic_states": [{"topic_name": name, "partition_states": states} for name, states in by_topic.items()],
        }

    def _stop_epoch(self, key: TopicPartition) -> int:
        """Returns the leader epoch for StopReplica: a broker with a newer one refuses it (KIP-570); -2 always stops."""
        if key.topic in self._cluster.deleting:
            return EPOCH_DURING_DELETE
        state = self._cluster.leaders.get(key)
        return NO_LEADER_EPOCH if state is None else state.leader_epoch

    def _topic_id(self, name: str) -> UUID:
        topic = self._cluster.topics.get(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id


class BrokerResponse(NamedTuple):
    """A broker's response to a request, with the broker's epoch.

    `outcomes` has the error of each partition that the response names; `error_code` is that of the whole request.
    """

    broker: int
    broker_epoch: int
    request: ControlRequest
    error_code: int
    outcomes: dict[TopicPartition, int]


class Roles(NamedTuple):
    """The replicas that a broker now leads or follows, and those that it can't, as their data directory has failed."""

    taken: set[TopicPartition]
    failed: set[TopicPartition]


def roles_in(response: BrokerResponse) -> Roles:
    """Returns the replicas that a response to LeaderAndIsr reports; none for other responses, and for a refusal.

    A broker that has carried out the request before, and whose response was lost, responds STALE_CONTROLLER_EPOCH for
    what it has taken: it has that leader epoch, or a newer one. For a failed replica it responds so never.
    """
    if not isinstance(response.request, LeaderAndIsrRequest) or response.error_code != ErrorCode.NONE:
        return Roles(set(), set())
    return Roles(
        {key for key, error in response.outcomes.items() if error in TAKEN},
        {key for key, error in response.outcomes.items() if error == ErrorCode.KAFKA_STORAGE_ERROR},
    )


class Deletions(NamedTuple):
    """Says which replicas a broker was asked to delete: those that it has deleted, and those that it has not."""

    deleted: set[TopicPartition]
    failed: set[TopicPartition]


def deletions_in(response: BrokerResponse) -> Deletions:
    """Returns what became of the replicas that StopReplica was to delete; none for other responses."""
    if not isinstance(response.request, StopReplicaRequest):
        return Deletions(set(), set())
    asked = {
        TopicPartition(topic["topic_name"], state["partition_index"])
        for topic in response.request.fields["topic_states"]
        for state in topic["partition_states"]
        if state["delete_partition"]
    }
    if response.error_code != ErrorCode.NONE:
        return Deletions(set(), asked)
    failed = {key for key in asked if response.outcomes.get(key, ErrorCode.NONE) != ErrorCode.NONE}
    return Deletions(asked - failed, failed)


def role_outcomes(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> dict[TopicPartition, int]:
    """Returns the error of each partition in a response to LeaderAndIsr, which names topics by id alone."""
    names = {topic["topic_id"]: topic["topic_name"] for topic in request.fields["topic_states"]}
    return {
        TopicPartition(names[topic.topic_id], one.partition_index): one.error_code
        for topic in response.topics
        if topic.topic_id in names
        for one in topic.partition_errors
    }


def stop_outcomes(response: StopReplicaResponse) -> dict[TopicPartition, int]:
    """Returns the error of each partition in a response to StopReplica."""
    return {TopicPartition(one.topic_name, one.partition_index): one.error_code for one in response.partition_errors}
