"""ControlledShutdown, AlterPartition and AllocateProducerIds: what brokers ask of the controller.

    ControlledShutdown   v0 to v3   a broker that is about to stop asks the controller to move its leaders
                                    v1  a client id in the header    v2  the broker's epoch    v3  flexible
    AlterPartition       v0 to v3   a leader asks for other in-sync replicas (KIP-497)
                                    v0  topics by name    v1  the recovery from an unclean election (KIP-704)
                                    v2  topics by id, INELIGIBLE_REPLICA    v3  the brokers' epochs (KIP-903)
    AllocateProducerIds  v0         a broker asks for the next block of producer ids (KIP-730)

The response to ControlledShutdown has the partitions that the broker still leads, though they have other replicas: none
of those is in sync. `millrace_broker.controller.elections` has the rules of AlterPartition. A leader that asks by
name does not know INELIGIBLE_REPLICA, and hears OPERATION_NOT_ATTEMPTED, which means the same to it: the ISR stays as
it is.

`ask_controller` waits for what the controller makes of a request, also one of another API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode, MillraceError, NotControllerError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.active_controller import ActiveController
from millrace_broker.controller.cluster_state import LeaderAndIsr
from millrace_broker.controller.elections import AskedPartition, IsrProposal
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.allocate_producer_ids import (
        AllocateProducerIdsResponseFields,
    )
    from millrace.wire.messages.alter_partition import (
        AlteredPartitionFields,
        AlteredTopicFields,
        AlterPartitionResponseFields,
        ProposedPartition,
        ProposedTopic,
    )
    from millrace.wire.messages.controlled_shutdown import ControlledShutdownResponseFields


SHUTDOWN_GUARD = Guard(ApiKey.CONTROLLED_SHUTDOWN, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
FIRST_VERSION_WITH_TOPIC_IDS = 2
NO_STATE = LeaderAndIsr(0, 0, ())
Outcome = LeaderAndIsr | ErrorCode
ALTER_GUARD = Guard(ApiKey.ALTER_PARTITION, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
ALLOCATE_GUARD = Guard(ApiKey.ALLOCATE_PRODUCER_IDS, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def controlled_shutdown(services: Services, request: Request) -> Reply:
    """Handles ControlledShutdown: moves leaders from a stopping broker; responds with the partitions it still leads."""
    message = CONTROLLED_SHUTDOWN.decode_request(request.version, request.body)
    return ask_controller(
        services,
        request,
        SHUTDOWN_GUARD,
        lambda controller: controller.shut_down(message.broker_id, message.broker_epoch),
        partial(_still_led, services, request.version),
    )


def _still_led(services: Services, version: int, left: Collection[TopicPartition] | ErrorCode) -> Parts:
    fields: ControlledShutdownResponseFields = {
        "error_code": left if isinstance(left, ErrorCode) else ErrorCode.NONE,
        "remaining_partitions": []
        if isinstance(left, ErrorCode)
        else [{"topic_name": one.topic, "partition_index": one.partition} for one in left],
    }
    return respond(services, CONTROLLED_SHUTDOWN, version, fields)


def alter_partition(services: Services, request: Request) -> Reply:
    """Handles AlterPartition: has the controller change in-sync replicas; responds with each one's state or error."""
    message = ALTER_PARTITION.decode_request(request.version, request.body)
    proposals: dict[AskedPartition, IsrProposal] = {
        _asked_partition(request.version, topic, one.partition_index): _proposal(message.broker_id, one)
        for topic in message.topics
        for one in topic.partitions
    }
    return ask_controller(
        services,
        request,
        ALTER_GUARD,
        lambda controller: controller.alter_partitions(message.broker_id, message.broker_epoch, proposals),
        partial(_altered, services, request.version),
    )


def _altered(services: Services, version: int, outcomes: Mapping[AskedPartition, Outcome] | ErrorCode) -> Parts:
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


def allocate_producer_ids(services: Services, request: Request) -> Reply:
    """Handles AllocateProducerIds: responds with a block of producer ids that the controller has given to no broker."""
    message = ALLOCATE_PRODUCER_IDS.decode_request(request.version, request.body)
    return ask_controller(
        services,
        request,
        ALLOCATE_GUARD,
        lambda controller: controller.allocate_producer_ids(message.broker_id, message.broker_epoch),
        partial(_allocated, services, request.version),
    )


def _allocated(services: Services, version: int, block: range | ErrorCode) -> Parts:
    fields: AllocateProducerIdsResponseFields = {
        "throttle_time": 0,
        "error_code": block if isinstance(block, ErrorCode) else ErrorCode.NONE,
        "producer_id_start": 0 if isinstance(block, ErrorCode) else block.start,
        "producer_id_len": 0 if isinstance(block, ErrorCode) else len(block),
    }
    return respond(services, ALLOCATE_PRODUCER_IDS, version, fields)


APIS = tuple(
    Api(
        guard.api,
        VersionRange(0, newest),
        handle,
        refuses="all where the broker is not the controller (41)",
        guards=(guard,),
    )
    for guard, newest, handle in (
        (SHUTDOWN_GUARD, 3, controlled_shutdown),
        (ALTER_GUARD, 3, alter_partition),
        (ALLOCATE_GUARD, 0, allocate_producer_ids),
    )
)


logger = logging.getLogger(__name__)

T = TypeVar("T")


def ask_controller(
    services: Services,
    request: Request,
    guard: Guard,
    ask: Callable[[ActiveController], T],
    write: Callable[[T | ErrorCode], Parts],
) -> Reply:
    """Responds with what `write` makes of the result of `ask`, called on the controller, or of an error code."""
    return later(_written(services, ask, write)) if guard.permits(services, request.session) else write(guard.error)


async def _written(
    services: Services, ask: Callable[[ActiveController], T], write: Callable[[T | ErrorCode], Parts]
) -> Parts:
    outcome = await asked(services, ask)
    return write(outcome)


async def asked(services: Services, ask: Callable[[ActiveController], T]) -> T | ErrorCode:
    """Returns the result of `ask`, called on the controller's thread, or an error code; NOT_CONTROLLER elsewhere."""
    if services.controller is None:
        return ErrorCode.NOT_CONTROLLER
    try:
        return await asyncio.wrap_future(services.controller.asked(ask))
    except NotControllerError as error:
        return error.code
    except MillraceError as error:
        logger.warning("the controller has failed: %s", error)
        return error.code


def said(code: ErrorCode) -> str | None:
    """Returns the sentence for an error code that a response carries as its message; None for NONE."""
    return None if code is ErrorCode.NONE else error_sentence(code)
