"""AllocateProducerIds, version 0 (KIP-730): a broker asks the controller for the next block of producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALLOCATE_PRODUCER_IDS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponseFields,
    )

GUARD = Guard(ApiKey.ALLOCATE_PRODUCER_IDS, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns a block that no broker has got before."""
    message = ALLOCATE_PRODUCER_IDS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, GUARD.error)
    return later(_allocated(services, request.version, message))


async def _allocated(services: Services, version: int, message: AllocateProducerIdsRequest) -> Parts:
    block = await asked(
        services, lambda controller: controller.allocate_producer_ids(message.broker_id, message.broker_epoch)
    )
    return _respond(services, version, block)


def _respond(services: Services, version: int, block: range | ErrorCode) -> Parts:
    fields: AllocateProducerIdsResponseFields = {
        "throttle_time": 0,
        "error_code": block if isinstance(block, ErrorCode) else ErrorCode.NONE,
        "producer_id_start": 0 if isinstance(block, ErrorCode) else block.start,
        "producer_id_len": 0 if isinstance(block, ErrorCode) else len(block),
    }
    return respond(services, ALLOCATE_PRODUCER_IDS, version, fields)


API = Api(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    VersionRange(0, 0),
    handle,
    refuses="all where the broker is not the controller (41)",
    guards=(GUARD,),
)
