"""Pure functions that read brokers' answers to LeaderAndIsr and StopReplica: which replicas failed or are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.controller.control_requests import ControlRequest, LeaderAndIsrRequest, StopReplicaRequest
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.leader_and_isr import LeaderAndIsrResponse
    from millrace.wire.messages.stop_replica import StopReplicaResponse


class BrokerResponse(NamedTuple):
    """The response of a broker, in one of its epochs, to a request.

    `outcomes` has the error of each partition that the broker has named; `error_code` is that of the whole request.
    """

    broker: int
    broker_epoch: int
    request: ControlRequest
    error_code: int
    outcomes: dict[TopicPartition, int]


class Roles(NamedTuple):
    """The replicas that a broker has taken roles for, and those whose data directory has failed."""

    taken: set[TopicPartition]
    failed: set[TopicPartition]


def roles_in(response: BrokerResponse) -> Roles:
    """Returns what the response to LeaderAndIsr says; nothing for other requests, and for one that is refused."""
    if not isinstance(response.request, LeaderAndIsrRequest) or response.error_code != ErrorCode.NONE:
        return Roles(set(), set())
    return Roles(
        {key for key, error in response.outcomes.items() if error == ErrorCode.NONE},
        {key for key, error in response.outcomes.items() if error == ErrorCode.KAFKA_STORAGE_ERROR},
    )


def deleted_replicas(response: BrokerResponse) -> set[TopicPartition]:
    """Returns the replicas that the broker was to delete by StopReplica and has deleted."""
    if not isinstance(response.request, StopReplicaRequest) or response.error_code != ErrorCode.NONE:
        return set()
    return {
        key
        for topic in response.request.fields["topic_states"]
        for state in topic["partition_states"]
        if state["delete_partition"]
        for key in [TopicPartition(topic["topic_name"], state["partition_index"])]
        if response.outcomes.get(key, ErrorCode.NONE) == ErrorCode.NONE
    }


def role_outcomes(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> dict[TopicPartition, int]:
    """Returns the error of each partition in a response to LeaderAndIsr, which names topics by id."""
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
