"""AlterPartition, versions 0 to 3 (KIP-497): a leader asks the controller for other in-sync replicas.

v0  topics by name                          v1  the recovery from an unclean election (KIP-704)
v2  topics by id, INELIGIBLE_REPLICA        v3  the epochs of the brokers in the ISR (KIP-903)

`millrace_broker.controller.alter_partition` has the rules. A leader that asks by name does not know INELIGIBLE_REPLICA,
and hears OPERATION_NOT_ATTEMPTED, which means the same to it: the ISR stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_PARTITION
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.alter_partition import (
    AskedPartition,
    IsrProposal,
)
from millrace_broker.controller.cluster_state import LeaderAndIsr
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition import (
        AlteredPartitionFields,
        AlteredTopicFields,
        AlterPartitionRequest,
        AlterPartitionResponseFields,
        ProposedPartition,
        ProposedTopic,
    )

FIRST_VERSION_WITH_TOPIC_IDS = 2
NO_STATE = LeaderAndIsr(0, 0, ())

Outcome = LeaderAndIsr | ErrorCode

GUARD = Guard(ApiKey.ALTER_PARTITION, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the state of each partition, or the error."""
    message = ALTER_PARTITION.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, GUARD.error)
    return later(_altered(services, request.version, message))


async def _altered(services: Services, version: int, message: AlterPartitionRequest) -> Parts:
    proposals: dict[AskedPartition, IsrProposal] = {
        _asked_partition(version, topic, one.partition_index): _proposal(message.broker_id, one)
        for topic in message.topics
        for one in topic.partitions
    }
    outcomes = await asked(
        services,
        lambda controller: controller.alter_partitions(message.broker_id, message.broker_epoch, proposals),
    )
    return _respond(services, version, outcomes)


def _respond(services: Services, version: int, outcomes: Mapping[AskedPartition, Outcome] | ErrorCode) -> Parts:
    fields: AlterPartitionResponseFields = {
        "throttle_time_ms": 0,
        "error_code": outcomes if isinstance(outcomes, ErrorCode) else ErrorCode.NONE,
        "topics": [] if isinstance(outcomes, ErrorCode) else _topics(outcomes),
    }
    return respond(services, ALTER_PARTITION, version, fields)


def _asked_partition(version: int, topic: ProposedTopic, index: int) -> AskedPartition:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return TopicPartition(topic.topic_name, index)
    return TopicIdPartition(topic.topic_id or NO_TOPIC_ID, index)


def _proposal(leader: int, asked_for: ProposedPartition) -> IsrProposal:
    with_epochs = {one.broker_id: one.broker_epoch for one in asked_for.new_isr_with_epochs}
    isr = with_epochs or dict.fromkeys(asked_for.new_isr, NO_BROKER_EPOCH)
    return IsrProposal(leader, asked_for.leader_epoch, asked_for.partition_epoch, isr, asked_for.leader_recovery_state)


def _topics(outcomes: Mapping[AskedPartition, Outcome]) -> list[AlteredTopicFields]:
    return [
        {
            "topic_name": topic if isinstance(topic, str) else "",
            "topic_id": topic if isinstance(topic, UUID) else None,
            "partitions": [_partition(key, outcome) for key, outcome in found],
        }
        for topic, found in groupby(outcomes.items(), lambda item: item[0][0])
    ]


def _partition(key: AskedPartition, outcome: Outcome) -> AlteredPartitionFields:
    state, code = (outcome, ErrorCode.NONE) if isinstance(outcome, LeaderAndIsr) else (NO_STATE, outcome)
    if code is ErrorCode.INELIGIBLE_REPLICA and isinstance(key, TopicPartition):
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return {
        "partition_index": key.partition,
        "error_code": code,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "leader_recovery_state": state.leader_recovery_state,
        "partition_epoch": state.partition_epoch,
    }


API = Api(
    ApiKey.ALTER_PARTITION,
    VersionRange(0, 3),
    handle,
    refuses="all where the broker is not the controller (41)",
    guards=(GUARD,),
)
